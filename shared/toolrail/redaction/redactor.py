"""The redactor: rules, compiled, and what they do to a text, a value and a document."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
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

    def text(self, text: str, tally: Counter[str] | None = None) -> str:
        """`text` without what the rules find; the same object where they find nothing.

        Redacting again changes nothing. Lone surrogates become `?`.
        """
        data = text.encode(errors="replace")
        for number in range(_MAX_PASSES):
            found = self.find(data)
            if not found:
                return text if not number and "\ufffd" not in text else data.decode()
            data = self.replace(data, found, tally)
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
        data = text.encode(errors="replace")
        for start, _ in self._cut.spans(data):
            text = data[:start].decode(errors="replace") + self.hide("field", tally)
            break
        return self.text(text, tally)

    def media(self, text: str, tally: Counter[str] | None = None) -> str | None:
        """What stands for `text` if all of it is base64 and long; else None."""
        if _BARE_MEDIA.match(text) is None or not all(kind.search(text) for kind in _VARIETY):
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

    def find(self, data: bytes) -> list[Found]:
        """What the rules find in UTF-8 text, without overlaps, outside of placeholders."""
        found: list[Found] = []
        at = 0
        for hidden in self._hidden.finditer(data):
            found += self._find(data[at : hidden.start()], at)
            at = hidden.end()
        found += self._find(data[at:] if at else data, at)
        return merged(found)

    def replace(self, data: bytes, found: Sequence[Found], tally: Counter[str] | None) -> bytes:
        """`data` with placeholders for what was found in it."""
        if tally is not None:
            tally.update(self._names[place.rule] for place in found)
        return b"".join(replaced(data, found, self._names))

    def parts(self, texts: Sequence[str], tally: Counter[str] | None = None) -> list[str] | None:
        """Texts that stand side by side, without what the rules find across their seams.

        None when nothing does. What lies within one of them stays for `text`.
        """
        pieces = [text.encode(errors="replace") for text in texts]
        ends = [0]
        for piece in pieces:
            ends.append(ends[-1] + len(piece))
        seams = ends[1:-1]
        across = [
            place
            for place in self.find(b"".join(pieces))
            if any(place.start < seam < place.end for seam in seams)
        ]
        if not across:
            return None
        bounds = zip(pieces, ends[:-1], ends[1:], strict=True)
        return [
            self.replace(piece, clipped(across, start, end), tally).decode(errors="replace")
            for piece, start, end in bounds
        ]

    def _find(self, data: bytes, offset: int) -> list[Found]:
        return [
            Found(start + offset, end + offset, rule)
            for rule in (*self._any.which(data), *self._own)
            for start, end in self._spans(rule, data)
        ]

    def _spans(self, rule: int, data: bytes) -> list[Span]:
        narrow = NARROWED.get(self._names[rule])
        spans = self._patterns[rule].spans(data)
        if narrow is None:
            return list(spans)
        return [
            (start + first, start + last)
            for start, end in spans
            for first, last in narrow(data[start:end])
        ]
