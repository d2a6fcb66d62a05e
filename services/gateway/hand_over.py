"""Handing a request to a preprocessor, and hearing who took it."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import Final

import anyio
import msgspec

from services.gateway.failures import failure
from toolrail.bus import subjects
from toolrail.bus.port import Bus
from toolrail.directory import Directory
from toolrail.errors import DeadlineError, DecodeError, FaultError
from toolrail.messages import Prepare, Reply, decode_reply, encode

log: Final = logging.getLogger(__name__)

_ENVELOPE_BYTES: Final = 4096
"""What a message may need beside the body."""


async def hand_over(bus: Bus, directory: Directory, prepare: Prepare, *, timeout_s: float) -> Reply:
    """The answer of a preprocessor to `prepare`, or the failure to get one. Never raises a fault.

    It is asked once more, elsewhere, if a preprocessor died while it was asked: preparing is
    idempotent by request id. A slow one is not asked twice, since it may just be overloaded.
    """
    try:
        if len(prepare.body) + _ENVELOPE_BYTES > bus.max_payload_bytes:
            return await _through_blob(bus, directory, prepare, timeout_s)
        return await _ask(bus, directory, prepare, timeout_s)
    except FaultError as error:
        # What the bus says is for the log: a client has no use for the names of subjects.
        reason = {"request_id": prepare.request_id, "reason": str(error)}
        log.warning("a request could not be handed over", extra=reason)
        if isinstance(error, DecodeError):
            return failure("internal", "internal error", request_id=prepare.request_id)
        text = "no service could take the request, try again shortly"
        return failure("unavailable", text, request_id=prepare.request_id, retryable=True)


async def _through_blob(
    bus: Bus, directory: Directory, prepare: Prepare, timeout_s: float
) -> Reply:
    name = f"body.{prepare.request_id}"
    with anyio.move_on_after(timeout_s) as scope:
        await bus.blobs.put(name, prepare.body, ttl_s=2 * timeout_s)
    if scope.cancelled_caught:
        raise DeadlineError("storing the body took too long")
    try:
        return await _ask(
            bus, directory, msgspec.structs.replace(prepare, body=b"", body_blob=name), timeout_s
        )
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(timeout_s), suppress(FaultError):
            await bus.blobs.delete(name)


async def _ask(bus: Bus, directory: Directory, prepare: Prepare, timeout_s: float) -> Reply:
    payload = encode(prepare)
    there = _preprocessors(directory)
    try:
        return decode_reply(await _request(bus, payload, prepare.deadline_ms, timeout_s))
    except DeadlineError:
        if there <= _preprocessors(directory):
            raise
    log.warning("a preprocessor died, asking another", extra={"request_id": prepare.request_id})
    return decode_reply(await _request(bus, payload, prepare.deadline_ms, timeout_s))


async def _request(bus: Bus, payload: bytes, deadline_ms: int, timeout_s: float) -> bytes:
    left_s = deadline_ms / 1000 - time.time()
    if left_s <= 0:
        raise DeadlineError("the deadline of the request has passed")
    return await bus.request(subjects.PREPARE, payload, timeout_s=min(timeout_s, left_s))


def _preprocessors(directory: Directory) -> frozenset[tuple[str, int]]:
    """The live ones; a restarted one is another, also under the same name."""
    return frozenset((i.instance, i.pid) for i in directory.instances("preprocessor"))
