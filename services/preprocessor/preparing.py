"""From a body to a stream: the steps of a request before any engine work, in order.

Parse, strict preflight, model, prompt, ids, constraint with its compile checks, sampling. The steps
are `toolrail.openai`'s; here they get threads, tokenizers and other processes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

import anyio
import anyio.to_thread

from services.preprocessor.fitting import fitting_ids
from services.preprocessor.metrics import PreprocessorMetrics
from services.preprocessor.models import Models, ServedModel
from toolrail.directory import Directory
from toolrail.errors import CallerError
from toolrail.messages import Sampling
from toolrail.openai.chat import ChatRequest, check_chat
from toolrail.openai.constraint import Constraint, Setting, settle
from toolrail.openai.prompt import render_prompt
from toolrail.openai.sampling import resolve
from toolrail.tools import StartsIn

_SMALL_BODY_BYTES: Final = 32 << 10
"""Parsed in less time than a thread takes to start."""

_THREADS: Final = 4
"""Parsing and rendering hold the interpreter: more threads would not do more."""

T = TypeVar("T")


class TagCheck(Protocol):
    """Whether the engine takes a tag."""

    async def check(self, tag_json: str) -> None:
        """Raises CallerError when it does not."""
        ...


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request, ready for an engine."""

    request: ChatRequest
    model: ServedModel
    prompt_token_ids: tuple[int, ...]
    constraint: Constraint
    sampling: Sampling


class Preparing:
    """Prepares requests; one for a process, any number of requests at once."""

    def __init__(
        self, directory: Directory, models: Models, tags: TagCheck, metrics: PreprocessorMetrics
    ) -> None:
        self._directory = directory
        self._models = models
        self._tags = tags
        self._metrics = metrics
        self._threads = anyio.CapacityLimiter(_THREADS)

    async def prepare(self, body: bytes) -> Prepared:
        """The request in `body`, ready for an engine.

        Raises:
            CallerError: the request is at fault.
            FaultError: we are, or a peer is.
        """
        with self._metrics.stage("parse"):
            request = await self._parse(body)
        model = await self._model(request.model)
        with self._metrics.stage("render"):
            prompt = await self._render(request, model)
        starts_in = model.dialect.starts_in(prompt)
        with self._metrics.stage("tokenize"):
            ids = await fitting_ids(
                model.tokenizer, prompt, model.card, max_bytes=model.max_prompt_bytes
            )
        sampling = resolve(request.wishes, model.card, len(ids))
        with self._metrics.stage("constrain"):
            constraint = await self._constrain(request, model, starts_in)
        return Prepared(request, model, tuple(ids), constraint, sampling)

    async def _parse(self, body: bytes) -> ChatRequest:
        if len(body) <= _SMALL_BODY_BYTES:
            return check_chat(body)
        return await self._in_thread(partial(check_chat, body))

    async def _model(self, name: str) -> ServedModel:
        card = self._directory.card(name)
        if card is None:
            raise CallerError(
                f"The model '{name}' does not exist: see /v1/models.",
                param="model",
                code="model_not_found",
                status=404,
            )
        return await self._models.get(card)

    async def _render(self, request: ChatRequest, model: ServedModel) -> str:
        return await self._in_thread(
            partial(
                render_prompt,
                request,
                model.template,
                model.habits,
                model.dialect.prompt,
                exclude_tools_when_none=model.deployment.exclude_tools_when_none,
            )
        )

    async def _constrain(
        self, request: ChatRequest, model: ServedModel, starts_in: StartsIn
    ) -> Constraint:
        settling = settle(
            request,
            Setting(
                model.deployment,
                model.dialect,
                model.card.tool_parser,
                model.card.reasoning_parser,
                starts_in,
            ),
        )
        try:
            tag = next(settling)
            while True:
                tag = settling.send(await self._verdict(tag))
        except StopIteration as settled:
            return settled.value

    async def _verdict(self, tag_json: str) -> CallerError | None:
        try:
            await self._tags.check(tag_json)
        except CallerError as refusal:
            return refusal
        return None

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """The result of `work`; a caller whose deadline passes does not wait for it."""
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)
