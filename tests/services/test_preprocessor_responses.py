"""Responses requests in the preprocessor: what they follow, what they become, what is told."""

from __future__ import annotations

import json
from typing import Any

import pytest
import tokenizers

from tests.openai.bodies import WEATHER
from tests.services.preprocessing import MODEL, Bench, bench, card, tokenizer_json
from toolrail.messages import Accepted, Failed, Reply
from toolrail.openai.responses.ids import input_item_id, output_item_id, response_id
from toolrail.stored import StoredAnswer, StoredInput, StoredResponses

pytestmark = pytest.mark.anyio

FIRST, SECOND = "1" * 32, "2" * 32
F = {"type": "function", "name": "f", "parameters": WEATHER}


def body(**fields: Any) -> bytes:
    return json.dumps({"model": MODEL, "input": "Now", **fields}).encode()


async def respond(b: Bench, *, owner: str = "", **fields: Any) -> Reply:
    return await b.ask(body(**fields), api="responses", owner=owner)


async def keep(
    b: Bench,
    request_id: str,
    said: str,
    answered: str,
    *,
    chain: tuple[str, ...] = (),
    status: str = "completed",
    owner: str = "",
) -> str:
    """A stored response; its name."""
    name = response_id(request_id)
    asked = {"role": "user", "content": said, "id": input_item_id("msg", name, 0)}
    answer = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": answered}],
        "id": output_item_id("msg", request_id, 0),
    }
    stored = StoredResponses(b.gateway.documents)
    items = json.dumps([asked]).encode()
    await stored.put_input(name, StoredInput(owner=owner, chain=chain, items=items), 60)
    response = json.dumps({"output": [answer]}).encode()
    await stored.put_answer(name, StoredAnswer(owner=owner, status=status, response=response), 60)
    return name


def shown(b: Bench) -> str:
    """The prompt that was handed over, as text."""
    tokenizer = tokenizers.Tokenizer.from_str(tokenizer_json())
    return tokenizer.decode(list(b.stream.prompt_token_ids))


async def test_what_a_response_repeats_is_told_with_the_models_sampling() -> None:
    async with bench(card(default_sampling={"temperature": 0.6})) as b:
        reply = await respond(b, tools=[{"type": "namespace", "name": "crm", "tools": [F]}])
        assert isinstance(reply, Accepted)
        echo = json.loads(reply.echo)
        assert (echo["temperature"], echo["top_p"], echo["store"]) == (0.6, 1.0, True)
        assert reply.namespaces == {"crm__f": ("crm", "f")}
        assert [tool.name for tool in b.stream.parse.tools] == ["crm__f"]


async def test_what_cannot_be_told_in_one_message_is_refused_before_it_runs() -> None:
    async with bench(max_payload_bytes=19_500) as b:
        tool = F | {"description": "x" * 18_500}
        reply = await respond(b, tools=[tool], tool_choice="none")
        assert isinstance(reply, Failed)
        assert (reply.status, reply.param) == (400, "tools")
        assert not b.post.streams


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({"max_tool_calls": 2}, 2),
        ({"max_tool_calls": 2, "parallel_tool_calls": False}, 1),
        ({}, None),
    ],
)
async def test_calls_are_bounded(fields: dict[str, Any], most: int | None) -> None:
    async with bench() as b:
        assert isinstance(await respond(b, tools=[F], **fields), Accepted)
        assert b.stream.output.max_calls == most


async def test_a_conversation_is_gone_through_from_its_beginning() -> None:
    async with bench() as b:
        first = await keep(b, FIRST, "one", "eins")
        second = await keep(b, SECOND, "two", "zwei", chain=(first,), status="incomplete")
        reply = await respond(b, previous_response_id=second, instructions="Count.")
        assert isinstance(reply, Accepted)
        assert reply.chain == (first, second)
        turns = [line for line in shown(b).splitlines() if line]
        assert turns[:12] == [
            "system", "Count.", "user", "one", "assistant", "eins", "user", "two", "assistant",
            "zwei", "user", "Now",
        ]  # fmt: skip


async def test_items_are_referred_to_by_name() -> None:
    async with bench() as b:
        await keep(b, FIRST, "one", "eins")
        names = [
            input_item_id("msg", response_id(FIRST), 0),
            output_item_id("msg", FIRST, 0),
        ]
        items = [{"type": "item_reference", "id": name} for name in names]
        reply = await respond(b, input=[*items, {"role": "user", "content": "and?"}])
        assert isinstance(reply, Accepted)
        assert "user\none\nassistant\neins\nuser\nand?\n" in shown(b)


MISSING = response_id("9" * 32)


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"previous_response_id": MISSING}, "previous_response_id", "previous_response_not_found"),
        ({"previous_response_id": "resp_x"}, "previous_response_id", "previous_response_not_found"),
        (
            {"input": [{"type": "item_reference", "id": output_item_id("fc", FIRST, 7)}]},
            "input[0].id",
            "item_not_found",
        ),
    ],
)
async def test_what_is_not_there_is_refused(fields: dict[str, Any], param: str, code: str) -> None:
    async with bench() as b:
        await keep(b, FIRST, "one", "eins")
        reply = await respond(b, **fields)
        assert isinstance(reply, Failed)
        assert (reply.status, reply.param, reply.error_code) == (400, param, code)


async def test_what_is_somebody_elses_is_not_there() -> None:
    async with bench() as b:
        first = await keep(b, FIRST, "one", "eins", owner="a")
        reply = await respond(b, owner="b", previous_response_id=first)
        assert isinstance(reply, Failed)
        assert reply.error_code == "previous_response_not_found"
        name = output_item_id("msg", FIRST, 0)
        reply = await respond(b, owner="b", input=[{"type": "item_reference", "id": name}])
        assert isinstance(reply, Failed)
        assert reply.error_code == "item_not_found"
        assert isinstance(await respond(b, owner="a", previous_response_id=first), Accepted)


async def test_a_deleted_response_breaks_the_conversation() -> None:
    async with bench() as b:
        first = await keep(b, FIRST, "one", "eins")
        second = await keep(b, SECOND, "two", "zwei", chain=(first,))
        await StoredResponses(b.gateway.documents).delete(first, "")
        reply = await respond(b, previous_response_id=second)
        assert isinstance(reply, Failed)
        assert (reply.param, first in reply.message) == ("previous_response_id", True)


async def test_an_unfinished_response_cannot_be_followed() -> None:
    async with bench() as b:
        first = await keep(b, FIRST, "one", "eins", status="in_progress")
        reply = await respond(b, previous_response_id=first)
        assert isinstance(reply, Failed)
        assert (reply.status, reply.param) == (400, "previous_response_id")


LONG = [
    {"role": "developer", "content": "Rules."},
    *({"role": "user", "content": f"{number:02d} " + "x" * 60} for number in range(10)),
    {"role": "user", "content": "last"},
]


async def test_a_conversation_that_does_not_fit_is_refused_by_its_field() -> None:
    async with bench(card(context_length=400)) as b:
        reply = await respond(b, input=LONG)
        assert isinstance(reply, Failed)
        assert (reply.param, reply.error_code) == ("input", "context_length_exceeded")


async def test_truncation_leaves_out_the_oldest_messages_and_no_more() -> None:
    async with bench(card(context_length=400)) as b:
        reply = await respond(b, input=LONG, truncation="auto", max_output_tokens=60)
        assert isinstance(reply, Accepted)
        text = shown(b)
        assert text.startswith("system\nRules.\nuser\n")
        kept = [number for number in range(10) if f"{number:02d} x" in text]
        assert kept == list(range(kept[0], 10))
        assert 0 < len(kept) < 10
        assert "last" in text
        assert reply.prompt_tokens <= 340
        assert reply.prompt_tokens + 90 > 340


async def test_a_last_message_that_does_not_fit_is_refused_all_the_same() -> None:
    async with bench(card(context_length=100)) as b:
        reply = await respond(b, input="x" * 500, truncation="auto")
        assert isinstance(reply, Failed)
        assert reply.error_code == "context_length_exceeded"
