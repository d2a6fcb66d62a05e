"""Reads a settings record from flags over environment over defaults, or says which one is wrong.

A flag is a field's name with dashes (`--max-streams 8`, `--max-streams=8`, `--obey-tag`,
`--no-obey-tag`), its variable is `TOOLRAIL_` and the name in capitals. Worker flags also go by the
specification's spellings (*CLI Flags*), `--dyn-…` and `DYN_…`, so that a command line carries over;
its legacy ones are taken with a warning. An empty variable counts as unset.
"""

from __future__ import annotations

import inspect
import logging
import math
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import (
    Any,
    Final,
    Literal,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from toolrail.errors import ConfigError
from toolrail.structural_tag import TagOptions

S = TypeVar("S")
_V = TypeVar("_V")
_Kind: TypeAlias = Literal["switch", "bare", "value"]

log: Final = logging.getLogger("toolrail.settings")

_TRUE: Final = frozenset({"true", "1", "yes", "on"})
_FALSE: Final = frozenset({"false", "0", "no", "off"})

_ALIASES: Final = {
    "tool_call_parser": ("--dyn-tool-call-parser", "DYN_TOOL_CALL_PARSER"),
    "reasoning_parser": ("--dyn-reasoning-parser", "DYN_REASONING_PARSER"),
    "structural_tag": ("--dyn-structural-tag", "DYN_STRUCTURAL_TAG"),
    "dyn_parser_version": ("--dyn-parser-version", "DYN_PARSER_VERSION"),
    "turn_grammar": ("--dyn-beam-turn-grammar", "DYN_BEAM_TURN_GRAMMAR"),
    "tool_call_dispatch": (
        "--enable-streaming-tool-dispatch",
        "DYN_ENABLE_STREAMING_TOOL_DISPATCH",
    ),
    "reasoning_dispatch": (
        "--enable-streaming-reasoning-dispatch",
        "DYN_ENABLE_STREAMING_REASONING_DISPATCH",
    ),
}
"""The specification's spelling of a flag and of its variable, by field."""

_LEGACY: Final = {
    "legacy enabled": ("--dyn-enable-structural-tag", "DYN_ENABLE_STRUCTURAL_TAG"),
    "legacy scope": ("--dyn-structural-tag-scope", "DYN_STRUCTURAL_TAG_SCOPE"),
    "legacy schema": ("--dyn-structural-tag-schema", "DYN_STRUCTURAL_TAG_SCHEMA"),
}
"""Deprecated spellings that amount to a `structural_tag` value."""

_BARE: Final = frozenset({"structural_tag"})
"""Fields whose flag may stand without a value, which then means `true`."""

_RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "port": (0, 65535),
    "metrics_port": (0, 65535),
    "trace_sample_ratio": (0, 1),
    "replicas": (1, 5),
    "slots": (1, 1 << 16),
    "heartbeat_s": (0.05, 3600),
    "api_keys_reload_s": (0.05, 3600),
    "registration_ttl_s": (1, 86400),
    "scripted_seed": (-(1 << 63), (1 << 64) - 1),
}
_POSITIVE: Final = re.compile(r"max_(?!model_len).+|.+_timeout_s|ack_wait_s|job_max_age_s")
"""Numbers that may not be 0; all others are bounded below by 0."""


@dataclass(frozen=True, slots=True)
class _Text:
    """A value as it was written, and the flag or variable that it came from."""

    source: str
    text: str


def load(settings_type: type[S], argv: Sequence[str], env: Mapping[str, str]) -> S:
    """The record that flags `argv` (without the program's name) and variables `env` amount to.

    Raises:
        ConfigError: an unknown flag, a bad value or values that exclude each other; its `field` is
            the flag or variable as it was spelt.
    """
    types = _types(settings_type)
    # Later ones win: our own spelling over the specification's, flags over variables.
    variables = {variable: key for key, (_, variable) in _spellings(types)}
    present = [_Text(variable, env[variable]) for variable in variables if env.get(variable)]
    given = _keyed(present, variables)
    flags = {flag: key for key, (flag, _) in _spellings(types)}
    given |= _keyed(_words(argv, {flag: _kind(key, types) for flag, key in flags.items()}), flags)
    values = {name: _value(name, types[name], text) for name, text in given.items()}
    settings = settings_type(**values)
    _check_together(settings)
    return settings


def help_text(settings_type: type[object], program: str) -> str:
    """What `--help` shows: every flag with its default and its description."""
    types = _types(settings_type)
    described = _descriptions(settings_type)
    lines = [f"usage: {program} [flags]", "", "Flags; each is also TOOLRAIL_<NAME> in capitals:"]
    for field in fields(cast("type[Any]", settings_type)):
        flag = _flag(field.name)
        if _kind(field.name, types) == "switch":
            flag = f"{flag}, --no-{flag[2:]}"
        elif get_origin(types[field.name]) is Literal:
            flag = f"{flag} {{{','.join(get_args(types[field.name]))}}}"
        else:
            flag = f"{flag} {types[field.name].__name__.upper()}"
        default = field.default if field.default != "" else "none"
        lines += [f"  {flag}", f"      {described.get(field.name, '')} [{default}]"]
    return "\n".join(lines) + "\n"


def parse_structural_tag(text: str, *, field: str = "structural_tag") -> TagOptions | None:
    """The options that `--structural-tag TEXT` means; None when it turns structural tags off.

    Raises:
        ConfigError: neither a boolean nor a JSON object of known fields with known values.
    """
    if (enabled := _boolean(text)) is not None:
        return TagOptions() if enabled else None
    try:
        return msgspec.json.decode(text, type=TagOptions)
    except msgspec.DecodeError as error:
        raise ConfigError(field, f"neither a boolean nor an object of options: {error}") from error


def _types(settings_type: type[object]) -> dict[str, type]:
    hints = get_type_hints(settings_type)
    return {field.name: hints[field.name] for field in fields(cast("type[Any]", settings_type))}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _spellings(types: Mapping[str, type]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Key, flag and variable of all that may be given; what wins comes last."""
    if "structural_tag" in types:
        yield from _LEGACY.items()
    for name in types:
        if name in _ALIASES:
            yield name, _ALIASES[name]
    for name in types:
        yield name, (_flag(name), f"TOOLRAIL_{name.upper()}")


def _kind(key: str, types: Mapping[str, type]) -> _Kind:
    if key in _BARE:
        return "bare"
    return "switch" if key == "legacy enabled" or types.get(key) is bool else "value"


def _words(argv: Sequence[str], kinds: Mapping[str, _Kind]) -> Iterator[_Text]:
    """The flags of a command line with their values, in order."""
    rest = deque(argv)
    while rest:
        flag, equals, text = rest.popleft().partition("=")
        positive = "--" + flag.removeprefix("--no-")
        if flag.startswith("--no-") and kinds.get(positive) == "switch" and not equals:
            yield _Text(positive, "false")
        elif flag not in kinds:
            raise ConfigError(flag, "unknown flag; --help lists them")
        elif equals:
            yield _Text(flag, text)
        elif kinds[flag] == "switch":
            yield _Text(flag, "true")
        elif rest and not rest[0].startswith("--"):
            yield _Text(flag, rest.popleft())
        elif kinds[flag] == "bare":
            yield _Text(flag, "true")
        else:
            raise ConfigError(flag, "needs a value")


def _keyed(texts: Iterable[_Text], keys: Mapping[str, str]) -> dict[str, _Text]:
    """The texts by field; legacy spellings become a `structural_tag` unless there is one."""
    given: dict[str, _Text] = {}
    legacy: dict[str, _Text] = {}
    for text in texts:
        key = keys[text.source]
        (legacy if key in _LEGACY else given)[key] = text
    for text in legacy.values():
        log.warning("%s is deprecated: use --structural-tag or DYN_STRUCTURAL_TAG", text.source)
    if legacy:
        given.setdefault("structural_tag", _from_legacy(legacy))
    return given


def _from_legacy(legacy: Mapping[str, _Text]) -> _Text:
    parts = {key.removeprefix("legacy "): text for key, text in legacy.items()}
    enabled = parts.pop("enabled", _Text("", "true"))
    if not _need(_boolean(enabled.text), enabled, "a boolean"):
        return _Text(enabled.source, "false")
    options = {part: text.text for part, text in parts.items()}
    source = ", ".join(text.source for text in parts.values())
    return _Text(source, msgspec.json.encode(options).decode())


def _value(name: str, kind: type, given: _Text) -> Any:
    text = given.text.strip()
    if name == "structural_tag":
        parse_structural_tag(text, field=given.source)
    if kind is str:
        return text
    if kind is bool:
        return _need(_boolean(text), given, "a boolean")
    if kind is int or kind is float:
        return _number(name, kind, given)
    allowed = get_args(kind)
    return _need(text if text in allowed else None, given, f"one of {', '.join(allowed)}")


def _number(name: str, kind: type[int] | type[float], given: _Text) -> int | float:
    low, high = _RANGES.get(name, (0, sys.float_info.max))
    try:
        number = kind(given.text)
    except ValueError:
        number = None
    what = "a whole number" if kind is int else "a number"
    number = _need(number, given, what)
    if not low <= number <= high or (number == 0 and _POSITIVE.fullmatch(name)):
        bounds = f"from {low:g} to {high:g}" if name in _RANGES else "positive and finite"
        raise ConfigError(given.source, f"must be {bounds}, not {given.text}")
    return number


def _need(value: _V | None, given: _Text, what: str) -> _V:
    if value is None:
        raise ConfigError(given.source, f"must be {what}, not {given.text!r}")
    return value


def _boolean(text: str) -> bool | None:
    word = text.strip().lower()
    return True if word in _TRUE else False if word in _FALSE else None


def _check_together(settings: object) -> None:
    """What no single value shows. Raises ConfigError."""
    heartbeat_s = getattr(settings, "heartbeat_s", 0.0)
    if getattr(settings, "registration_ttl_s", math.inf) < 2 * heartbeat_s:
        raise ConfigError("registration_ttl_s", "must be at least twice heartbeat_s")
    if not re.fullmatch(r"[A-Za-z0-9_-]{0,64}", getattr(settings, "instance", "")):
        raise ConfigError("instance", "may hold letters, digits, - and _ only, 64 at most")


def _descriptions(settings_type: type[object]) -> dict[str, str]:
    """What the docstrings of a record and its bases say of each field."""
    found: dict[str, str] = {}
    for owner in settings_type.__mro__:
        _, _, attributes = inspect.cleandoc(owner.__doc__ or "").partition("Attributes:\n")
        for entry in re.split(r"\n    (?=\w+: )", "\n" + attributes):
            name, colon, text = entry.partition(": ")
            if colon:
                found.setdefault(name.strip(), " ".join(text.split()))
    return found
