"""What an API is to the rest of this service: its shapes, and nothing of how a request lives.

A surface is made for one request. `answering` calls it in this order: `response_id`; when the
first delta came, `writer` or `fold`; then deltas, as they come; `settle` when the last one is in
and before its bytes leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from services.gateway.answer import Head, Tally
from toolrail.messages import Accepted, Api, EventDelta, Failed


class EventWriter(Protocol):
    """Writes the stream of one request.

    Attributes:
        tally: what was written so far, for metrics.
        failed: the failure that ended it, if one did.
        done: nothing may follow what was written.
    """

    tally: Tally
    failed: Failed | None
    done: bool

    def write(self, deltas: Sequence[EventDelta]) -> bytes:
        """The events of `deltas`, joined into one body write; may be empty. O(text in them).

        A delta that failed, or that has the usage, is the last.
        """
        ...

    def keep_alive(self) -> bytes:
        """What is sent after a silence."""
        ...

    def error(self, failed: Failed) -> bytes:
        """What ends the stream when the request fails here, whatever was written before."""
        ...


class ObjectFold(Protocol):
    """Gathers the deltas of a request that does not stream. `tally` is complete after `body`."""

    tally: Tally

    def feed(self, deltas: Sequence[EventDelta]) -> None:
        """Take more deltas; none of them failed. O(events in them)."""
        ...

    def body(self) -> bytes:
        """The whole object as JSON; called once, after the delta that has the usage."""
        ...


class Surface(Protocol):
    """One API's shapes for one request."""

    @property
    def api(self) -> Api:
        """What the preprocessor must take the body for."""
        ...

    def response_id(self, request_id: str) -> str:
        """The `id` of the answer. Holds the request id, so that a report names the request."""
        ...

    def writer(self, accepted: Accepted, head: Head) -> EventWriter:
        """The writer of a streamed answer."""
        ...

    def fold(self, accepted: Accepted, head: Head) -> ObjectFold:
        """The fold of an answer that is not streamed."""
        ...

    async def settle(
        self, accepted: Accepted, answer: EventWriter | ObjectFold
    ) -> tuple[bytes, bytes] | None:
        """Do what must be done before the client sees the end, such as storing the answer.

        Where that turns out otherwise than the answer says: what of its bytes to replace by what.
        Not called when the request failed before its end, or its client left.
        """
        ...
