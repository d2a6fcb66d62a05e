"""The output items of a response, as they grow: the one path from events to Responses.

A streamed answer writes what happens to the items, one that is not streamed keeps the items alone.
An item begins where the model began it; a call ends at its `CallEnd`, reasoning and text where
something else begins. Calls of custom tools come whole, so that one that was cut has no item.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeAlias, assert_never

from services.gateway.answer import Tally
from services.gateway.objects import TokenLogprob, to_json
from services.gateway.responses.body import Asked
from services.gateway.sse import json_string, one_line
from toolrail.events import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    ReasoningDelta,
    TextDelta,
)
from toolrail.openai.responses.ids import Prefix, output_item_id
from toolrail.openai.responses.sealed import seal

Kind: TypeAlias = Literal["reasoning", "message", "function_call", "custom_tool_call"]
Status: TypeAlias = Literal["in_progress", "completed", "incomplete"]

_PREFIX: Final[Mapping[Kind, Prefix]] = {
    "reasoning": "rs",
    "message": "msg",
    "function_call": "fc",
    "custom_tool_call": "ctc",
}
_ROLE: Final = b'"role":"assistant"'


@dataclass(slots=True)
class OutputItem:
    """One item of the output.

    Attributes:
        index: where it stands in the output.
        parts: its text, reasoning, arguments or input.
        head: its members that never change, as JSON text without the closing brace.
        place: the members by which events tell it from others, as JSON text.
        name: of a call, as JSON text.
        sealed: whether its reasoning is also told in the form that clients carry.
    """

    kind: Kind
    index: int
    id: bytes
    head: bytes
    place: bytes
    name: bytes = b""
    status: Status = "in_progress"
    sealed: bool = False
    parts: list[str] = field(default_factory=list[str])
    logprobs: list[TokenLogprob] = field(default_factory=list[TokenLogprob])

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self.parts)

    def json(self) -> bytes:
        """The item as a client sees it now. O(text)."""
        match self.kind:
            case "message":
                content = self.part() if self.status != "in_progress" else b""
                return b'%b,"content":[%b],"status":"%b"}' % (
                    self.head,
                    content,
                    self.status.encode(),
                )
            case "reasoning":
                return self._reasoning()
            case "function_call":
                text = json_string(self.text)
                return b'%b,"arguments":%b,"status":"%b"}' % (self.head, text, self.status.encode())
            case "custom_tool_call":
                return b'%b,"input":%b}' % (self.head, json_string(self.text))
            case _:
                assert_never(self.kind)

    def part(self) -> bytes:
        """The one content part of reasoning or of a message, with all that it has so far."""
        if self.kind == "reasoning":
            return b'{"type":"reasoning_text","text":%b}' % json_string(self.text)
        return b'{"type":"output_text","text":%b,"annotations":[],"logprobs":%b}' % (
            json_string(self.text),
            logprobs_json(self.logprobs),
        )

    def _reasoning(self) -> bytes:
        over = self.status != "in_progress"
        sealed = b""
        if self.sealed:
            value = json_string(seal(self.text)) if over else b"null"
            sealed = b',"encrypted_content":' + value
        content = self.part() if over else b""
        return b'%b,"summary":[],"content":[%b]%b,"status":"%b"}' % (
            self.head,
            content,
            sealed,
            self.status.encode(),
        )


def logprobs_json(entries: Sequence[TokenLogprob]) -> bytes:
    """A list of logprobs, as an item tells them; almost always the empty one."""
    return one_line(to_json(entries)) if entries else b"[]"


class Watcher(Protocol):
    """Whoever is told what happens to the items."""

    def opened(self, item: OutputItem) -> None:
        """It begins; it has no text yet."""
        ...

    def grew(self, item: OutputItem, text: str, logprobs: Sequence[TokenLogprob]) -> None:
        """More of it came."""
        ...

    def closed(self, item: OutputItem) -> None:
        """It is over; its status says how."""
        ...


class OutputItems:
    """All items of one response.

    Attributes:
        items: in the order the model began them.
        broken: a call was begun and not completed.
    """

    def __init__(self, asked: Asked, watcher: Watcher, tally: Tally) -> None:
        self.items: list[OutputItem] = []
        self.broken = False
        self._asked = asked
        self._watcher = watcher
        self._tally = tally
        self._sealed = "reasoning.encrypted_content" in asked.echo.include
        self._run: OutputItem | None = None
        self._calls: dict[int, OutputItem] = {}

    def take(self, event: Event, logprobs: Sequence[TokenLogprob] = ()) -> None:
        """What an event does to the items. `logprobs`: of the tokens of its text."""
        match event:
            case TextDelta(text):
                self._grow("message", text, logprobs)
            case ReasoningDelta(text):
                self._grow("reasoning", text, ())
            case ArgumentsDelta(index, text):
                self._add(self._calls[index], text, ())
            case CallStart(index):
                self._end_run("completed")
                self._calls[index] = self._begin_call(event)
            case CallEnd(index, complete):
                self._end_call(self._calls.pop(index), complete=complete)
            case _:
                assert_never(event)

    def finish(self, *, cut: bool) -> None:
        """The choice is over. `cut`: what is open is not whole."""
        if not self.items and not cut and not self.broken:
            self._run = self._begin("message", _ROLE)  # an answer of no text
        self._end_run("incomplete" if cut else "completed")
        self.break_off()

    def break_off(self) -> None:
        """Nothing more comes: what is still open stays as it is."""
        self._end_run("incomplete")
        for index in list(self._calls):
            self._end_call(self._calls.pop(index), complete=False)

    def _grow(self, kind: Kind, text: str, logprobs: Sequence[TokenLogprob]) -> None:
        if not text:
            return
        run = self._run
        if run is None or run.kind != kind:
            self._end_run("completed")
            run = self._begin(kind, _ROLE if kind == "message" else b"")
            self._run = run
        self._add(run, text, logprobs)

    def _add(self, item: OutputItem, text: str, logprobs: Sequence[TokenLogprob]) -> None:
        if text:
            item.parts.append(text)
            item.logprobs.extend(logprobs)
            self._watcher.grew(item, text, logprobs)

    def _end_run(self, status: Status) -> None:
        if self._run is not None:
            self._close(self._run, status)
            self._run = None

    def _begin_call(self, start: CallStart) -> OutputItem:
        namespace, name = self._asked.namespaces.get(start.name, ("", start.name))
        quoted = json_string(name)
        members = b'"call_id":"%b","name":%b' % (self._asked.new_call_id().encode(), quoted)
        if namespace:
            members += b',"namespace":' + json_string(namespace)
        item = self._begin("custom_tool_call" if start.custom else "function_call", members)
        item.name = quoted
        return item

    def _end_call(self, item: OutputItem, *, complete: bool) -> None:
        self._tally.complete_calls += complete
        self._tally.incomplete_calls += not complete
        self.broken = self.broken or not complete
        self._close(item, "completed" if complete else "incomplete")

    def _begin(self, kind: Kind, members: bytes) -> OutputItem:
        index = len(self.items)
        item_id = output_item_id(_PREFIX[kind], self._asked.request_id, index).encode()
        head = b'{"type":"%b","id":"%b"' % (kind.encode(), item_id)
        if members:
            head += b"," + members
        place = b'"item_id":"%b","output_index":%d' % (item_id, index)
        if kind in ("reasoning", "message"):
            place += b',"content_index":0'
        item = OutputItem(kind, index, item_id, head, place)
        item.sealed = self._sealed and kind == "reasoning"
        self.items.append(item)
        self._watcher.opened(item)
        return item

    def _close(self, item: OutputItem, status: Status) -> None:
        item.status = status
        self._watcher.closed(item)
