"""Handing a prepared stream to a postprocessor, and hearing who took it."""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from toolrail.bus import subjects
from toolrail.errors import DeadlineError
from toolrail.messages import TERM_STEP, Reply, Stream, decode_reply, encode
from toolrail.service.liveness import Asking

log: Final = logging.getLogger(__name__)


class Postprocessors:
    """All of them; whichever takes a stream answers for it. `asking` must be watched."""

    def __init__(self, asking: Asking, *, timeout_s: float) -> None:
        self._asking = asking
        self._timeout_s = timeout_s

    async def take(self, stream: Stream, *, left_s: float) -> tuple[Reply, bytes]:
        """The answer of one, and the stream as it was handed to it. Raises FaultError.

        Another is asked if one died meanwhile: it may be that the stream was its.
        """
        for term in range(stream.term, stream.term + TERM_STEP):
            payload = encode(msgspec.structs.replace(stream, term=term))
            timeout_s = min(self._timeout_s, left_s)
            with self._asking.question():
                answer = await self._asking.request(subjects.STREAM, payload, timeout_s=timeout_s)
                return decode_reply(answer), payload
            log.warning("a postprocessor died, asking another")
        raise DeadlineError("all postprocessors that were asked died")
