"""The compose files, merged and interpolated as far as our own services need it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

COMPOSE: Final = Path(__file__).parents[2] / "compose"
RESET: Final = object()
OURS: Final = ("gateway", "preprocessor", "postprocessor", "worker")

_VARIABLE: Final = re.compile(r"\$\{(\w+)(?:(:?[-?])([^}]*))?\}")


class _Loader(yaml.SafeLoader):
    """Also reads Compose's `!reset`, which takes away what a file under it has."""


_Loader.add_constructor("!reset", lambda loader, node: RESET)


def read(name: str) -> Any:
    """One file, its anchors and merges resolved."""
    return yaml.load((COMPOSE / name).read_text(encoding="utf-8"), _Loader)


def stack(*overlays: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """`compose.yaml` under these overlays, with the variables of `environment` filled in.

    Merged as Compose does it for what the files use: mappings by key, commands whole, other lists
    by addition.
    """
    merged = read("compose.yaml")
    for name in overlays:
        merged = _merge(merged, read(name))
    filled = _interpolate(merged, environment or {})
    assert isinstance(filled, dict)
    return filled


def _merge(base: Any, over: Any, key: str = "") -> Any:
    if isinstance(base, dict) and isinstance(over, dict):
        both = {k: _merge(base[k], over[k], k) for k in base.keys() & over.keys()}
        return {k: v for k, v in {**base, **over, **both}.items() if v is not RESET}
    if isinstance(base, list) and isinstance(over, list) and key != "command":
        return [*base, *over]
    return over


def _interpolate(value: Any, environment: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {k: _interpolate(v, environment) for k, v in value.items()}
    if isinstance(value, list):
        return [_interpolate(v, environment) for v in value]
    if not isinstance(value, str):
        return value

    def fill(match: re.Match[str]) -> str:
        name, operator, rest = match.groups()
        given = environment.get(name)
        if given is None or (not given and operator and operator.startswith(":")):
            assert not (operator and "?" in operator), f"{name}: {rest}"
            return rest or ""
        return given

    return _VARIABLE.sub(fill, value).replace("$$", "$")
