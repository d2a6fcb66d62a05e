"""What the grammar could not hold, checked when it is complete: calls' arguments, and answers.

A check begins with a few steps, which cost at most some milliseconds; one that needs more, one of a
long text and one with regular expressions goes to a thread. What is said of a violation names the
tool and places in its declared schema: neither values nor names that the model made up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from toolrail.grammars.recognising import recogniser
from toolrail.parsing.custom import unwrapped
from toolrail.schema.locations import as_object
from toolrail.schema.validation import Violation, is_exhausted, validator
from toolrail.tools import InputGrammar

MAX_CHARACTERS: Final = 1 << 20
"""Longer texts are not kept to be checked; reading one of this length takes some 20 ms."""
_QUICK_CHARACTERS: Final = 16 << 10
NO_ARGUMENTS: Final = ("", "{}")
"""What `first_of` says of arguments that are none."""
_MAX_BROKEN: Final = 4
"""Violations that are told of one check."""

OF_GRAMMAR: Final = ("#/format/grammar",)
"""What an input of a custom tool breaks."""

Result: TypeAlias = Literal["valid", "invalid", "unknown_tool", "unchecked"]
"""`unchecked`: it could not be judged, or not within the bounds."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one check.

    Attributes:
        tool: name of an offered tool, "" for the answer and for a tool that is none.
        broken: places of violated keywords, such as `#/city/maxLength`, the first few.
        is_empty: it is invalid, and has no arguments at all.
    """

    tool: str
    result: Result
    broken: tuple[str, ...] = ()
    is_empty: bool = False

    @property
    def is_bad(self) -> bool:
        """Whether a deployment that fails on violations fails on this."""
        return self.result in ("invalid", "unknown_tool")

    @property
    def message(self) -> str:
        """A bad verdict, for the client."""
        if self.result == "unknown_tool":
            return "The model called a function that the request does not offer."
        what = f"The model's call of '{self.tool}'"
        if self.broken == OF_GRAMMAR:
            return f"{what} breaks its grammar."
        where = ", ".join(f"'{place}'" for place in self.broken)
        return f"{what if self.tool else 'The answer'} breaks its schema: {where}."


class Checker:
    """Checks texts against one declared schema; None: any object."""

    def __init__(self, tool: str, schema: object) -> None:
        self.tool = tool
        self._schema = schema
        self._violations = validator(schema)

    def at_once(self, text: str) -> Verdict | None:
        """The verdict; None when it takes more than a few milliseconds."""
        if len(text) > _QUICK_CHARACTERS:
            return None
        found = self._violations(text, quick=True)
        return None if is_exhausted(found) else self._verdict(found, text)

    def in_full(self, text: str) -> Verdict:
        """The verdict, after up to some tenths of a second. Never raises."""
        return self._verdict(self._violations(text), text)

    def _verdict(self, found: Sequence[Violation], text: str) -> Verdict:
        bad = [violation for violation in found if violation.judged]
        if bad:
            places = dict.fromkeys(_places(bad, _declared_names(self._schema)))
            broken = tuple(places)[:_MAX_BROKEN]
            return Verdict(self.tool, "invalid", broken, is_empty=first_of(text) in NO_ARGUMENTS)
        return Verdict(self.tool, "unchecked" if found else "valid")


class InputChecker:
    """Checks inputs of a custom tool against the grammar that it declares."""

    def __init__(self, tool: str, grammar: InputGrammar) -> None:
        self.tool = tool
        self._grammar = grammar

    def at_once(self, text: str) -> None:
        """A grammar takes a while to be read."""
        del text

    def in_full(self, text: str) -> Verdict:
        """The verdict on the arguments in `text`, after some tenths of a second. Never raises."""
        found = recogniser(self._grammar)
        matches = None if found is None else found.matches(unwrapped(text))
        if matches is False:
            return Verdict(self.tool, "invalid", OF_GRAMMAR)
        return Verdict(self.tool, "unchecked" if matches is None else "valid")


@dataclass(frozen=True, slots=True)
class Check:
    """A text that is to be checked.

    Attributes:
        checker: None: of a tool that is not offered.
        text: None: it was too long to be kept.
    """

    checker: Checker | InputChecker | None
    text: str | None = None

    def at_once(self) -> Verdict | None:
        """The verdict; None when it takes more than a few milliseconds."""
        if self.checker is None:
            return Verdict("", "unknown_tool")
        return self.given_up() if self.text is None else self.checker.at_once(self.text)

    def in_full(self) -> Verdict:
        """The verdict, after up to some tenths of a second. Never raises."""
        if self.checker is None or self.text is None:
            return self.given_up()
        return self.checker.in_full(self.text)

    def given_up(self) -> Verdict:
        """The verdict of a check that was not made."""
        return Verdict(self.checker.tool if self.checker else "", "unchecked")


class Kept:
    """The text of one call or answer, as far as it may be checked. O(1) for each piece."""

    def __init__(self, checker: Checker | InputChecker) -> None:
        self._checker = checker
        self._pieces: list[str] = []
        self._room = MAX_CHARACTERS

    def add(self, text: str) -> None:
        """Keep more of it."""
        self._room -= len(text)
        if self._room >= 0:
            self._pieces.append(text)
        else:
            self._pieces.clear()

    def check(self) -> Check:
        """The check of all of it."""
        return Check(self._checker, "".join(self._pieces) if self._room >= 0 else None)


def first_of(arguments: str) -> str:
    """The first characters of the text that are not white space, at most three. O(text)."""
    return "".join(arguments.split())[:3]


def judged(checks: Iterable[Check]) -> tuple[list[Verdict], list[Check]]:
    """The verdicts that take no time, and the checks that do."""
    verdicts: list[Verdict] = []
    later: list[Check] = []
    for check in checks:
        if (verdict := check.at_once()) is not None:
            verdicts.append(verdict)
        else:
            later.append(check)
    return verdicts, later


def _places(violations: Iterable[Violation], declared: frozenset[str]) -> Iterable[str]:
    for violation in violations:
        _, *tokens = violation.path.split("/")
        known = (token if token in declared else "*" for token in tokens)
        yield "/".join(("#", *known, *filter(None, [violation.keyword])))


def _declared_names(schema: object) -> frozenset[str]:
    """Names of properties anywhere in the schema, as a JSON Pointer writes them. O(schema)."""
    found: set[str] = set()
    pending = [schema]
    while pending:
        node = pending.pop()
        members = as_object(node)
        if members is not None:
            properties = as_object(members.get("properties")) or {}
            found.update(name.replace("~", "~0").replace("/", "~1") for name in properties)
            pending.extend(members.values())
        elif isinstance(node, list):
            pending.extend(node)
    return frozenset(found)
