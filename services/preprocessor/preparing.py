"""From a body to a stream: the steps of a request before any engine work, in order.

Parse, strict preflight, model, prompt, ids, constraint with its compile checks, sampling. The steps
are `toolrail.openai`'s; here they get threads, tokenizers and other processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import anyio
import anyio.to_thread

from services.preprocessor.constraining import Constraining, Settled, TagCheck
from services.preprocessor.fitting import fitting_ids
from services.preprocessor.metrics import PreprocessorMetrics
from services.preprocessor.models import Models, ServedModel
from toolrail.anthropic.request import check_count, check_messages
from toolrail.api_keys import allowed
from toolrail.directory import Directory
from toolrail.errors import CallerError
from toolrail.messages import Api, Sampling
from toolrail.openai.chat import ChatRequest, check_chat
from toolrail.openai.constraint import Setting
from toolrail.openai.prompt import render_prompt
from toolrail.openai.refusals import shortened
from toolrail.openai.responses import check_responses
from toolrail.openai.sampling import resolve

_SMALL_BODY_BYTES: Final = 32 << 10
"""Parsed in less time than a thread takes to start."""

_THREADS: Final = 4
"""Parsing and rendering hold the interpreter: more threads would not do more."""

_PARSE: Final[Mapping[Api, Callable[[bytes], ChatRequest]]] = {
    "chat": check_chat,
    "responses": check_responses,
    "messages": check_messages,
}
"""What reads the body of each API: all of them end in one form."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request, ready for an engine."""

    request: ChatRequest
    model: ServedModel
    prompt_token_ids: tuple[int, ...]
    settled: Settled
    sampling: Sampling


class Preparing:
    """Prepares requests; one for a process, any number of requests at once."""

    def __init__(
        self,
        directory: Directory,
        models: Models,
        tags: TagCheck,
        metrics: PreprocessorMetrics,
        *,
        check_budget_s: float,
    ) -> None:
        self._directory = directory
        self._models = models
        self._constraining = Constraining(tags, self._in_thread, check_budget_s)
        self._metrics = metrics
        self._threads = anyio.CapacityLimiter(_THREADS)

    async def prepare(
        self, body: bytes, api: Api = "chat", *, models: Sequence[str] | None = None
    ) -> Prepared:
        """The request in `body`, ready for an engine; `models` are those the caller may ask for.

        Raises:
            CallerError: the request is at fault.
            FaultError: we are, or a peer is.
        """
        request, model, prompt, ids = await self._prompted(body, _PARSE[api], models)
        starts_in = model.dialect.starts_in(prompt)
        sampling = resolve(request.wishes, model.card, len(ids))
        setting = Setting(
            model.deployment,
            model.dialect,
            model.card.tool_parser,
            model.card.reasoning_parser,
            starts_in,
        )
        with self._metrics.stage("constrain"):
            settled = await self._constraining.settled(request, setting)
        return Prepared(request, model, tuple(ids), settled, sampling)

    async def count(self, body: bytes, api: Api, *, models: Sequence[str] | None = None) -> int:
        """How many tokens the prompt of the request in `body` has. Raises as `prepare` does."""
        parse = check_count if api == "messages" else _PARSE[api]
        _, _, _, ids = await self._prompted(body, parse, models)
        return len(ids)

    async def _prompted(
        self, body: bytes, parse: Callable[[bytes], ChatRequest], models: Sequence[str] | None
    ) -> tuple[ChatRequest, ServedModel, str, Sequence[int]]:
        """The request, its model, its prompt and the prompt's ids."""
        with self._metrics.stage("parse"):
            request = await self._parse(body, parse)
        if not allowed(request.model, models):
            raise CallerError(
                f"This API key may not use the model '{shortened(request.model)}'.",
                param="model",
                code="model_not_allowed",
                status=403,
            )
        model = await self._model(request.model)
        with self._metrics.stage("render"):
            prompt = await self._render(request, model)
        with self._metrics.stage("tokenize"):
            ids = await fitting_ids(
                model.tokenizer, prompt, model.card, max_bytes=model.max_prompt_bytes
            )
        return request, model, prompt, ids

    async def _parse(self, body: bytes, parse: Callable[[bytes], ChatRequest]) -> ChatRequest:
        if len(body) <= _SMALL_BODY_BYTES:
            return parse(body)
        return await self._in_thread(partial(parse, body))

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

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """The result of `work`; a caller whose deadline passes does not wait for it."""
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)
