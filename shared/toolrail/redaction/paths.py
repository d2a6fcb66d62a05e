"""Places in a JSON value, as a part of JSONPath (RFC 9535) writes them.

`$.messages[*].content`, `$..user`, `$.metadata['e-mail']`, `$.tools[0].*`: names, indices, `*`, and
`..` for any depth. No filters, no slices.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

MAX_STEPS: Final = 64

State: TypeAlias = frozenset[tuple[int, int]]
"""How far each path has come: its number and the step that comes next."""

_STEP: Final = re.compile(
    r"(?P<deep>\.\.)?(?:(?P<dot>\.)?(?P<name>[^\W\d][\w-]*|\*)|\[\s*(?P<index>\d+|\*)\s*\]"
    r"|\[\s*(?:'(?P<single>[^'\\]*)'|\"(?P<double>[^\"\\]*)\")\s*\])"
)


@dataclass(frozen=True, slots=True)
class _Step:
    key: str | int | None
    """None: any."""
    deep: bool

    def fits(self, key: str | int) -> bool:
        return self.key is None or self.key == key


class Paths:
    """Several paths, followed at once while a value is walked through."""

    def __init__(self, paths: Sequence[str]) -> None:
        """Read them. Raises ValueError."""
        self._paths = [tuple(_steps(path)) for path in paths]
        self.start: State = frozenset((number, 0) for number in range(len(self._paths)))

    def into(self, state: State, key: str | int) -> State | None:
        """The state below `key`; None when a path ends there."""
        if not state:
            return state
        following: set[tuple[int, int]] = set()
        for number, at in state:
            step = self._paths[number][at]
            if step.deep:
                following.add((number, at))
            if step.fits(key):
                if at + 1 == len(self._paths[number]):
                    return None
                following.add((number, at + 1))
        return frozenset(following)


def _steps(path: str) -> Iterator[_Step]:
    at, count = 1, 0
    while at < len(path):
        found = _STEP.match(path, at)
        # A name needs exactly one of `.` and `..` before it.
        if found is None or (found["name"] and bool(found["dot"]) == bool(found["deep"])):
            raise ValueError(f"{path!r} is no path: not understood from {path[at:]!r} on")
        at, count = found.end(), count + 1
        if count > MAX_STEPS:
            raise ValueError(f"{path!r} has more than {MAX_STEPS} steps")
        yield _Step(_key(found), bool(found["deep"]))
    if not path.startswith("$") or not count:
        raise ValueError(
            f"{path!r} is no path: it begins with $ and goes on, as in $.metadata.user"
        )


def _key(found: re.Match[str]) -> str | int | None:
    if found["index"]:
        return None if found["index"] == "*" else int(found["index"])
    if found["name"]:
        return None if found["name"] == "*" else found["name"]
    return found["single"] if found["single"] is not None else found["double"]
