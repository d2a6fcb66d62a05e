"""Responses that were stored: read, listed, cancelled, deleted.

What is somebody else's is not found. A response that its gateway left unfinished when it died is
found out here, by whoever asks for it first, and is failed from then on.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import anyio
import msgspec
from msgspec import Raw

from services.gateway.exchange import Exchange
from services.gateway.gateway import Gateway
from services.gateway.responses.background import follow
from services.gateway.sse import KEEP_ALIVE
from toolrail.bus import subjects
from toolrail.errors import CallerError, DeadlineError, NoRespondersError
from toolrail.messages import Cancel, encode
from toolrail.openai.refusals import shortened
from toolrail.stored import StoredAnswer

PREFIX: Final = "/v1/responses/"
CANCEL: Final = "/cancel"
INPUT_ITEMS: Final = "/input_items"

_MAX_ITEMS: Final = 100
_USUAL_ITEMS: Final = 20
_LOOK_AGAIN_S: Final = 0.5
"""Between two looks at a run that another process is at work on."""

_GRACE_S: Final = 60.0
"""After its deadline a run is at work no more, whatever its process says of itself."""

_LOST: Final = {
    "status": "failed",
    "error": {
        "code": "server_error",
        "message": "The server stopped before the response was finished.",
    },
}


class _Named(msgspec.Struct, frozen=True):
    id: str = ""


class _Deleted(msgspec.Struct, frozen=True):
    id: str
    object: str = "response"
    deleted: bool = True


class _Page(msgspec.Struct, frozen=True):
    data: Sequence[Raw]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: str = "list"


class _Background(msgspec.Struct, frozen=True):
    background: bool = False


_named: Final = msgspec.json.Decoder(_Named)
_members: Final = msgspec.json.Decoder(dict[str, Raw])
_background: Final = msgspec.json.Decoder(_Background)
_encode: Final = msgspec.json.Encoder().encode


async def retrieve(gateway: Gateway, exchange: Exchange) -> None:
    """`GET /v1/responses/{id}`: the object as it is now, or with `stream=true` its events."""
    response_id = exchange.path.removeprefix(PREFIX)
    answer = await _answer(gateway, exchange, response_id)
    query = exchange.query
    if _flag(query, "stream"):
        await _replay(gateway, exchange, response_id, answer, _number(query, "starting_after"))
    else:
        await exchange.send(200, answer.response)


async def delete(gateway: Gateway, exchange: Exchange) -> None:
    """`DELETE /v1/responses/{id}`; one that is being generated is cancelled first."""
    response_id = exchange.path.removeprefix(PREFIX)
    answer = await _answer(gateway, exchange, response_id)
    if answer.running:
        await _cancel(gateway, response_id, answer)
    with _in_time(gateway):
        await gateway.stored.delete(response_id, exchange.owner)
    await exchange.send(200, _encode(_Deleted(response_id)))


async def cancel(gateway: Gateway, exchange: Exchange) -> None:
    """`POST /v1/responses/{id}/cancel`: ends a background response; no effect on one that ended."""
    response_id = exchange.path.removeprefix(PREFIX).removesuffix(CANCEL)
    answer = await _answer(gateway, exchange, response_id)
    if not _background.decode(answer.response).background:
        raise CallerError(
            "Only responses created with 'background': true can be cancelled.",
            param="response_id",
            code="invalid_value",
        )
    if answer.running:
        await _cancel(gateway, response_id, answer)
        answer = await _answer(gateway, exchange, response_id)
    await exchange.send(200, answer.response)


async def input_items(gateway: Gateway, exchange: Exchange) -> None:
    """`GET /v1/responses/{id}/input_items`: all that went into it, the latest first."""
    response_id = exchange.path.removeprefix(PREFIX).removesuffix(INPUT_ITEMS)
    query = exchange.query
    order = _word(query, "order", ("desc", "asc"))
    limit = _number(query, "limit", least=1, most=_MAX_ITEMS)
    await _answer(gateway, exchange, response_id)
    try:
        with _in_time(gateway):
            items = await gateway.stored.conversation(response_id, exchange.owner)
    except KeyError:
        raise _not_found(response_id) from None
    if order == "desc":
        items.reverse()
    names = [_named.decode(item).id for item in items]
    start = _start(query, names)
    end = start + (_USUAL_ITEMS if limit is None else limit)
    page = names[start:end]
    listed = _Page(
        items[start:end],
        page[0] if page else None,
        page[-1] if page else None,
        has_more=end < len(items),
    )
    await exchange.send(200, _encode(listed))


async def _answer(gateway: Gateway, exchange: Exchange, response_id: str) -> StoredAnswer:
    """The response as it is now. Raises CallerError (404)."""
    try:
        with _in_time(gateway):
            answer = await gateway.stored.answer(response_id, exchange.owner)
    except KeyError:
        raise _not_found(response_id) from None
    if not answer.running:
        return answer
    run = gateway.runs.get(response_id)
    if run is not None:
        return msgspec.structs.replace(answer, response=run.response)
    if await _is_at_work(gateway, answer):
        return answer
    return await _failed(gateway, exchange, response_id)


async def _is_at_work(gateway: Gateway, answer: StoredAnswer) -> bool:
    """Whether another process is still at work on it; one that is not registered is asked."""
    settings = gateway.settings
    written_s = answer.expires_s - settings.stored_response_ttl_s
    if time.time() > written_s + settings.background_timeout_s + _GRACE_S:
        return False
    if answer.runner == gateway.instance:
        return False
    for peer in gateway.directory.instances("gateway"):
        if peer.instance == answer.runner:
            return peer.pid == answer.runner_pid  # else it was restarted under its name
    try:
        await _order(gateway, answer.runner, "")
    except (NoRespondersError, DeadlineError):
        return False
    return True


async def _order(gateway: Gateway, runner: str, request_id: str) -> None:
    """Have a gateway cancel a run, if it has that; returns when what became of it is kept."""
    await gateway.bus.request(
        subjects.control(runner),
        encode(Cancel(request_id=request_id, reason="its client")),
        timeout_s=gateway.settings.store_timeout_s,
    )


async def _failed(gateway: Gateway, exchange: Exchange, response_id: str) -> StoredAnswer:
    """The response, failed from now on; unless its last word came a moment ago."""
    try:
        with _in_time(gateway):
            answer = await gateway.stored.answer(response_id, exchange.owner)
            if not answer.running:
                return answer
            response = _encode({**_members.decode(answer.response), **_LOST})
            failed = StoredAnswer(
                owner=answer.owner,
                status="failed",
                response=response,
                expires_s=answer.expires_s,
            )
            ttl_s = gateway.settings.stored_response_ttl_s
            await gateway.stored.put_answer(response_id, failed, ttl_s)
    except KeyError:
        raise _not_found(response_id) from None
    return failed


async def _cancel(gateway: Gateway, response_id: str, answer: StoredAnswer) -> None:
    """Have its run end, wherever that is; returns when what became of it is kept."""
    run = gateway.runs.get(response_id)
    with _in_time(gateway):
        if run is not None:
            await run.cancel()
            return
        try:
            await _order(gateway, answer.runner, response_id.removeprefix("resp_"))
        except (NoRespondersError, DeadlineError):
            return  # dead, or not to be reached: the next look at it says which


async def _replay(
    gateway: Gateway,
    exchange: Exchange,
    response_id: str,
    answer: StoredAnswer,
    starting_after: int | None,
) -> None:
    """The events after a sequence number: those to come, too, while it is being generated."""
    after = 0 if starting_after is None else starting_after + 1
    run = gateway.runs.get(response_id)
    if run is not None and run.streamed:
        await follow(exchange, run, after, gateway.settings.sse_keep_alive_s)
        return
    if not (answer.streamed or answer.running):
        raise _no_events()
    began = False
    while answer.running:  # by another process, whose events come with its last word
        if not began:
            await exchange.start_events()
            began = True
        await exchange.write(KEEP_ALIVE)
        await anyio.sleep(_LOOK_AGAIN_S)
        answer = await _answer(gateway, exchange, response_id)
    try:
        with _in_time(gateway):
            events = await gateway.stored.events(response_id, exchange.owner)
    except KeyError:
        if not began:
            raise _no_events() from None
        events = []
    if not began:
        await exchange.start_events()
    await exchange.write(b"".join(events[after:]), last=True)


def _no_events() -> CallerError:
    return CallerError(
        "This response has no events: only one that was created with 'background' and 'stream' "
        "true can be streamed again.",
        param="stream",
        code="invalid_value",
    )


def _not_found(response_id: str) -> CallerError:
    return CallerError(
        f"Response with id '{shortened(response_id)}' not found.",
        param="response_id",
        code="response_not_found",
        status=404,
    )


@contextmanager
def _in_time(gateway: Gateway) -> Generator[None]:
    """Bounds what the store is asked. Raises DeadlineError."""
    try:
        with anyio.fail_after(gateway.settings.store_timeout_s):
            yield
    except TimeoutError:
        raise DeadlineError("the store of responses did not answer in time") from None


def _start(query: Mapping[str, list[str]], names: list[str]) -> int:
    after = query.get("after", [""])[-1]
    if not after:
        return 0
    if after not in names:
        raise CallerError(
            f"Invalid value for 'after': there is no item '{shortened(after)}'.",
            param="after",
            code="invalid_value",
        )
    # The last of that name: clients choose names, and after the first this page might come again.
    return len(names) - names[::-1].index(after)


def _flag(query: Mapping[str, list[str]], name: str) -> bool:
    return _word(query, name, ("false", "true")) == "true"


def _word(query: Mapping[str, list[str]], name: str, words: tuple[str, str]) -> str:
    """The parameter, which must be one of the words; left out, it is the first of them."""
    said = query.get(name, [words[0]])[-1].lower()
    if said not in words:
        raise CallerError(
            f"Invalid value for '{name}': '{shortened(said)}'. Supported values are "
            f"'{words[0]}' and '{words[1]}'.",
            param=name,
            code="invalid_value",
        )
    return said


def _number(
    query: Mapping[str, list[str]], name: str, *, least: int = 0, most: int = 1 << 31
) -> int | None:
    said = query.get(name, [""])[-1]
    if not said:
        return None
    if not (said.isascii() and said.isdecimal() and len(said) <= 10):
        raise _out_of_range(name, least, most)
    number = int(said)
    if not least <= number <= most:
        raise _out_of_range(name, least, most)
    return number


def _out_of_range(name: str, least: int, most: int) -> CallerError:
    return CallerError(
        f"Invalid value for '{name}': expected an integer from {least} to {most}.",
        param=name,
        code="invalid_value",
    )
