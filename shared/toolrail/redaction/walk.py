"""One walk through a JSON value: fields, paths, texts, and JSON inside of texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

import msgspec

from toolrail.redaction.builtin import field_name
from toolrail.redaction.paths import State
from toolrail.redaction.spans import MAX_IN_TEXT, placeholder

if TYPE_CHECKING:
    from toolrail.redaction import Redactor

MAX_DEPTH: Final = 100
"""What is nested deeper, JSON inside of texts included, is blacked out."""
_NOWHERE: Final[State] = frozenset()
MAX_FOUND: Final = 10_000
"""Places replaced in one value; after that, texts that have any are blacked out whole."""
MAX_TEXTS: Final = 100_000
"""Different texts and keys of one value; those after them are blacked out."""
_SHORT: Final = 64
"""Characters of texts and keys that are remembered: most come again and again."""
_SHORTEST_NUMBER: Final = 10**11
"""An integer below it is nobody's card."""


class Walk:
    """The walk through one value."""

    def __init__(self, rules: Redactor, tally: Counter[str] | None) -> None:
        self._rules = rules
        self._found = Counter[str]() if tally is None else tally
        self._texts = 0
        self._clean: set[str] = set()
        self._left = MAX_FOUND

    def value(self, value: object, state: State, depth: int = 0) -> object:
        """A copy of `value` without what the rules find."""
        if isinstance(value, str):
            return self._text(value, depth)
        if isinstance(value, dict | list) and depth >= MAX_DEPTH:
            return self._hide("depth")
        if isinstance(value, dict):
            return self._object(cast("Mapping[str, object]", value), state, depth + 1)
        if isinstance(value, list):
            return self._array(cast("Sequence[object]", value), state, depth + 1)
        return self._number(value) if isinstance(value, int) else value

    def _number(self, value: int) -> object:
        if abs(value) < _SHORTEST_NUMBER:
            return value
        text = str(value)
        hidden = self._plain(text)
        return value if hidden == text else hidden

    def _object(
        self, value: Mapping[str, object], state: State, depth: int, *, names: bool = False
    ) -> dict[str, object]:
        """An object; `names`: its keys are names that a schema speaks of, and hold no values."""
        out: dict[str, object] = {}
        for key, member in value.items():
            below = self._rules.paths.into(state, key)
            out[self._key(key, out)] = self._member(key, member, below, depth, names=names)
        return out

    def _member(
        self, key: str, member: object, below: State | None, depth: int, *, names: bool
    ) -> object:
        if below is None:
            return self._black("path", member)
        if key == "properties" and depth < MAX_DEPTH and (members := _schemas(member)) is not None:
            return self._object(members, below, depth + 1, names=True)
        if not names and field_name(key) in self._rules.fields:
            return self._black("field", member)
        # Its tokens are pieces of text, too short for any rule.
        if key in ("logprobs", "top_logprobs") and not isinstance(member, int):
            return self._black("logprobs", member)
        return self.value(member, below, depth)

    def _array(self, items: Sequence[object], state: State, depth: int) -> list[object]:
        out: list[object] = []
        for at, item in enumerate(self._across_parts(items)):
            below = self._rules.paths.into(state, at)
            if below is None:
                out.append(self._black("path", item))
            else:
                out.append(self.value(item, below, depth))
        return out

    def _across_parts(self, items: Sequence[object]) -> Sequence[object]:
        """The items, without what stretches over the texts of neighbouring parts of a message."""
        parts = [cast("dict[str, object]", item) for item in items if _text_of(item) is not None]
        if len(parts) < 2:
            return items
        before = self._found.total()
        given = [cast("str", part["text"]) for part in parts]
        texts = self._rules.parts(given, self._found, limit=self._left)
        self._spend(before, whole=texts is not None and texts[0] == placeholder("text"))
        if texts is None:
            return items
        rest = iter(texts)
        return [
            item
            if _text_of(item) is None
            else {**cast("dict[str, object]", item), "text": next(rest)}
            for item in items
        ]

    def _text(self, text: str, depth: int) -> str:
        if text in self._clean:
            return text
        media = self._rules.media(text, self._found)
        if media is not None:
            return media
        if not text.lstrip().startswith(("{", "[")) or self._rules.is_hidden(text):
            return self._plain(text)
        try:
            inner = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            return self._plain(self._rules.without_rest(text, self._found))
        clean = self.value(inner, _NOWHERE, depth)
        if clean != inner:  # else the text stays as it was written
            text = msgspec.json.encode(clean).decode()
        return self._plain(text)

    def _plain(self, text: str) -> str:
        if text in self._clean:
            return text
        self._texts += 1
        if self._texts > MAX_TEXTS:
            return self._hide("text")
        before = self._found.total()
        clean = self._rules.text(text, self._found, limit=self._left)
        if clean is not text:
            self._spend(before, whole=clean == placeholder("text"))
        elif len(text) <= _SHORT:
            self._clean.add(text)
        return clean

    def _spend(self, before: int, *, whole: bool) -> None:
        """Count what was found since `before`; what went whole was looked through to the limit."""
        spent = MAX_IN_TEXT if whole else self._found.total() - before
        self._left = max(0, self._left - spent)

    def _key(self, key: str, taken: Mapping[str, object]) -> str:
        """A key without what patterns find in it, and unlike those it stands beside."""
        clean = self._plain(key)
        if clean == key:
            return key
        return clean if clean not in taken else f"{clean}#{len(taken)}"

    def _black(self, name: str, value: object) -> object:
        """The placeholder for a value; what says nothing stays."""
        if value is None or value == "" or isinstance(value, bool):
            return value
        if isinstance(value, str) and self._rules.is_hidden(value):
            return value
        return self._hide(name)

    def _hide(self, name: str) -> str:
        return self._rules.hide(name, self._found)


def _text_of(item: object) -> str | None:
    if not isinstance(item, dict):
        return None
    text = cast("Mapping[str, object]", item).get("text")
    return text if isinstance(text, str) else None


def _schemas(value: object) -> Mapping[str, object] | None:
    """The members of a schema's `properties`: a schema of a field called password is none."""
    if not isinstance(value, dict):
        return None
    members = cast("Mapping[str, object]", value)
    return members if all(isinstance(of, dict | bool) for of in members.values()) else None
