"""The redactor: rules, compiled, and what they do to a text, a value and a document."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from toolrail.redaction.builtin import (
    EXPRESSIONS,
    FIELDS,
    MEDIA,
    NARROWED,
    cut,
    field_name,
    written,
)
from toolrail.redaction.linear import AnyOf, Pattern, Span
from toolrail.redaction.paths import Paths
from toolrail.redaction.rules import RESERVED, Rules, check, load_rules
from toolrail.redaction.spans import (
    MAX_IN_TEXT,
    Found,
    clipped,
    media_placeholder,
    merged,
    placeholder,
    placeholders,
    replaced,
)
from toolrail.redaction.walk import Walk

ContentMode: TypeAlias = Literal["none", "redacted", "full"]
"""What is kept of prompts and answers: sizes only, what a redactor leaves, or all."""

_MAX_PASSES: Final = 8
"""Replacing something can uncover the next thing; what needs more passes is blacked out whole."""
_DATA_URL: Final = re.compile(
    r"data:[A-Za-z0-9.+/-]{1,64}(?:;[A-Za-z0-9=._-]{1,64}){0,4};base64,[A-Za-z0-9+/=_-]{64,}\s*\Z"
)
_HIDDEN: Final = b"[redacted:"
"""What every placeholder begins with."""
_ESCAPE: Final = re.compile(rb"\\(?:[bfnrt]|u[0-9A-Fa-f]{4})")
"""What JSON and most languages write for characters, and what ends in a letter or a digit."""
_VARIETY: Final = tuple(map(re.compile, ("[a-z]", "[A-Z]", "[0-9]")))
"""What so much base64 always has, and a long word seldom."""
_BARE_MEDIA: Final = re.compile(r"[A-Za-z0-9+/_-]{512,}={0,2}\s*\Z")


def redactor(rules_file: str) -> Redactor:
    """The redactor of a file of rules; of the built-in rules where `rules_file` is empty.

    Raises:
        ConfigError: the file cannot be read or used.
    """
    return Redactor(load_rules(Path(rules_file)) if rules_file else Rules())


class Redactor:
    """Rules, compiled. May be shared between threads.

    `tally`, where a method takes one, is told how often each rule found something.
    """

    def __init__(self, rules: Rules = Rules()) -> None:  # noqa: B008 (immutable)
        """Compile them. Raises ValueError for rules that cannot be used."""
        check(rules)
        self.fields = FIELDS | {field_name(name) for name in rules.fields}
        self.paths = Paths(rules.paths)
        chosen = EXPRESSIONS if rules.builtin is None else rules.builtin
        known = [("field", expression) for expression in written(self.fields)]
        known += [(name, EXPRESSIONS[name]) for name in EXPRESSIONS if name in chosen]
        own = [(rule.name, rule.pattern) for rule in rules.patterns]
        # Most texts hold nothing of the known kinds: one pass says so. An operator's expressions
        # stay out of it: one that needs much memory would make that pass fail for all.
        self._any = AnyOf([expression for _, expression in known])
        self._own = range(len(known), len(known) + len(own))
        self._names: Sequence[str] = [name for name, _ in (*known, *own)]
        self._patterns = [Pattern(expression) for _, expression in (*known, *own)]
        self._cut = Pattern(cut(self.fields))
        self._hidden = placeholders({*self._names, *RESERVED})

    def text(
        self, text: str, tally: Counter[str] | None = None, *, limit: int = MAX_IN_TEXT
    ) -> str:
        """`text` without what the rules find; the same object where they find nothing.

        Redacting again changes nothing. Lone surrogates become `?`. A text in which more than
        `limit` places are found is blacked out whole: each costs some microseconds.
        """
        try:
            data = text.encode()
        except UnicodeEncodeError:
            text = text.encode(errors="replace").decode()
            data = text.encode()
        for _ in range(_MAX_PASSES):
            found = self.find(data, limit)
            if found is None:
                break
            if not found:
                return text
            data = self.replace(data, found, tally)
            text = data.decode()
        return self.hide("text", tally)

    def value(self, value: object, tally: Counter[str] | None = None) -> object:
        """A JSON value (as msgspec decodes it) without what the rules find; the input stays.

        Fields and paths count here, and texts that are JSON themselves are gone through as such.
        """
        return Walk(self, tally).value(value, self.paths.start)

    def body(self, data: bytes, tally: Counter[str] | None = None) -> object:
        """The value of a JSON document, redacted; the text of one that is no JSON."""
        try:
            value = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError):
            return self.broken(data.decode(errors="replace"), tally)
        return self.value(value, tally)

    def broken(self, text: str, tally: Counter[str] | None = None) -> str:
        """A text that begins as JSON and is none, such as arguments that were cut.

        Where a field that holds secrets begins an array or object, all that follows goes.
        """
        return self.text(self.without_rest(text, tally), tally)

    def without_rest(self, text: str, tally: Counter[str] | None) -> str:
        """`text` up to where a field that holds secrets begins an array or object."""
        data = text.encode(errors="replace")
        for start, _ in self._cut.spans(data):
            return data[:start].decode(errors="replace") + self.hide("field", tally)
        return text

    def media(self, text: str, tally: Counter[str] | None = None) -> str | None:
        """What stands for `text` if all of it is base64, as a data URL or long; else None."""
        if text.startswith("data:"):
            if _DATA_URL.match(text) is None:
                return None
        elif _BARE_MEDIA.match(text) is None or not all(kind.search(text) for kind in _VARIETY):
            return None
        if tally is not None:
            tally[MEDIA] += 1
        return media_placeholder(text.strip().encode())

    def hide(self, name: str, tally: Counter[str] | None) -> str:
        """The placeholder of `name`, counted."""
        if tally is not None:
            tally[name] += 1
        return placeholder(name)

    def is_hidden(self, text: str) -> bool:
        """Whether `text` is a placeholder and nothing else."""
        return self._hidden.fullmatch(text.encode(errors="replace")) is not None

    def find(self, data: bytes, limit: int = MAX_IN_TEXT) -> list[Found] | None:
        """What the rules find in UTF-8 text, without overlaps, outside of placeholders.

        None: more than `limit` places, or than any text may have.
        """
        limit = min(limit, MAX_IN_TEXT)
        found: list[Found] = []
        at = 0
        if _HIDDEN in data:
            for hidden in self._hidden.finditer(data):
                self._find_into(found, data[at : hidden.start()], at, limit)
                at = hidden.end()
        self._find_into(found, data[at:] if at else data, at, limit)
        return merged(found) if len(found) <= limit else None

    def replace(self, data: bytes, found: Sequence[Found], tally: Counter[str] | None) -> bytes:
        """`data` with placeholders for what was found in it."""
        if tally is not None:
            tally.update(self._names[place.rule] for place in found)
        return b"".join(replaced(data, found, self._names))

    def parts(
        self, texts: Sequence[str], tally: Counter[str] | None = None, *, limit: int = MAX_IN_TEXT
    ) -> list[str] | None:
        """Texts that stand side by side, without what the rules find across their seams.

        None when nothing does. What lies within one of them stays for `text`.
        """
        pieces = [text.encode(errors="replace") for text in texts]
        ends = [0]
        for piece in pieces:
            ends.append(ends[-1] + len(piece))
        seams = ends[1:-1]
        found = self.find(b"".join(pieces), limit)
        if found is None:
            return [self.hide("text", tally) for _ in texts]
        across = [
            place
            for place in found
            if bisect_right(seams, place.start) < bisect_left(seams, place.end)
        ]
        if not across:
            return None
        bounds = zip(pieces, ends[:-1], ends[1:], strict=True)
        return [
            self.replace(piece, clipped(across, start, end), tally).decode(errors="replace")
            for piece, start, end in bounds
        ]

    def _find_into(self, found: list[Found], data: bytes, offset: int, limit: int) -> None:
        known: set[Found] = set()
        for form in _forms(data):
            for rule in (*self._any.which(form), *self._own):
                for start, end in self._spans(rule, form):
                    place = Found(start + offset, end + offset, rule)
                    if place in known:
                        continue
                    known.add(place)
                    found.append(place)
                    if len(found) > limit:
                        return

    def _spans(self, rule: int, data: bytes) -> Iterator[Span]:
        narrow = NARROWED.get(self._names[rule])
        spans = self._patterns[rule].spans(data)
        if narrow is None:
            yield from spans
            return
        for start, end in spans:
            for first, last in narrow(data[start:end]):
                yield start + first, start + last


def _forms(data: bytes) -> Iterator[bytes]:
    """`data`, and with blanks for its escapes where it has some; every place stays the same.

    In JSON that was cut, and in code, a word behind an escape begins after the escape's letter.
    """
    yield data
    if b"\\" in data:
        yield _ESCAPE.sub(lambda escape: b" " * len(escape[0]), data)
