"""Responses that are kept, on the bus's documents: what went into each, what came out of it.

A response is two documents, since it is known at two times: its input when the request is taken,
its answer when that is there. One without an answer is as good as not there. Each says whose it is,
and lies among its owner's, which have a bound of their own: what is somebody else's is not found. A
response knows those it follows by name, so a conversation is read all at once, and one that was
deleted is in no conversation any more.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import anyio
import msgspec
from msgspec import Raw

from toolrail.bus.port import Documents
from toolrail.errors import CallerError, FaultError
from toolrail.openai.refusals import refusal, shortened
from toolrail.openai.responses.ids import is_response_id, item_place
from toolrail.openai.responses.request import Past

MAX_CHAIN: Final = 512
"""Responses that one may follow: each is read anew for every request."""

_MAX_PAST_BYTES: Final = 32 << 20
"""Of all that a request refers to: more fits no context."""

_READS_AT_ONCE: Final = 16
_FINISHED: Final = ("completed", "incomplete")

T = TypeVar("T")


class StoredInput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a request brought.

    Attributes:
        owner: whose it is.
        chain: the responses it follows, oldest first.
        items: its own input items, each with an id, as a JSON array.
    """

    version: int = 1
    owner: str = ""
    chain: tuple[str, ...] = ()
    items: bytes = b"[]"


class StoredAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of it.

    Attributes:
        owner: whose it is.
        status: of the response object.
        response: the object as JSON.
        runner: gateway that is at work on it, empty when it is over.
        runner_pid: its process: a restarted gateway may have the same name.
        expires_s: unix time at which it goes.
        streamed: whether its events are kept, too.
    """

    version: int = 1
    owner: str = ""
    status: str
    response: bytes
    runner: str = ""
    runner_pid: int = 0
    expires_s: int = 0
    streamed: bool = False

    @property
    def running(self) -> bool:
        """Whether more is to come."""
        return self.status in ("queued", "in_progress")


class _Output(msgspec.Struct, frozen=True):
    output: list[Raw] = []


_encoder: Final = msgspec.msgpack.Encoder()
_input: Final = msgspec.msgpack.Decoder(StoredInput)
_answer: Final = msgspec.msgpack.Decoder(StoredAnswer)
_events: Final = msgspec.msgpack.Decoder(list[bytes])
_items: Final = msgspec.json.Decoder(list[Raw])
_output: Final = msgspec.json.Decoder(_Output)


class StoredResponses:
    """Reads and writes them; one for a process."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    async def input(self, response_id: str, owner: str) -> StoredInput:
        """What went into a response of `owner`. Raises KeyError when it is not theirs or not there.

        Raises:
            FaultError: the store cannot be asked.
        """
        found = await self._read(_key("i", response_id, owner), _input.decode)
        if found.owner != owner:
            raise KeyError(response_id)
        return found

    async def answer(self, response_id: str, owner: str) -> StoredAnswer:
        """What became of it. Raises as `input` does."""
        found = await self._read(_key("o", response_id, owner), _answer.decode)
        if found.owner != owner:
            raise KeyError(response_id)
        return found

    async def events(self, response_id: str, owner: str) -> list[bytes]:
        """The events of its stream. Raises KeyError when they are not there, and FaultError."""
        return await self._read(_key("e", response_id, owner), _events.decode)

    async def put_input(self, response_id: str, given: StoredInput, ttl_s: float) -> None:
        """Keep what went in. Raises FaultError: it may or may not be kept."""
        key = _key("i", response_id, given.owner)
        await self._documents.put(key, _encoder.encode(given), ttl_s=ttl_s)

    async def put_answer(self, response_id: str, answer: StoredAnswer, ttl_s: float) -> None:
        """Keep what became of it. Raises as `put_input` does."""
        key = _key("o", response_id, answer.owner)
        await self._documents.put(key, _encoder.encode(answer), ttl_s=ttl_s)

    async def put_events(
        self, response_id: str, owner: str, events: Sequence[bytes], ttl_s: float
    ) -> None:
        """Keep the events of its stream. Raises as `put_input` does."""
        key = _key("e", response_id, owner)
        await self._documents.put(key, _encoder.encode(events), ttl_s=ttl_s)

    async def delete(self, response_id: str, owner: str) -> None:
        """Forget all of it; the answer goes first, so that nothing of it is found meanwhile."""
        for kind in "oie":
            await self._documents.delete(_key(kind, response_id, owner))

    async def chain(self, previous: str, owner: str) -> tuple[str, ...]:
        """The responses that one which follows `previous` follows, oldest first.

        Raises:
            CallerError: `previous` is not there, or is the last of too many.
            FaultError: the store cannot be asked.
        """
        if not is_response_id(previous):
            raise previous_not_found(previous)
        try:
            found = await self.input(previous, owner)
        except KeyError:
            raise previous_not_found(previous) from None
        chain = (*found.chain, previous)
        if len(chain) > MAX_CHAIN:
            raise refusal(
                f"The conversation has more than {MAX_CHAIN} responses: send its items in 'input', "
                "or a summary, without 'previous_response_id'.",
                param="previous_response_id",
                code="conversation_too_long",
            )
        return chain

    async def past(self, chain: Sequence[str], names: Sequence[str], owner: str) -> Past:
        """The items of a chain, and items by name.

        Raises:
            CallerError: a response of the chain is not there, or not finished.
            FaultError: the store cannot be asked.
        """
        budget = _Budget(_MAX_PAST_BYTES)
        turns = await _all(chain, lambda each: self._turn(each, owner, budget))
        named = await self._named(names, owner, budget)
        return Past([item for turn in turns for item in turn], named)

    async def named(self, names: Sequence[str], owner: str) -> dict[str, Raw]:
        """Items by name, as far as they are there. Raises CallerError and FaultError."""
        return await self._named(names, owner, _Budget(_MAX_PAST_BYTES))

    async def conversation(self, response_id: str, owner: str) -> list[Raw]:
        """All items that went into a response: those of the chain before it, then its own.

        Of a response before it that was deleted, nothing. Raises KeyError and FaultError.
        """
        own = await self.input(response_id, owner)
        budget = _Budget(_MAX_PAST_BYTES)

        async def turn(each: str) -> list[Raw]:
            try:
                return await self._turn(each, owner, budget)
            except CallerError:
                return []

        turns = await _all(own.chain, turn)
        return [item for each in turns for item in each] + _items.decode(own.items)

    async def _turn(self, response_id: str, owner: str, budget: _Budget) -> list[Raw]:
        """What went into one response of a chain, then what came out."""
        try:
            given = await self.input(response_id, owner)
            answer = await self.answer(response_id, owner)
        except KeyError:
            raise previous_not_found(response_id) from None
        if answer.status not in _FINISHED:
            raise refusal(
                f"Response '{response_id}' has the status '{answer.status}': only one that is "
                "completed or incomplete can be followed.",
                param="previous_response_id",
            )
        budget.take(len(given.items) + len(answer.response))
        return _items.decode(given.items) + _output.decode(answer.response).output

    async def _named(self, names: Sequence[str], owner: str, budget: _Budget) -> dict[str, Raw]:
        """Items by name, as far as they are there."""
        places = {name: place for name in names if (place := item_place(name)) is not None}
        homes = tuple(dict.fromkeys((p.response_id, p.output) for p in places.values()))

        async def read(home: tuple[str, bool]) -> list[Raw]:
            response_id, output = home
            try:
                if output:
                    answer = await self.answer(response_id, owner)
                    budget.take(len(answer.response))
                    return _output.decode(answer.response).output
                given = await self.input(response_id, owner)
                budget.take(len(given.items))
                return _items.decode(given.items)
            except KeyError:
                return []

        found = dict(zip(homes, await _all(homes, read), strict=True))
        items = {
            name: found[place.response_id, place.output][place.position : place.position + 1]
            for name, place in places.items()
        }
        return {name: item[0] for name, item in items.items() if item}

    async def _read(self, key: str, decode: Callable[[bytes], T]) -> T:
        data = await self._documents.get(key)
        try:
            return decode(data)
        except msgspec.MsgspecError as error:
            raise FaultError("a stored response cannot be read") from error


class _Budget:
    """Bytes that one request may have read."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise refusal(
                f"What the request refers to has more than {_MAX_PAST_BYTES:,} bytes.",
                param="previous_response_id",
                code="string_above_max_length",
            )


def previous_not_found(response_id: str) -> CallerError:
    """The 400 for following what is not stored, or is somebody else's."""
    return refusal(
        f"Previous response with id '{shortened(response_id)}' not found: it was not stored, was "
        "deleted or has expired. Send the conversation in 'input'.",
        param="previous_response_id",
        code="previous_response_not_found",
    )


def expires_s(ttl_s: float) -> int:
    """Unix time at which what is stored now goes."""
    return int(time.time() + ttl_s)


def _key(kind: str, response_id: str, owner: str) -> str:
    """Its document, in the group of its owner's; in none where no keys are in use."""
    if not is_response_id(response_id):
        raise KeyError(response_id)
    if not owner:
        return f"{kind}-{response_id}"
    return f"{hashlib.blake2b(owner.encode(), digest_size=10).hexdigest()}.{kind}-{response_id}"


K = TypeVar("K")


async def _all(keys: Sequence[K], read: Callable[[K], Awaitable[T]]) -> list[T]:
    """What `read` gives for each, in order; so many at once. The first error is raised."""
    found: dict[int, T] = {}
    errors: list[Exception] = []
    turns = anyio.CapacityLimiter(_READS_AT_ONCE)

    async def one(position: int, key: K, scope: anyio.CancelScope) -> None:
        async with turns:
            try:
                found[position] = await read(key)
            except (CallerError, FaultError) as error:
                errors.append(error)
                scope.cancel()

    async with anyio.create_task_group() as tasks:
        for position, key in enumerate(keys):
            tasks.start_soon(one, position, key, tasks.cancel_scope)
    if errors:
        raise errors[0]
    return [found[position] for position in range(len(keys))]
