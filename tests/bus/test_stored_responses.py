"""Stored responses on every bus: what was put is found by its owner, whole and in order."""

from __future__ import annotations

import json

import pytest

from tests.bus.conftest import Connect
from toolrail.errors import CallerError
from toolrail.openai.responses.ids import input_item_id, output_item_id, response_id
from toolrail.stored import MAX_CHAIN, StoredAnswer, StoredInput, StoredResponses

pytestmark = pytest.mark.anyio

TTL_S = 600.0


def name(number: int) -> str:
    return response_id(f"{number:032x}")


async def keep(stored: StoredResponses, number: int, *, size: int = 0, owner: str = "o") -> str:
    """The number-th response of a conversation, with that many characters more in its input."""
    mine = name(number)
    item = {"id": input_item_id("msg", mine, 0), "text": f"in {number}" + "x" * size}
    out = {"id": output_item_id("msg", f"{number:032x}", 0), "text": f"out {number}"}
    chain = tuple(map(name, range(number)))
    given = StoredInput(owner=owner, chain=chain, items=json.dumps([item]).encode())
    await stored.put_input(mine, given, TTL_S)
    response = json.dumps({"output": [out]}).encode()
    answer = StoredAnswer(owner=owner, status="completed", response=response)
    await stored.put_answer(mine, answer, TTL_S)
    return mine


def texts(items: list[bytes]) -> list[str]:
    return [json.loads(item)["text"][:6].strip() for item in items]


async def test_a_conversation_is_read_in_order_by_another_process(connect: Connect) -> None:
    writer, reader = StoredResponses((await connect()).documents), await connect()
    for number in range(20):
        await keep(writer, number, size=700_000 if number == 3 else 0)
    stored = StoredResponses(reader.documents)
    chain = await stored.chain(name(19), "o")
    assert chain == tuple(map(name, range(20)))
    past = await stored.past(chain, [output_item_id("msg", f"{3:032x}", 0)], "o")
    read = texts([bytes(item) for item in past.items])
    assert read[:4] == ["in 0", "out 0", "in 1", "out 1"]
    assert read[-1] == "out 19"
    assert len(read) == 40
    assert [json.loads(bytes(item))["text"] for item in past.named.values()] == ["out 3"]


async def test_what_is_deleted_is_in_no_conversation(connect: Connect) -> None:
    stored = StoredResponses((await connect()).documents)
    for number in range(3):
        await keep(stored, number)
    await stored.delete(name(1), "o")
    listed = await stored.conversation(name(2), "o")
    assert texts([bytes(item) for item in listed]) == ["in 0", "out 0", "in 2"]
    with pytest.raises(CallerError) as info:
        await stored.past(await stored.chain(name(2), "o"), (), "o")
    assert info.value.code == "previous_response_not_found"
    with pytest.raises(KeyError):
        await stored.answer(name(1), "o")


async def test_a_conversation_has_an_end(connect: Connect) -> None:
    stored = StoredResponses((await connect()).documents)
    last = name(MAX_CHAIN)
    chain = tuple(map(name, range(MAX_CHAIN)))
    await stored.put_input(last, StoredInput(owner="o", chain=chain), TTL_S)
    with pytest.raises(CallerError) as info:
        await stored.chain(last, "o")
    assert info.value.code == "conversation_too_long"
