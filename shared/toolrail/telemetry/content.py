"""Prompts and answers in spans, for deployments that want them there. Off by default.

In the form of the GenAI conventions, as JSON text of a bounded length. What is long is redacted
first and cut then, so that no half of a secret is left that the rules would know as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, cast

import msgspec
from opentelemetry.trace import Span

from toolrail.redaction import ContentMode, Redactor
from toolrail.telemetry import semconv

Part: TypeAlias = dict[str, object]

_MOST_READ: Final = 8
"""As many times the bytes that are kept are looked at; older messages are left out unseen."""
_LEFT_OUT: Final = "…"


def text_part(text: str) -> Part:
    """Text that somebody wrote or reads."""
    return {"type": "text", "content": text}


def reasoning_part(text: str) -> Part:
    """What the model thought."""
    return {"type": "reasoning", "content": text}


def call_part(call_id: str | None, name: str, arguments: object) -> Part:
    """A tool call."""
    named: Part = {"type": "tool_call", "name": name, "arguments": arguments}
    return named if call_id is None else {**named, "id": call_id}


def result_part(call_id: str, result: str) -> Part:
    """What a tool answered."""
    return {"type": "tool_call_response", "id": call_id, "response": result}


def message(role: str, parts: Sequence[Part], finish_reason: str | None = None) -> Part:
    """A message of a conversation; of an answer with why it ended."""
    said: Part = {"role": role, "parts": list(parts)}
    return said if finish_reason is None else {**said, "finish_reason": finish_reason}


class Content:
    """What spans may hold of prompts and answers.

    Attributes:
        on: anything at all.
        max_bytes: of one attribute.
    """

    def __init__(
        self,
        mode: ContentMode = "none",
        redactor: Redactor | None = None,
        max_bytes: int = 32 << 10,
    ) -> None:
        """`redactor`: for the mode `redacted`."""
        self.on = mode != "none"
        self.max_bytes = max_bytes
        self._redactor = (redactor or Redactor()) if mode == "redacted" else None

    def wanted(self, span: Span) -> bool:
        """Whether `put` would do anything."""
        return self.on and span.is_recording()

    def put(self, span: Span, name: str, values: Sequence[Part], *, cut: bool = False) -> None:
        """Put `values`, the last ones first, into the attribute `name` of `span`.

        O(`max_bytes`): some milliseconds. `cut`: something of them is missing already.
        """
        if not self.wanted(span):
            return
        some = self._recent(values)
        shown: object = some
        if self._redactor is not None:
            shown = self._redactor.value(some)
        text, shortened = self._fitting(cast("list[object]", shown))
        span.set_attribute(name, text)
        if cut or shortened or len(some) < len(values):
            span.set_attribute(semconv.CONTENT_CUT, True)

    def _recent(self, values: Sequence[Part]) -> list[Part]:
        found: list[Part] = []
        room = self.max_bytes * _MOST_READ
        for value in reversed(values):
            room -= _size(value)
            if room < 0:
                break
            found.append(value)
        return found[::-1]

    def _fitting(self, values: list[object]) -> tuple[str, bool]:
        data = msgspec.json.encode(values)
        room = self.max_bytes
        shortened = len(data) > self.max_bytes
        while len(data) > self.max_bytes and room:
            kept = _Room(room)
            # What came last is asked for most.
            data = msgspec.json.encode([kept.fit(value) for value in reversed(values)][::-1])
            room //= 2
        return (data if len(data) <= self.max_bytes else b"[]").decode(), shortened


class _Room:
    """Shortens texts of a JSON value until they fit into `left` bytes together."""

    def __init__(self, left: int) -> None:
        self.left = left

    def fit(self, value: object) -> object:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            members = cast("Mapping[str, object]", value)
            self.left -= 4 * len(members)
            return {key: self.fit(each) for key, each in members.items()} if self.left > 0 else {}
        if isinstance(value, list):
            items = cast("list[object]", value)
            return [self.fit(each) for each in items if self.left > 0]
        return value

    def _text(self, text: str) -> str:
        size = len(text.encode())
        if size <= self.left:
            self.left -= size
            return text
        kept = text.encode()[: max(0, self.left)].decode(errors="ignore")
        self.left = 0
        return kept + _LEFT_OUT


def _size(value: object) -> int:
    """About how many bytes a JSON value has. O(values in it)."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value)
        return sum(len(key) + _size(each) for key, each in members.items())
    if isinstance(value, list | tuple):
        return sum(map(_size, cast("Sequence[object]", value)))
    return 8
