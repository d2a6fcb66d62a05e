"""Regular expressions that take no longer than their text: RE2, behind what is used of it.

Operators' expressions meet callers' text here, so neither may make the other slow: there is no
backtracking, and look-around and back references are refused. Texts are UTF-8 bytes, so that places
need no conversion.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeAlias, cast

import re2  # pyright: ignore[reportMissingTypeStubs]

Span: TypeAlias = tuple[int, int]

SECRET_GROUP: Final = "secret"
"""Name of the group that is meant, where it is not all of a match."""
MAX_PROGRAM: Final = 100_000
"""Instructions of one compiled expression; written-out bounds such as `{1,1000}` count."""
_MEMORY: Final = 64 << 20
"""For one expression or set, at most: with too little a set finds nothing instead of failing."""


class PatternError(ValueError):
    """An expression that cannot be used, and why."""


class _Match(Protocol):
    def span(self, group: int = 0) -> Span: ...


class _Regexp(Protocol):
    @property
    def programsize(self) -> int: ...
    @property
    def groupindex(self) -> Mapping[str, int]: ...
    def finditer(self, text: bytes) -> Iterator[_Match]: ...
    def search(self, text: bytes) -> _Match | None: ...


class _Set(Protocol):
    def Add(self, pattern: str) -> int: ...  # noqa: N802 (RE2's own name)
    def Compile(self) -> None: ...  # noqa: N802
    def Match(self, text: bytes) -> Sequence[int] | None: ...  # noqa: N802


class _Options(Protocol):
    max_mem: int
    log_errors: bool


class _Sets(Protocol):
    def SearchSet(self, options: _Options) -> _Set: ...  # noqa: N802


class _Engine(Protocol):
    """What is used of the module `re2`, which comes without types."""

    error: type[Exception]
    Set: _Sets

    def Options(self) -> _Options: ...  # noqa: N802
    def compile(self, pattern: str, options: _Options) -> _Regexp: ...


_engine: Final = cast("_Engine", re2)


class Pattern:
    """A compiled expression; may be shared between threads."""

    def __init__(self, expression: str) -> None:
        """Compile it. Raises PatternError, also for one that fits nothing."""
        options = _options()
        try:
            self._regexp = _engine.compile(expression, options)
        except _engine.error as error:
            text = cast("bytes", error.args[0])
            raise PatternError(text.decode(errors="replace")) from None
        if self._regexp.programsize > MAX_PROGRAM:
            raise PatternError("too large")
        if self._regexp.search(b"") is not None:
            raise PatternError("fits the empty text, and so every text")
        self._group = self._regexp.groupindex.get(SECRET_GROUP, 0)

    def spans(self, data: bytes) -> Iterator[Span]:
        """Where it matches, from left to right, none empty. One match costs O(len(data))."""
        for match in self._regexp.finditer(data):
            start, end = match.span(self._group)
            if start < end:
                yield start, end
            elif start < 0:  # the group took no part in it
                yield match.span()


class AnyOf:
    """Tells which of several expressions occur in a text, in one pass over it."""

    def __init__(self, expressions: Sequence[str]) -> None:
        """Compile them all; none may be one that `Pattern` refuses."""
        self._set = _engine.Set.SearchSet(_options())
        for expression in expressions:
            self._set.Add(expression)
        self._set.Compile()

    def which(self, data: bytes) -> Sequence[int]:
        """Indices of those that occur."""
        return self._set.Match(data) or ()


def _options() -> _Options:
    options = _engine.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    return options
