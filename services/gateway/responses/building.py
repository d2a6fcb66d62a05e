"""A response while it grows, streamed or not: deltas in, items and the final object out."""

from __future__ import annotations

from collections.abc import Sequence

from services.gateway.answer import Head, Tally, finish_reason
from services.gateway.objects import TokenLogprob
from services.gateway.responses.attribution import Attribution
from services.gateway.responses.body import Asked, ResponseBody, Status
from services.gateway.responses.items import OutputItem, OutputItems, Watcher
from toolrail.events import ArgumentsDelta, Event, ReasoningDelta, TextDelta
from toolrail.messages import ChoiceEnd, EventDelta, Failed, Usage


class ResponseBuilding:
    """Gathers what becomes of one response.

    Attributes:
        tally: what it came to so far.
        begun: the object before there is any output.
        response: the final object, empty before there is one.
    """

    def __init__(self, head: Head, asked: Asked, watcher: Watcher) -> None:
        self.tally = Tally()
        self.response = b""
        self._body = ResponseBody(head, asked.echo)
        self.begun = self._body.json("in_progress")
        self._attribution = Attribution()
        self._items = OutputItems(asked, watcher, self.tally)
        self._end = ChoiceEnd("stop")

    def take(self, delta: EventDelta) -> None:
        """More of it; the delta did not fail. O(text in it)."""
        if delta.logprobs is not None:
            self._attribution.add(delta.logprobs)
        for event in delta.events:
            self._items.take(event, self._logprobs(event))
        if delta.end is not None:
            self._end = delta.end
            self._items.finish(cut=delta.end.finish == "length")

    def finish(self, usage: Usage) -> Status:
        """It is over: what `response` says of it. A call that broke off leaves it incomplete."""
        self.tally.usage = usage
        self.tally.finish_reasons.append(finish_reason(self._end, self.tally.complete_calls))
        cut = self._end.finish == "length"
        status: Status = "incomplete" if cut or self._items.broken else "completed"
        reason = "max_output_tokens" if cut else ""
        self.response = self._body.json(status, self._output(), reason=reason, usage=usage)
        return status

    def fail(self, failed: Failed) -> None:
        """It ends here; what there is of it stays in the object."""
        for item in self._items.items:
            if item.status == "in_progress":
                item.status = "incomplete"
        self.response = self._body.json("failed", self._output(), failed=failed)

    def _output(self) -> list[bytes]:
        return [item.json() for item in self._items.items]

    def _logprobs(self, event: Event) -> Sequence[TokenLogprob]:
        if isinstance(event, TextDelta):
            return self._attribution.take(event.text)
        if isinstance(event, ReasoningDelta | ArgumentsDelta):
            self._attribution.skip(event.text)
        return ()


class _Nobody:
    def opened(self, item: OutputItem) -> None: ...

    def grew(self, item: OutputItem, text: str, logprobs: Sequence[TokenLogprob]) -> None: ...

    def closed(self, item: OutputItem) -> None: ...


class ResponseFold:
    """Gathers the deltas of a response that does not stream."""

    def __init__(self, head: Head, asked: Asked) -> None:
        self._building = ResponseBuilding(head, asked, _Nobody())
        self.tally = self._building.tally

    @property
    def response(self) -> bytes:
        """The final object; empty before there is one."""
        return self._building.response

    def feed(self, deltas: Sequence[EventDelta]) -> None:
        """Take more deltas. O(text in them)."""
        for delta in deltas:
            self._building.take(delta)
            if delta.usage is not None:
                self._building.finish(delta.usage)

    def body(self) -> bytes:
        """The whole object."""
        return self.response
