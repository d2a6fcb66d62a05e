"""Taking requests from gateways, handing them to a postprocessor, and answering for both."""

from __future__ import annotations

import logging
import time
from typing import Final

import anyio
import msgspec

from services.preprocessor import tracing
from services.preprocessor.failures import bug_failed, caller_failed, fault_failed
from services.preprocessor.handing import Postprocessors
from services.preprocessor.metrics import PreprocessorMetrics
from services.preprocessor.preparing import Prepared, Preparing
from toolrail.bus.port import Bus
from toolrail.errors import CallerError, DeadlineError, FaultError
from toolrail.messages import (
    Accepted,
    Failed,
    Output,
    Prepare,
    Reply,
    Stream,
    decode_prepare,
    encode,
    encode_token_ids,
)
from toolrail.openai.responses.echo import encoded
from toolrail.telemetry import Telemetry

log: Final = logging.getLogger(__name__)

_ENVELOPE_BYTES: Final = 1024

_PROMPT_KEPT_S: Final = 3600.0
"""A prompt that travels as a blob goes by itself after this, or at its request's deadline."""


class Intake:
    """Answers `Prepare` messages."""

    def __init__(
        self,
        bus: Bus,
        preparing: Preparing,
        metrics: PreprocessorMetrics,
        telemetry: Telemetry,
        postprocessors: Postprocessors,
    ) -> None:
        self._bus = bus
        self._preparing = preparing
        self._metrics = metrics
        self._telemetry = telemetry
        self._postprocessors = postprocessors

    async def answer(self, payload: bytes) -> bytes:
        """The encoded reply to an encoded `Prepare`: `Accepted` or `Failed`, always one of them."""
        try:
            prepare = decode_prepare(payload)
        except FaultError as error:
            return encode(fault_failed("", error))
        tracing.taken(prepare)
        reply = await self._reply(prepare)
        if isinstance(reply, Failed):
            tracing.failed(reply)
            self._metrics.requests.labels(reply.code).inc()
        return encode(reply)

    async def _reply(self, prepare: Prepare) -> Reply:
        """The one boundary where exceptions become failures."""
        try:
            left_s = _seconds_left(prepare)
            with anyio.move_on_after(left_s):
                return await self._take(prepare)
            raise DeadlineError("the deadline passed while the request was prepared")
        except CallerError as error:
            return caller_failed(prepare.request_id, error)
        except FaultError as error:
            log.warning(
                "request not prepared",
                extra={"request_id": prepare.request_id, "code": error.code},
            )
            return fault_failed(prepare.request_id, error)
        except Exception:
            log.exception("bug while preparing", extra={"request_id": prepare.request_id})
            return bug_failed(prepare.request_id)

    async def _take(self, prepare: Prepare) -> Reply:
        body = await self._body(prepare)
        if prepare.count_only:
            tokens = await self._preparing.count(body, prepare.api, models=prepare.models)
            return Accepted(request_id=prepare.request_id, instance="", prompt_tokens=tokens)
        prepared = await self._preparing.prepare(
            body, prepare.api, models=prepare.models, owner=prepare.owner
        )
        with self._metrics.stage("hand_over"):
            return await self._hand_over(prepare, prepared)

    async def _body(self, prepare: Prepare) -> bytes:
        if prepare.body_blob is None:
            return prepare.body
        try:
            return await self._bus.blobs.get(prepare.body_blob)
        except KeyError as error:
            raise FaultError("the request's body is gone") from error

    async def _hand_over(self, prepare: Prepare, prepared: Prepared) -> Reply:
        stream = _stream(prepare, prepared)
        payload = encode(stream)
        blob = None
        # With room for the envelope of the answer that holds it.
        room = self._bus.max_payload_bytes - _ENVELOPE_BYTES
        if len(payload) > room:
            blob = f"prompt.{prepare.request_id}"
            kept_s = min(_PROMPT_KEPT_S, _seconds_left(prepare))
            ids = encode_token_ids(stream.prompt_token_ids)
            await self._bus.blobs.put(blob, ids, ttl_s=kept_s)
            stream = msgspec.structs.replace(stream, prompt_token_ids=(), prompt_blob=blob)
            payload = encode(stream)
        told = len(_echo(prepared)) + len(prepared.settled.enforcement)
        if max(len(payload), told) > room:
            raise CallerError(
                "The tools and formats of this request are too large for this deployment.",
                param="tools",
                code="string_above_max_length",
            )
        reply, payload = await self._postprocessors.take(stream, left_s=_seconds_left(prepare))
        if isinstance(reply, Failed):
            if blob is not None:
                await self._bus.blobs.delete(blob)
            return reply
        self._metrics.accepted(prepared.settled, prepared.request, prepared.model)
        tokens = len(prepared.prompt_token_ids)
        tracing.accepted(prepared.request, prepared.settled, tokens, self._telemetry.content)
        accepted = _accepted(reply, stream, prepared, payload)
        if len(encode(accepted)) > self._bus.max_payload_bytes:
            return msgspec.structs.replace(accepted, handed=None)
        return accepted


def _seconds_left(prepare: Prepare) -> float:
    if not prepare.deadline_ms:
        return float("inf")
    left_s = prepare.deadline_ms / 1000 - time.time()
    if left_s <= 0:
        raise DeadlineError("the deadline of the request has passed")
    return left_s


def _stream(prepare: Prepare, prepared: Prepared) -> Stream:
    request, constraint = prepared.request, prepared.settled.constraint
    wishes = request.wishes
    return Stream(
        request_id=prepare.request_id,
        deadline_ms=prepare.deadline_ms,
        model=prepared.model.card.name,
        card=prepared.model.card_hash,
        prompt_token_ids=prepared.prompt_token_ids,
        prompt_tokens=len(prepared.prompt_token_ids),
        num_choices=request.num_choices,
        sampling=prepared.sampling,
        guidance=constraint.guidance,
        parse=constraint.parse,
        output=Output(
            stop=wishes.stop,
            include_stop=wishes.include_stop,
            top_logprobs=wishes.top_logprobs,
            max_calls=_fewest(constraint.max_calls, request.max_calls),
            checks=constraint.checks,
        ),
        reply_subject=prepare.reply_subject,
        owner=prepare.owner,
        weight=prepare.weight,
        term=prepare.term,
    )


def _accepted(reply: Accepted, stream: Stream, prepared: Prepared, handed: bytes) -> Accepted:
    """The postprocessor's `Accepted`, with what the gateway must know of the request."""
    request = prepared.request
    return msgspec.structs.replace(
        reply,
        model=stream.model,
        prompt_tokens=stream.prompt_tokens,
        num_choices=stream.num_choices,
        stream=request.stream,
        include_usage=request.include_usage,
        handed=handed,
        enforcement=prepared.settled.enforcement,
        forced_call=request.choice.mode if request.choice.mode in ("required", "named") else "",
        echo=_echo(prepared),
        namespaces=dict(request.origin.namespaces),
        chain=request.origin.chain,
    )


def _echo(prepared: Prepared) -> bytes:
    fields, sampling = prepared.request.origin.echo, prepared.sampling
    if not fields:
        return b""
    return encoded(fields, temperature=sampling.temperature, top_p=sampling.top_p)


def _fewest(*bounds: int | None) -> int | None:
    said = [bound for bound in bounds if bound is not None]
    return min(said) if said else None
