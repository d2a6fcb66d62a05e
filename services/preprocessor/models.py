"""What is needed of a served model, made once from its card: template, tokenizer, dialect."""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from services.preprocessor.fitting import max_prompt_bytes
from toolrail.chat_template import Budget, ChatTemplate
from toolrail.directory import Directory
from toolrail.errors import ConfigError, FaultError
from toolrail.families import Dialect, dialect
from toolrail.messages import ModelCard, encode
from toolrail.openai.control_tokens import ControlTokens
from toolrail.openai.habits import Habits, habits
from toolrail.openai.policy import Deployment
from toolrail.tokens import Tokenizer

log: Final = logging.getLogger(__name__)

_MAX_MODELS: Final = 16

_RETRY_S: Final = 10.0
"""How long a model that could not be loaded is not tried again: trying may take seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model as requests meet it.

    Attributes:
        card: what a worker announced.
        card_hash: of its content.
        template: its chat template.
        habits: what the template can read.
        tokenizer: its tokenizer.
        max_prompt_bytes: longest prompt that is worth tokenizing.
        dialect: what its output is made of.
        deployment: what its worker's flags say of tools.
        control_tokens: what requests may not bring; None: they may bring anything.
    """

    card: ModelCard
    card_hash: str
    template: ChatTemplate
    habits: Habits
    tokenizer: Tokenizer
    max_prompt_bytes: int
    dialect: Dialect
    deployment: Deployment
    control_tokens: ControlTokens | None = None


class Models:
    """The served models, made when first asked for; the longest unused is forgotten first."""

    def __init__(
        self,
        directory: Directory,
        *,
        template_timeout_s: float,
        turn_grammar: bool = True,
        refuse_control_tokens: bool = False,
    ) -> None:
        self._refuse_control_tokens = refuse_control_tokens
        self._directory = directory
        self._turn_grammar = turn_grammar
        self._template_timeout_s = template_timeout_s
        self._made: OrderedDict[bytes, ServedModel] = OrderedDict()
        self._failed: dict[bytes, tuple[float, str]] = {}
        self._making = anyio.Lock()

    async def get(self, card: ModelCard) -> ServedModel:
        """The model of `card`. Seconds the first time, for the tokenizer.

        Raises:
            FaultError: its files are gone, or cannot be used.
        """
        key = encode(msgspec.structs.replace(card, worker=""))
        if key not in self._made:
            async with self._making:
                if key not in self._made:
                    await self._load(key, card)
        self._made.move_to_end(key)
        return self._made[key]

    async def _load(self, key: bytes, card: ModelCard) -> None:
        now = anyio.current_time()
        self._failed = {k: known for k, known in self._failed.items() if now < known[0]}
        if key in self._failed:
            raise FaultError(self._failed[key][1])
        try:
            self._made[key] = await self._make(card)
        except FaultError as error:
            self._failed[key] = now + _RETRY_S, str(error)
            raise
        while len(self._made) > _MAX_MODELS:
            self._made.popitem(last=False)

    async def _make(self, card: ModelCard) -> ServedModel:
        try:
            source = await self._directory.chat_template_source(card)
            tokenizer = await self._directory.tokenizer(card)
        except KeyError as error:
            raise FaultError(f"a file of the model {card.name!r} is gone") from error
        except ValueError as error:
            raise FaultError(f"the tokenizer of {card.name!r} cannot be used: {error}") from error
        longest = await anyio.to_thread.run_sync(_longest_token, tokenizer)
        # Pinned to the engine's start, when its prefix cache was empty anyway.
        date = datetime.fromtimestamp(card.created_s, UTC)
        most = max_prompt_bytes(card, longest)
        budget = Budget(most, self._template_timeout_s)
        try:
            speaks = dialect(
                card.tool_parser, card.reasoning_parser, parser_version=card.parser_version
            )
            template = ChatTemplate(
                source,
                bos_token=card.bos_token,
                eos_token=card.eos_token,
                date=date.replace(hour=0, minute=0, second=0),
                budget=budget,
            )
        except ConfigError as error:
            raise FaultError(f"the model {card.name!r} cannot be served: {error}") from error
        reads = await anyio.to_thread.run_sync(habits, template, speaks.prompt)
        return ServedModel(
            card=card,
            card_hash=hashlib.blake2b(encode(card), digest_size=8).hexdigest(),
            template=template,
            habits=reads,
            tokenizer=tokenizer,
            max_prompt_bytes=most,
            dialect=speaks,
            deployment=Deployment.of(
                speaks.family,
                options=card.structural_tag,
                exclude_tools_when_none=card.exclude_tools_when_tool_choice_none,
                turn_grammar=self._turn_grammar,
                argument_validation=card.argument_validation,
            ),
            control_tokens=control_tokens(tokenizer, speaks)
            if self._refuse_control_tokens
            else None,
        )


def control_tokens(tokenizer: Tokenizer, speaks: Dialect) -> ControlTokens:
    """The special tokens, and the control strings of the dialect that are tokens of their own."""
    markers = {marker.text for marker in speaks.markers}
    texts = {*tokenizer.special_tokens, *(markers & tokenizer.added_tokens.keys())}
    return ControlTokens(texts, tokenizer.looked_at)


def _longest_token(tokenizer: Tokenizer) -> int:
    return max(map(len, tokenizer.token_bytes()), default=1) or 1
