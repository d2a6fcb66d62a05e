"""Keeping one response: its input when the request was taken, its answer before the client has it.

Where the store fails, the answer is not lost and nothing is silent: the client gets it, and it says
`"store": false`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import anyio
import anyio.to_thread
import msgspec
from msgspec import Raw

from services.gateway.failures import failure, failure_of
from services.gateway.gateway import Gateway
from toolrail.errors import CallerError, ToolrailError
from toolrail.messages import Accepted, Failed
from toolrail.openai.responses.kept import kept_items, references
from toolrail.settings import GatewaySettings
from toolrail.stored import StoredAnswer, StoredInput, expires_s

log: Final = logging.getLogger(__name__)

_SMALL_BODY_BYTES: Final = 256 << 10
"""Rewritten in less time than a thread takes to start."""
_FEW: Final = 4


class Said(msgspec.Struct, frozen=True):
    """What a request says of its keeping."""

    store: bool | None = None
    background: bool | None = None
    stream: bool | None = None


class _Status(msgspec.Struct, frozen=True):
    status: str


_said: Final = msgspec.json.Decoder(Said)
_status: Final = msgspec.json.Decoder(_Status)
_members: Final = msgspec.json.Decoder(dict[str, Raw])
_encode: Final = msgspec.json.Encoder().encode


def said(body: bytes) -> Said:
    """What the request in `body` says; nothing where it cannot be read: it will be refused."""
    try:
        return _said.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Said()


class Keeping:
    """One response's two documents.

    Attributes:
        stored: whether its input is kept, and no failure since has made that void.
    """

    def __init__(self, gateway: Gateway, response_id: str, owner: str) -> None:
        self._gateway = gateway
        self._settings = gateway.settings
        self._id = response_id
        self._owner = owner
        self._answered = False
        self._max_bytes = _max_bytes(gateway.settings, owner)
        self._too_large = False
        self.stored = False

    async def taken(self, accepted: Accepted, body: bytes) -> Accepted:
        """Keep the input, if it is to be kept; returns the Accepted that is true of that."""
        wanted = said(body).store
        if wanted is None:
            wanted = self._settings.store_by_default
        if wanted:
            self.stored = await self._keep_input(accepted, body)
        return accepted if self.stored else _not_stored(accepted)

    def refusal(self) -> Failed:
        """Why a response cannot run that nobody waits for: its input could not be kept."""
        if not self._too_large:
            text = "the response could not be stored, and nobody waits for it"
            return failure("unavailable", text, retryable=True)
        text = (
            f"A background response must be stored, and a request of more than {self._max_bytes} "
            "bytes is not. Send it without 'background'."
        )
        return failure_of(CallerError(text, param="input", code="string_above_max_length"))

    async def keep(self, response: bytes, *, runner: bool = False, streamed: bool = False) -> bool:
        """Keep the answer as it is now; whether that went well.

        `runner`: this process is still at work on it; `streamed`: its events are kept, too.
        """
        ttl_s = self._settings.stored_response_ttl_s
        answer = StoredAnswer(
            owner=self._owner,
            status=_status.decode(response).status,
            response=response,
            runner=self._gateway.instance if runner else "",
            runner_pid=self._gateway.pid if runner else 0,
            expires_s=expires_s(ttl_s),
            streamed=streamed,
        )
        if len(response) > self._max_bytes:
            return self._failed("too_large")
        try:
            with anyio.fail_after(self._settings.store_timeout_s):
                await self._gateway.stored.put_answer(self._id, answer, ttl_s)
        except (ToolrailError, TimeoutError) as error:
            return self._failed("store", error)
        self._answered = True
        return True

    async def keep_events(self, events: Sequence[bytes]) -> bool:
        """Keep the events of its stream; whether that went well."""
        ttl_s = self._settings.stored_response_ttl_s
        try:
            with anyio.fail_after(self._settings.store_timeout_s):
                await self._gateway.stored.put_events(self._id, self._owner, events, ttl_s)
        except (ToolrailError, TimeoutError) as error:
            return self._failed("store", error)
        return True

    async def close(self) -> None:
        """Forget an input that no answer came for."""
        if not self.stored or self._answered:
            return
        scope = anyio.move_on_after(self._settings.store_timeout_s, shield=True)
        with scope, suppress(ToolrailError):
            await self._gateway.stored.delete(self._id, self._owner)

    async def _keep_input(self, accepted: Accepted, body: bytes) -> bool:
        if len(body) > self._max_bytes:
            self._too_large = True
            return self._failed("too_large")
        stored, ttl_s = self._gateway.stored, self._settings.stored_response_ttl_s
        try:
            with anyio.fail_after(self._settings.store_timeout_s):
                named = await stored.named(references(body), self._owner)
                items = await _items(body, self._id, named)
                given = StoredInput(owner=self._owner, chain=accepted.chain, items=items)
                await stored.put_input(self._id, given, ttl_s)
        except (ToolrailError, TimeoutError) as error:
            return self._failed("store", error)
        return True

    def _failed(self, reason: str, error: Exception | None = None) -> bool:
        self._gateway.meters.not_stored.labels(reason).inc()
        if error is not None:
            extra = {"response_id": self._id, "reason": str(error) or type(error).__name__}
            log.warning("a response could not be stored", extra=extra)
        return False


def _max_bytes(settings: GatewaySettings, owner: str) -> int:
    """Of an input or an answer: a few must fit their owner's bound, or they would go at once."""
    most = settings.max_stored_response_bytes
    bound = settings.max_owner_document_bytes
    return min(most, bound // _FEW) if owner and bound else most


def without_store(response: bytes) -> bytes:
    """The response object, saying that it is not stored."""
    return _encode({**_members.decode(response), "store": False})


def _not_stored(accepted: Accepted) -> Accepted:
    if not accepted.echo:
        return accepted
    return msgspec.structs.replace(accepted, echo=without_store(accepted.echo))


async def _items(body: bytes, response_id: str, named: Mapping[str, Raw]) -> bytes:
    if len(body) <= _SMALL_BODY_BYTES:
        return kept_items(body, response_id, named)
    return await anyio.to_thread.run_sync(kept_items, body, response_id, named)
