"""A hand-over, from its bytes to `Accepted` or `Failed`.

Everything that can be wrong with it is found before it is accepted: the parsers are built, the
tokenizer is loaded, and its jobs are in the queue.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import anyio
import msgspec

from services.postprocessor.admission import Admission
from services.postprocessor.checking import Checker, InputChecker
from services.postprocessor.choice import Choice, Plan
from services.postprocessor.clock import Clock
from services.postprocessor.failures import failure
from services.postprocessor.stop import StopStrings
from services.postprocessor.stream import RequestStream
from services.postprocessor.streams import Streams
from services.postprocessor.watching import Watching
from toolrail import families
from toolrail.bus import subjects
from toolrail.errors import ConfigError, DecodeError, FaultError, QueueFullError
from toolrail.messages import (
    Accepted,
    Cancel,
    Failed,
    FailureCode,
    Job,
    ModelCard,
    Reply,
    Resend,
    Stream,
    decode_stream,
    encode,
)
from toolrail.service import Runtime
from toolrail.settings import PostprocessorSettings
from toolrail.tokens import Tokenizer
from toolrail.tools import Tool

log: Final = logging.getLogger(__name__)

_TELL_S: Final = 2.0
"""How long a worker may take to hear that a stream has another owner."""


class RefusedError(Exception):
    """The hand-over cannot be taken."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.code)
        self.failed = failed


class Intake:
    """Takes hand-overs into `streams`."""

    def __init__(
        self,
        runtime: Runtime[PostprocessorSettings],
        streams: Streams,
        watching: Watching,
        admission: Admission,
        clock: Clock,
    ) -> None:
        self._bus = runtime.bus
        self._directory = runtime.directory
        self._settings = runtime.settings
        self._instance = runtime.instance
        self._streams = streams
        self._watching = watching
        self._jobs = admission.jobs
        self._clock = clock
        self._admission = admission
        self._opening: dict[str, anyio.Event] = {}

    async def take(self, payload: bytes) -> bytes:
        """The encoded answer to an encoded Stream."""
        try:
            stream = decode_stream(payload)
        except DecodeError as error:
            return encode(failure("", "internal", str(error)))
        return encode(await self._reply(stream))

    async def _reply(self, stream: Stream) -> Reply:
        request_id = stream.request_id
        with anyio.move_on_after(self._settings.hand_over_timeout_s):
            while (other := self._opening.get(request_id)) is not None:
                # The caller repeats itself; its first hand-over is still being taken.
                await other.wait()
        if self._streams.knows(request_id, stream.term):
            return self._accepted(request_id)
        try:
            self._opening[request_id] = opened = anyio.Event()
            try:
                await self._open(stream)
            finally:
                if self._opening.get(request_id) is opened:
                    del self._opening[request_id]
                opened.set()
        except RefusedError as refused:
            failed = refused.failed
            log.info("hand-over refused", extra={"request_id": request_id, "code": failed.code})
            self._watching.refuse(request_id, failed.code)
            if failed.code == "overloaded":
                again_s = self._streams.retry_after_s(stream.owner, self._clock.seconds())
                return msgspec.structs.replace(failed, retry_after_s=again_s)
            return failed
        return self._accepted(request_id)

    def _accepted(self, request_id: str) -> Accepted:
        return Accepted(
            request_id=request_id,
            instance=self._instance,
            control_subject=subjects.control(self._instance),
        )

    async def _open(self, stream: Stream) -> None:
        until = anyio.current_time() + self._settings.hand_over_timeout_s
        if stream.deadline_ms and self._clock.unix_ms() >= stream.deadline_ms:
            raise _refusal(stream, "deadline", "the deadline has passed")
        card = self._directory.card(stream.model)
        if card is None:
            raise _refusal(stream, "unavailable", f"no worker serves {stream.model!r} now")
        tokenizer = await self._tokenizer(stream, card)
        # No await from here to the table: the bound is exact.
        if self._streams.passed(stream.request_id, stream.term):
            # A preprocessor that had hung hands it over: nobody hears it, and its jobs are done.
            raise _refusal(stream, "unavailable", "a later owner has this stream")
        if (full := self._admission.full(stream)) is not None:
            raise _refusal(stream, "overloaded", full)
        if (former := self._streams.release(stream.request_id)) is not None:
            self._watching.release(stream.request_id)  # it comes back under a new term
            self._admission.leave(former)
        request = self._begun(stream, card, tokenizer)
        # Before the jobs: a free worker answers faster than the queue acknowledges.
        self._streams.add(request)
        if stream.started is not None:
            self._admission.adopt(request)
        if stream.term:
            await self._take_over(stream, request, until - anyio.current_time())
        if stream.started is not None or request.over:  # its client may have left meanwhile
            return
        at_once = self._admission.enter(request, self._clock.seconds())
        refusals = await self._queue(request, at_once, until - anyio.current_time())
        if refusals:
            self._streams.discard(request)
            self._admission.leave(request)
            self._jobs.withdraw(request.unwanted(None))
            cancel = Cancel(request_id=stream.request_id, reason="not accepted", term=stream.term)
            self._bus.publish_soon(subjects.cancel(stream.model), encode(cancel))
            raise _queue_refusal(stream, refusals)

    async def _take_over(self, stream: Stream, request: RequestStream, timeout_s: float) -> None:
        """Have all workers send it here from now on. Who does not answer is asked again later."""
        wants = request.inherit(stream.started or (), self._clock.seconds())
        reply_subject = subjects.tokens(self._instance)
        order = encode(Resend(reply_subject=reply_subject, wants=tuple(wants)))

        async def tell(worker: str) -> None:
            with suppress(FaultError):
                await self._bus.request(
                    subjects.control(worker), order, timeout_s=min(timeout_s, _TELL_S)
                )

        # Who had it before may live: a preprocessor that died had handed it over, and said nothing.
        self._admission.neighbours.let_go(stream.request_id, stream.term)
        async with anyio.create_task_group() as tasks:
            for card in self._directory.workers(stream.model):
                tasks.start_soon(tell, card.worker)
        self._watching.taken_over()

    async def _tokenizer(self, stream: Stream, card: ModelCard) -> Tokenizer:
        try:
            with anyio.fail_after(self._settings.hand_over_timeout_s):
                return await self._directory.tokenizer(card)
        except (KeyError, TimeoutError, FaultError) as error:
            message = "the model's tokenizer cannot be had now"
            raise _refusal(stream, "unavailable", message) from error
        except ValueError as error:
            raise _refusal(stream, "internal", "the model's tokenizer cannot be read") from error

    def _begun(self, stream: Stream, card: ModelCard, tokenizer: Tokenizer) -> RequestStream:
        try:
            family, choices = made(stream, card, tokenizer)
        except ConfigError as error:
            raise _refusal(stream, "invalid_request", str(error)) from error
        request = RequestStream(
            request_id=stream.request_id,
            model=stream.model,
            reply_subject=stream.reply_subject,
            prompt_tokens=len(stream.prompt_token_ids) or stream.prompt_tokens,
            deadline_ms=stream.deadline_ms,
        )
        request.owner, request.weight = stream.owner, stream.weight
        request.migration_limit = self._settings.migration_limit
        request.term = stream.term
        first = list(jobs(stream, subjects.tokens(self._instance)))
        request.begin(choices, first, self._clock.seconds())
        request.fails = stream.output.checks.fails
        self._watching.begin(stream, family)
        return request

    async def _queue(
        self, request: RequestStream, jobs: Sequence[Job], timeout_s: float
    ) -> list[FaultError]:
        """Put `jobs` on the work queue, inside the stream's span; what went wrong."""
        if not jobs:
            return []
        refusals: list[FaultError] = []

        async def put(job: Job) -> None:
            try:
                await self._jobs.put(job, timeout_s=timeout_s)
            except FaultError as error:
                about = {"request_id": job.request_id, "reason": str(error)}
                log.info("a job could not be queued", extra=about)
                refusals.append(error)

        with self._watching.inside(request.request_id):
            async with anyio.create_task_group() as tasks:
                for job in jobs:
                    tasks.start_soon(put, job)
        return refusals


def jobs(stream: Stream, reply_subject: str) -> Iterable[Job]:
    """One job per choice; a seeded request samples choice i with `seed + i`."""
    for choice in range(stream.num_choices):
        sampling = stream.sampling
        if sampling.seed is not None and choice:
            sampling = msgspec.structs.replace(sampling, seed=sampling.seed + choice)
        yield Job(
            request_id=stream.request_id,
            deadline_ms=stream.deadline_ms,
            choice=choice,
            model=stream.model,
            prompt_token_ids=stream.prompt_token_ids,
            prompt_blob=stream.prompt_blob,
            sampling=sampling,
            guidance=stream.guidance,
            reply_subject=reply_subject,
        )


def made(stream: Stream, card: ModelCard, tokenizer: Tokenizer) -> tuple[str, list[Choice]]:
    """The name of the family, and the choices with their parsers.

    Raises:
        ConfigError: no parser goes by a name in the spec, or the two names do not fit together.
    """
    spec = stream.parse
    dialect = families.dialect(
        spec.tool_parser, spec.reasoning_parser, parser_version=card.parser_version
    )
    plan = _plan(stream, card, tokenizer, [marker.text for marker in dialect.markers])
    family = dialect.family.name if dialect.family is not None else "none"
    return family, [Choice(plan, dialect.parser(spec)) for _ in range(stream.num_choices)]


def _plan(stream: Stream, card: ModelCard, tokenizer: Tokenizer, markers: Sequence[str]) -> Plan:
    # A marker may be made of several special tokens: `<|open|>think<|sep|>`.
    written = "\0".join(markers)
    keep = frozenset(text for text in tokenizer.special_tokens if text in written)
    kept = keep.union(markers)
    ends = {*card.eos_token_ids, *stream.sampling.stop_token_ids}
    spec, checks = stream.parse, stream.output.checks
    return Plan(
        tokenizer=tokenizer,
        output=stream.output,
        stop=StopStrings(stream.output.stop),
        keep=keep,
        ends=frozenset(token_id for token_id in ends if tokenizer.token(token_id) not in kept),
        markers=markers,
        tools=frozenset(tool.name for tool in spec.tools),
        customs=frozenset(tool.name for tool in spec.tools if tool.kind == "custom"),
        needy=frozenset(tool.name for tool in spec.tools if _needs_arguments(tool)),
        open_tools=frozenset(checks.open_tools),
        must_call=spec.tool_choice in ("required", "named"),
        reasons=spec.reasoning_parser is not None or spec.starts_in == "reasoning",
        checkers={tool.name: _checker(tool) for tool in spec.tools if tool.name in checks.tools},
        answer=None if checks.answer is None else Checker("", checks.answer),
    )


def _checker(tool: Tool) -> Checker | InputChecker:
    if tool.grammar is not None:
        return InputChecker(tool.name, tool.grammar)
    return Checker(tool.name, tool.parameters)


def _needs_arguments(tool: Tool) -> bool:
    return isinstance(tool.parameters, Mapping) and bool(tool.parameters.get("required"))


def _refusal(stream: Stream, code: FailureCode, message: str) -> RefusedError:
    return RefusedError(failure(stream.request_id, code, message))


def _queue_refusal(stream: Stream, refusals: Sequence[FaultError]) -> RefusedError:
    if any(isinstance(error, QueueFullError) for error in refusals):
        return _refusal(stream, "overloaded", "the queue of requests is full; try again")
    return _refusal(stream, "unavailable", "the queue of requests cannot be reached")
