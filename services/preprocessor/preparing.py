"""From a body to a stream: the steps of a request before any engine work, in order.

Parse, strict preflight, model, prompt, ids, constraint with its compile checks, sampling. The steps
are `toolrail.openai`'s; here they get threads, tokenizers and other processes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

import anyio
import anyio.to_thread

from services.preprocessor.constraining import Constraining, Settled, TagCheck
from services.preprocessor.fitting import fitting_ids
from services.preprocessor.metrics import PreprocessorMetrics
from services.preprocessor.models import Models, ServedModel
from services.preprocessor.tracing import preflight
from toolrail.anthropic.request import check_count, check_messages
from toolrail.api_keys import allowed
from toolrail.directory import Directory
from toolrail.errors import CallerError, NoRespondersError
from toolrail.messages import Api, Sampling
from toolrail.openai.chat import ChatRequest, check_chat
from toolrail.openai.constraint import Setting
from toolrail.openai.prompt import render_prompt
from toolrail.openai.refusals import shortened
from toolrail.openai.responses.request import read_responses, responses_request
from toolrail.openai.sampling import CONTEXT_EXCEEDED, resolve
from toolrail.openai.truncation import room_for_answer, shortened_requests
from toolrail.stored import StoredResponses

_SMALL_BODY_BYTES: Final = 32 << 10
"""Parsed in less time than a thread takes to start."""

_THREADS: Final = 4
"""Parsing and rendering hold the interpreter: more threads would not do more."""

_CONVERSATION: Final = "messages"
"""What templates and lengths call the conversation; a request's API may call it otherwise."""

_PARSE: Final[Mapping[Api, Callable[[bytes], ChatRequest]]] = {
    "chat": check_chat,
    "messages": check_messages,
}
"""What reads the body of an API that needs nothing beside it: all of them end in one form."""

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

    def __init__(  # noqa: PLR0913 (what is shared by all requests, each given once)
        self,
        directory: Directory,
        models: Models,
        tags: TagCheck,
        metrics: PreprocessorMetrics,
        stored: StoredResponses,
        *,
        check_budget_s: float,
        without_hosted: bool = False,
    ) -> None:
        """`without_hosted`: see `read_responses`."""
        self._read_responses = partial(read_responses, without_hosted=without_hosted)
        self._stored = stored
        self._directory = directory
        self._models = models
        self._constraining = Constraining(tags, self._in_thread, check_budget_s)
        self._metrics = metrics
        self._threads = anyio.CapacityLimiter(_THREADS)

    async def prepare(
        self,
        body: bytes,
        api: Api = "chat",
        *,
        models: Sequence[str] | None = None,
        owner: str = "",
    ) -> Prepared:
        """The request in `body`, ready for an engine.

        `models` are those the caller may ask for, `owner` is whose stored responses it may follow.

        Raises:
            CallerError: the request is at fault.
            FaultError: we are, or a peer is.
        """
        if api == "responses":
            reading = self._response(body, owner)
        else:
            reading = self._parse(body, _PARSE[api])
        request, model, prompt, ids = await self._prompted(reading, body, models)
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
        _, _, _, ids = await self._prompted(self._parse(body, parse), body, models)
        return len(ids)

    async def _prompted(
        self, reading: Awaitable[ChatRequest], body: bytes, models: Sequence[str] | None
    ) -> tuple[ChatRequest, ServedModel, str, Sequence[int]]:
        """The request, its model, its prompt and the prompt's ids."""
        with self._metrics.stage("parse"), preflight():
            request = await reading
        if not allowed(request.model, models):
            raise CallerError(
                f"This API key may not use the model '{shortened(request.model)}'.",
                param="model",
                code="model_not_allowed",
                status=403,
            )
        model = await self._model(request.model)
        if (control := model.control_tokens) is not None:
            await self._parse(body, partial(control.refuse, request))
        try:
            return request, model, *await self._fitting(request, model)
        except CallerError as error:
            if request.truncate and error.code == CONTEXT_EXCEEDED:
                found = await self._shortened(request, model)
                if found is not None:
                    return found
            if error.param != _CONVERSATION:
                raise
            param = request.origin.conversation
            raise CallerError(
                error.message, param=param, code=error.code, status=error.status
            ) from error

    async def _fitting(self, request: ChatRequest, model: ServedModel) -> tuple[str, list[int]]:
        """The prompt and its ids."""
        with self._metrics.stage("render"):
            prompt = await self._render(request, model)
        with self._metrics.stage("tokenize"):
            ids = await fitting_ids(
                model.tokenizer, prompt, model.card, max_bytes=model.max_prompt_bytes
            )
        return prompt, ids

    async def _shortened(
        self, request: ChatRequest, model: ServedModel
    ) -> tuple[ChatRequest, ServedModel, str, Sequence[int]] | None:
        """The request without the fewest of its oldest messages; None: not even the last fits.

        One rendering for each halving of the conversation.
        """
        shorter = shortened_requests(request)
        most = model.card.context_length - room_for_answer(request, model.card)
        found = None
        low, high = 0, len(shorter)
        while low < high:
            middle = (low + high) // 2
            fits = None
            try:
                fits = await self._fitting(shorter[middle], model)
            except CallerError as error:
                if error.code != CONTEXT_EXCEEDED:
                    raise
            if fits is None or len(fits[1]) > most:
                low = middle + 1
            else:
                high = middle
                found = shorter[middle], model, *fits
        return found

    async def _response(self, body: bytes, owner: str) -> ChatRequest:
        """A Responses request, with what was stored and it refers to."""
        draft = await self._parse(body, self._read_responses)
        chain: tuple[str, ...] = ()
        if draft.previous is not None:
            chain = await self._stored.chain(draft.previous, owner)
        past = await self._stored.past(chain, draft.references, owner)
        request = await self._in_thread(partial(responses_request, draft, past))
        return replace(request, origin=replace(request.origin, chain=chain))

    async def _parse(self, body: bytes, parse: Callable[[bytes], T]) -> T:
        if len(body) <= _SMALL_BODY_BYTES:
            return parse(body)
        return await self._in_thread(partial(parse, body))

    async def _model(self, name: str) -> ServedModel:
        card = self._directory.card(name)
        if card is None and self._directory.was_served(name):
            raise NoRespondersError("no worker serves the model now, try again shortly")
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
