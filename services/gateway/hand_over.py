"""Handing a request to a preprocessor, and hearing who took it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import anyio
import msgspec

from services.gateway.failures import failure
from services.gateway.peers import Peers
from toolrail.bus import subjects
from toolrail.bus.port import Bus
from toolrail.directory import Directory
from toolrail.errors import DeadlineError, DecodeError, FaultError
from toolrail.messages import Prepare, Reply, decode_reply, encode

log: Final = logging.getLogger(__name__)

_ENVELOPE_BYTES: Final = 4096
"""What a message may need beside the body."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """How to reach preprocessors.

    `next_term`: makes sure that whom a dead one handed the stream to is not listened to.
    """

    bus: Bus
    directory: Directory
    peers: Peers
    timeout_s: float
    next_term: Callable[[], int]

    async def __call__(self, prepare: Prepare) -> Reply:
        """The answer of a preprocessor, or the failure to get one. Never raises a fault.

        It is asked once more, elsewhere, if a preprocessor died while it was asked. A slow one is
        not asked twice, since it may just be overloaded.
        """
        try:
            if len(prepare.body) + _ENVELOPE_BYTES > self.bus.max_payload_bytes:
                return await self._through_blob(prepare)
            return await self._ask(prepare)
        except FaultError as error:
            # What the bus says is for the log: a client has no use for the names of subjects.
            reason = {"request_id": prepare.request_id, "reason": str(error)}
            log.warning("a request could not be handed over", extra=reason)
            if isinstance(error, DecodeError):
                return failure("internal", "internal error", request_id=prepare.request_id)
            text = "no service could take the request, try again shortly"
            return failure("unavailable", text, request_id=prepare.request_id, retryable=True)

    async def _through_blob(self, prepare: Prepare) -> Reply:
        name, blobs = f"body.{prepare.request_id}", self.bus.blobs
        with anyio.move_on_after(self.timeout_s) as scope:
            await blobs.put(name, prepare.body, ttl_s=2 * self.timeout_s)
        if scope.cancelled_caught:
            raise DeadlineError("storing the body took too long")
        try:
            return await self._ask(msgspec.structs.replace(prepare, body=b"", body_blob=name))
        finally:
            with (
                anyio.CancelScope(shield=True),
                anyio.move_on_after(self.timeout_s),
                suppress(FaultError),
            ):
                await blobs.delete(name)

    async def _ask(self, prepare: Prepare) -> Reply:
        there = _preprocessors(self.directory)
        answer: bytes | None = None
        with self.peers.preprocessors.question():
            try:
                answer = await self._request(prepare)
            except DeadlineError:
                if there <= _preprocessors(self.directory):
                    raise
        if answer is not None:
            return decode_reply(answer)
        facts = {"request_id": prepare.request_id}
        log.warning("a preprocessor died, asking another", extra=facts)
        again = msgspec.structs.replace(prepare, term=self.next_term())
        return decode_reply(await self._request(again))

    async def _request(self, prepare: Prepare) -> bytes:
        left_s = prepare.deadline_ms / 1000 - time.time()
        if left_s <= 0:
            raise DeadlineError("the deadline of the request has passed")
        timeout_s = min(self.timeout_s, left_s)
        preprocessors = self.peers.preprocessors
        return await preprocessors.request(subjects.PREPARE, encode(prepare), timeout_s=timeout_s)


def _preprocessors(directory: Directory) -> frozenset[tuple[str, int]]:
    """The live ones; a restarted one is another, also under the same name."""
    return frozenset((i.instance, i.pid) for i in directory.instances("preprocessor"))
