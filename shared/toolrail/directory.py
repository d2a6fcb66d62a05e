"""Who is there: the models that workers announce and the processes that are alive.

A view of the two registration buckets, kept current by watching them, and a bounded cache of the
tokenizers and templates that model cards name. Answers are immediate and may be a heartbeat old.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import anyio
import anyio.to_thread

from toolrail.bus.port import Bus, Subscription
from toolrail.errors import DecodeError
from toolrail.messages import Instance, ModelCard, decode_instance, decode_model_card

if TYPE_CHECKING:
    from toolrail.tokens import Tokenizer

log: Final = logging.getLogger("toolrail.directory")

_MAX_TOKENIZERS: Final = 8
_MAX_TEMPLATES: Final = 64
_MAX_NAMES: Final = 4096

_T = TypeVar("_T")


class Directory:
    """The registrations of one bus. Call `start` before asking anything."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._cards: dict[str, ModelCard] = {}
        self._instances: dict[str, Instance] = {}
        self._names: set[str] = set()
        self._watches: list[Subscription] = []
        self._tokenizers: _Cache[Tokenizer] = _Cache(_MAX_TOKENIZERS)
        self._templates: _Cache[str] = _Cache(_MAX_TEMPLATES)

    async def start(self) -> None:
        """Know what is registered now, and follow it."""
        self._watches.append(await self._bus.models.watch(self._card_changed))
        self._watches.append(await self._bus.instances.watch(self._instance_changed))

    async def stop(self) -> None:
        """Follow no longer."""
        while self._watches:
            await self._watches.pop().stop()

    def workers(self, name: str) -> list[ModelCard]:
        """The cards of all workers that serve `name`, newest first."""
        found = [card for card in self._cards.values() if card.name == name]
        return sorted(found, key=lambda card: (-card.created_s, card.worker))

    def card(self, name: str) -> ModelCard | None:
        """The newest card of the model served as `name`; None when no worker serves it."""
        workers = self.workers(name)
        return workers[0] if workers else None

    def was_served(self, name: str) -> bool:
        """Whether a worker has served `name` since this process started: one may come back."""
        return name in self._names

    def cards(self) -> list[ModelCard]:
        """The newest card of every served name, by name."""
        newest: dict[str, ModelCard] = {}
        for name in sorted({card.name for card in self._cards.values()}):
            newest[name] = self.workers(name)[0]
        return list(newest.values())

    def instances(self, service: str) -> list[Instance]:
        """The live instances of `service`, by name; also those not ready or draining."""
        found = [known for known in self._instances.values() if known.service == service]
        return sorted(found, key=lambda known: known.instance)

    def servable(self, name: str) -> bool:
        """Whether a request for `name` would find a service at every hop."""
        return self.card(name) is not None and all(
            any(known.ready and not known.draining for known in self.instances(service))
            for service in ("preprocessor", "postprocessor")
        )

    async def tokenizer(self, card: ModelCard) -> Tokenizer:
        """The tokenizer of `card`, loaded once. Raises KeyError when its file is gone."""
        # Only who asks for a tokenizer needs the package; the gateway does not have it.
        from toolrail.tokens import Tokenizer  # noqa: PLC0415

        async def load() -> Tokenizer:
            text = (await self._bus.blobs.get(card.tokenizer)).decode()
            return await anyio.to_thread.run_sync(Tokenizer.from_json, text)

        return await self._tokenizers.get(card.tokenizer, load)

    async def chat_template_source(self, card: ModelCard) -> str:
        """The template text of `card`, fetched once. Raises KeyError when its file is gone."""

        async def load() -> str:
            return (await self._bus.blobs.get(card.chat_template)).decode()

        return await self._templates.get(card.chat_template, load)

    def _card_changed(self, key: str, value: bytes | None) -> None:
        _changed(self._cards, key, value, decode_model_card)
        if (card := self._cards.get(key)) is not None and len(self._names) < _MAX_NAMES:
            self._names.add(card.name)

    def _instance_changed(self, key: str, value: bytes | None) -> None:
        _changed(self._instances, key, value, decode_instance)


def _changed(
    known: dict[str, _T], key: str, value: bytes | None, decode: Callable[[bytes], _T]
) -> None:
    if value is None:
        known.pop(key, None)
        return
    try:
        known[key] = decode(value)
    except DecodeError as error:  # a newer build registers something that this one cannot read
        known.pop(key, None)
        log.warning("registration ignored", extra={"key": key, "reason": str(error)})


class _Cache(Generic[_T]):
    """Values by content hash, loaded once each, the longest unused forgotten first."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[str, _T] = OrderedDict()
        self._loading: dict[str, anyio.Lock] = {}

    async def get(self, name: str, load: Callable[[], Awaitable[_T]]) -> _T:
        """The value of `name`; callers that come while it is loaded wait for it."""
        if name in self._values:
            self._values.move_to_end(name)
            return self._values[name]
        lock = self._loading.setdefault(name, anyio.Lock())
        async with lock:
            if name not in self._values:
                self._values[name] = await load()
                self._loading.pop(name, None)
                while len(self._values) > self._size:
                    self._values.popitem(last=False)
        return self._values[name]
