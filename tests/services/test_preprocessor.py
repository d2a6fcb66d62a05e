"""The preprocessor's contract: a body in, a stream handed over, an answer for both."""

from __future__ import annotations

import json
import time
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from services.preprocessor.main import main
from tests.openai.bodies import WEATHER, call, function
from tests.services.preprocessing import (
    MODEL,
    TEMPLATE,
    Postprocessor,
    bench,
    card,
    register,
    request,
    tokenizer_json,
)
from toolrail.bus import subjects
from toolrail.bus.memory import MemoryBroker
from toolrail.messages import (
    Accepted,
    Checks,
    Failed,
    Guidance,
    Output,
    Prepare,
    Sampling,
    decode_reply,
    decode_stream,
    decode_token_ids,
    encode,
)
from toolrail.service import serving
from toolrail.settings import PreprocessorSettings
from toolrail.telemetry import Telemetry
from toolrail.tokens import Tokenizer

pytestmark = pytest.mark.anyio

PROMPT = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def ids(text: str) -> tuple[int, ...]:
    return tuple(Tokenizer.from_json(tokenizer_json()).encode_now(text))


async def test_a_request_becomes_a_stream() -> None:
    async with bench() as b:
        reply = await b.chat(
            n=2,
            stream=True,
            stream_options={"include_usage": True},
            max_tokens=10,
            temperature=0.5,
            seed=3,
            stop=["END"],
            include_stop_str_in_output=True,
            logprobs=True,
            top_logprobs=2,
        )
        stream = b.stream
        assert stream.prompt_token_ids == ids(PROMPT)
        assert stream.sampling == Sampling(max_tokens=10, temperature=0.5, seed=3, logprobs=2)
        assert stream.output == Output(stop=("END",), include_stop=True, top_logprobs=2)
        assert stream.guidance == Guidance()
        assert (stream.request_id, stream.model, stream.num_choices) == ("r1", MODEL, 2)
        assert stream.reply_subject == subjects.events("gw")
        assert (stream.parse.tool_parser, stream.parse.reasoning_parser) == ("hermes", "qwen3")
        assert isinstance(reply, Accepted)
        assert (reply.instance, reply.control_subject) == ("post", "control")
        assert (reply.model, reply.num_choices) == (MODEL, 2)
        assert (reply.stream, reply.include_usage) == (True, True)
        assert reply.prompt_tokens == len(stream.prompt_token_ids)
        assert reply.handed is not None
        assert decode_stream(reply.handed) == stream
        assert json.loads(reply.enforcement or "")["held_by"] == "nothing"


async def test_a_guided_field_reaches_the_engine_and_is_checked_before() -> None:
    async with bench() as b:
        await b.chat(guided_regex="[0-9]+")
        assert b.stream.guidance == Guidance(regex="[0-9]+")
        assert json.loads(b.tags.seen[0])["format"] == {"type": "regex", "pattern": "[0-9]+"}


async def test_what_the_template_left_open_is_where_the_parser_starts() -> None:
    async with bench() as b:
        await b.chat(chat_template_kwargs={"enable_thinking": True})
        assert b.stream.parse.starts_in == "reasoning"
        assert b.stream.prompt_token_ids == ids(PROMPT + "<think>\n")


async def test_history_is_shown() -> None:
    async with bench() as b:
        await b.chat(
            messages=[
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "tool_calls": [call()]},
                {"role": "tool", "tool_call_id": "call_1", "content": "sun"},
            ]
        )
        assert b.stream.prompt_token_ids == ids(
            '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n{"city": "Paris"}'
            "<|im_end|>\n<|im_start|>tool\nsun<|im_end|>\n<|im_start|>assistant\n"
        )


async def test_a_model_whose_workers_are_away_is_not_an_unknown_one() -> None:
    async with bench() as b:
        assert isinstance(await b.chat(), Accepted)
        bus = b.broker.connect()
        await bus.models.delete(f"{subjects.model_token(card().name)}.{card().worker}")
        with anyio.fail_after(10):
            while isinstance(reply := await b.chat(), Accepted):
                await anyio.lowlevel.checkpoint()
        assert (reply.status, reply.code, reply.retryable) == (503, "unavailable", True)
        await bus.close()


REFUSED: list[tuple[dict[str, Any], int, str | None, str | None]] = [
    ({"n": 0}, 400, "n", "integer_below_min_value"),
    ({"tools": [], "tool_choice": "required"}, 400, "tools", "empty_array"),
    ({"model": "nobody"}, 404, "model", "model_not_found"),
    (
        # Bad schemas are told before the model is looked up.
        {"model": "nobody", "tools": [function(parameters={}, strict=True)]},
        400,
        "tools[0].function.parameters",
        "invalid_function_parameters",
    ),
    ({"logit_bias": {"258": 1}}, 400, "logit_bias", "invalid_value"),
    (
        {"messages": [{"role": "user", "content": "x" * 4096}]},
        400,
        "messages",
        "context_length_exceeded",
    ),
    (
        {"messages": [{"role": "user", "content": "x" * 1_000_000}]},
        400,
        "messages",
        "context_length_exceeded",
    ),
    ({"ignore_eos": True, "guided_regex": "a"}, 400, "ignore_eos", "unsupported_value"),
]


@pytest.mark.parametrize(("fields", "status", "param", "code"), REFUSED)
async def test_a_request_at_fault_is_refused_and_nothing_is_handed_over(
    fields: dict[str, Any], status: int, param: str, code: str
) -> None:
    async with bench() as b:
        reply = await b.chat(**fields)
        assert isinstance(reply, Failed)
        assert (reply.request_id, reply.status) == ("r1", status)
        assert (reply.param, reply.error_code) == (param, code)
        assert reply.error_type == "invalid_request_error"
        assert reply.code == ("not_found" if status == 404 else "invalid_request")
        assert not reply.retryable
        assert b.post.streams == []


async def test_what_the_grammar_engine_refuses_is_the_callers_to_change() -> None:
    async with bench() as b:
        b.tags.refused = "regex"
        reply = await b.chat(guided_regex="(")
        assert isinstance(reply, Failed)
        assert (reply.status, reply.param, reply.error_code) == (
            400,
            "guided_regex",
            "invalid_grammar",
        )


async def test_the_same_tools_are_constrained_once() -> None:
    async with bench() as b:
        for content in ("One", "Two"):
            reply = await b.chat(
                messages=[{"role": "user", "content": content}], tools=[function()], n=2
            )
            assert isinstance(reply, Accepted)
        assert len(b.tags.seen) == 1
        first, second = b.post.streams
        assert first.guidance == second.guidance != Guidance()
        assert first.parse == second.parse
        await b.chat(tools=[function()], tool_choice="required")
        await b.chat(tools=[function()], chat_template_kwargs={"enable_thinking": True})
        assert len(b.tags.seen) == 3


async def test_what_was_refused_is_refused_again() -> None:
    async with bench() as b:
        b.tags.refused = "get_weather"
        strict = {"tools": [function(strict=True)], "tool_choice": "required"}
        assert isinstance(await b.chat(**strict), Failed)
        assert isinstance(await b.chat(**strict), Failed)
        b.tags.refused = ""
        assert isinstance(await b.chat(**strict), Accepted)


async def test_max_tokens_beyond_the_context_is_capped() -> None:
    async with bench() as b:
        await b.chat(max_tokens=1_000_000)
        assert b.stream.sampling.max_tokens == 4096 - len(ids(PROMPT))


async def test_a_body_that_is_not_json_is_refused() -> None:
    async with bench() as b:
        reply = await b.ask(b"{")
        assert isinstance(reply, Failed)
        assert (reply.status, reply.error_code) == (400, "invalid_json")


async def test_a_body_may_come_as_a_blob() -> None:
    async with bench() as b:
        await b.gateway.blobs.put("body.r1", request())
        assert isinstance(await b.ask(b"", body_blob="body.r1"), Accepted)
        reply = await b.ask(b"", body_blob="body.gone")
        assert isinstance(reply, Failed)
        assert reply.status == 500


async def test_a_prompt_too_large_for_a_message_travels_as_a_blob() -> None:
    long = {"role": "user", "content": "é" * 1900}
    async with bench(max_payload_bytes=4096) as b:
        reply = await b.chat_by_blob(messages=[long])
        assert isinstance(reply, Accepted)
        assert (b.stream.prompt_token_ids, b.stream.prompt_blob) == ((), "prompt.r1")
        assert reply.handed is not None
        assert decode_stream(reply.handed).prompt_blob == "prompt.r1"
        found = decode_token_ids(await b.gateway.blobs.get("prompt.r1"))
        assert found == ids(PROMPT.replace("Hi", "é" * 1900))
        assert b.stream.prompt_tokens == reply.prompt_tokens == len(found)


async def test_the_blob_goes_when_the_stream_is_not_taken() -> None:
    long = {"role": "user", "content": "é" * 1900}
    async with bench(max_payload_bytes=4096) as b:
        b.post.reply = Failed(request_id="r1", code="overloaded", message="full", status=429)
        assert await b.chat_by_blob(messages=[long]) == b.post.reply
        with pytest.raises(KeyError):
            await b.gateway.blobs.get("prompt.r1")


async def test_a_constraint_too_large_for_a_message_is_refused() -> None:
    async with bench(max_payload_bytes=4096) as b:
        reply = await b.chat_by_blob(guided_choice=["x" * 5000])
        assert isinstance(reply, Failed)
        assert reply.status == 400


async def test_a_refusal_of_the_postprocessor_is_passed_on() -> None:
    async with bench() as b:
        b.post.reply = Failed(request_id="r1", code="overloaded", message="full", status=429)
        assert await b.chat() == b.post.reply


async def test_nobody_to_take_the_stream_is_said_at_once() -> None:
    async with bench(postprocessor=False) as b:
        reply = await b.chat()
        assert isinstance(reply, Failed)
        assert (reply.code, reply.status, reply.retryable) == ("unavailable", 503, True)
        assert reply.retry_after_s == 1


async def test_expired_work_is_dropped_and_said_so() -> None:
    async with bench() as b:
        reply = await b.ask(request(), deadline_ms=int(time.time() * 1000) - 1)
        assert isinstance(reply, Failed)
        assert (reply.code, reply.status) == ("deadline", 504)
        assert b.tags.seen == b.post.streams == []


async def test_a_deadline_ends_a_slow_step() -> None:
    async with bench() as b:

        async def for_ever(tag_json: str) -> None:
            await anyio.sleep_forever()

        b.tags.check = for_ever
        await b.chat()  # the model is loaded now
        deadline = int(time.time() * 1000) + 300
        reply = await b.ask(request(guided_regex="a"), deadline_ms=deadline)
        assert isinstance(reply, Failed)
        assert reply.code == "deadline"


async def test_a_messages_request_is_prepared_as_its_chat_twin_is() -> None:
    hello = [{"role": "user", "content": "Hi"}]
    twin = {"model": MODEL, "messages": hello, "max_tokens": 5, "stop_sequences": ["END"]}
    async with bench() as b:
        assert isinstance(await b.ask(json.dumps(twin).encode(), api="messages"), Accepted)
        assert isinstance(await b.chat(max_tokens=5, stop=["END"]), Accepted)
        assert b.post.streams[0] == b.post.streams[1]


async def test_a_prompt_that_is_only_counted_goes_no_further() -> None:
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}).encode()
    async with bench() as b:
        counted = await b.ask(body, api="messages", count_only=True)
        assert isinstance(counted, Accepted)
        assert b.post.streams == []
        await b.chat()
        assert counted.prompt_tokens == b.stream.prompt_tokens > 0
        refused = await b.ask(b"{}", api="messages", count_only=True)
        assert isinstance(refused, Failed)
        assert refused.param == "model"


async def test_a_model_that_the_key_may_not_use_is_refused_whether_it_is_there_or_not() -> None:
    async with bench() as b:
        assert isinstance(await b.ask(request(), models=("tiny/*",)), Accepted)
        for model in (MODEL, "none"):
            reply = await b.ask(request(model=model), models=("other", "x*"))
            assert isinstance(reply, Failed)
            assert (reply.status, reply.error_code) == (403, "model_not_allowed")


async def test_a_message_that_cannot_be_read_is_answered() -> None:
    async with bench() as b:
        answer = await b.gateway.request(subjects.PREPARE, b"\xc1", timeout_s=5)
        reply = decode_reply(answer)
        assert isinstance(reply, Failed)
        assert reply.code == "internal"


@pytest.mark.parametrize(
    ("template", "status", "code"),
    [
        ("{{ raise_exception('No.') }}", 400, "template_refused"),
        ("{{ messages[9].content }}", 500, None),
    ],
)
async def test_templates_that_refuse_and_templates_that_fail(
    template: str, status: int, code: str | None
) -> None:
    async with bench(template=template) as b:
        reply = await b.chat()
        assert isinstance(reply, Failed)
        assert (reply.status, reply.error_code) == (status, code)


@pytest.mark.parametrize(
    "changes", [{"tokenizer": "gone"}, {"chat_template": "gone"}, {"tool_parser": "no_parser"}]
)
async def test_a_model_that_cannot_be_served_is_our_fault(changes: dict[str, Any]) -> None:
    async with bench(card(**changes)) as b:
        reply = await b.chat()
        assert isinstance(reply, Failed)
        assert reply.status == 500


async def test_a_model_that_cannot_be_loaded_is_not_tried_at_every_request() -> None:
    async with bench(card(tokenizer="late")) as b:
        assert isinstance(await b.chat(), Failed)
        await b.gateway.blobs.put("late", tokenizer_json().encode())
        assert isinstance(await b.chat(), Failed)
        await register(b.gateway, card(tokenizer="late", context_length=999))
        assert isinstance(await b.chat(), Accepted)


async def test_a_bug_is_an_internal_error_without_its_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with bench() as b:

        async def broken(tag_json: str) -> None:
            raise ZeroDivisionError("secret")

        b.tags.check = broken
        reply = await b.chat(guided_regex="a")
        assert isinstance(reply, Failed)
        assert (reply.code, reply.message) == ("internal", "internal error")
        assert "bug while preparing" in caplog.text


async def test_requests_do_not_wait_for_each_other() -> None:
    async with bench() as b:
        held = anyio.Event()

        async def check(tag_json: str) -> None:
            if "slow" in tag_json:
                await held.wait()

        b.tags.check = check
        order: list[str] = []

        async def ask(pattern: str) -> None:
            await b.chat(guided_regex=pattern)
            order.append(pattern)
            held.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, "slow")
            tasks.start_soon(ask, "quick")
        assert order == ["quick", "slow"]


async def test_the_service_from_start_to_end() -> None:
    """`main` with its real compile processes: requests in flight at the stop are answered."""
    broker = MemoryBroker()
    gateway, post_bus, own = (broker.connect() for _ in range(3))
    post = Postprocessor()
    await register(gateway, template=TEMPLATE)
    await post_bus.serve(subjects.STREAM, subjects.POSTPROCESSORS, post.answer, max_in_flight=9)

    async def ask(**fields: Any) -> Any:
        prepare = Prepare(request_id="r", body=request(**fields), reply_subject="x")
        answer = await gateway.request(subjects.PREPARE, encode(prepare), timeout_s=60)
        return decode_reply(answer)

    async with (
        serving("preprocessor", PreprocessorSettings(drain_s=5), own) as runtime,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(main, runtime)
        with anyio.fail_after(60):
            while not runtime.directory.instances("preprocessor"):  # noqa: ASYNC110
                await anyio.sleep(0.01)
        taken = await ask(guided_json=WEATHER)
        refused = await ask(guided_regex="(?<=a)b")
        runtime.stopping.set()
    assert isinstance(taken, Accepted)
    assert isinstance(refused, Failed)
    assert (refused.status, refused.param) == (400, "guided_regex")
    assert len(post.streams) == 1


# What is enforced, and what is checked after.

UNIQUE = {
    "type": "object",
    "properties": {"a": {"type": "array", "items": {}, "uniqueItems": True}},
}


@pytest.mark.parametrize(("policy", "fails"), [("report", False), ("fail", True)])
async def test_what_is_left_to_check_goes_with_the_stream(policy: str, *, fails: bool) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with bench(card(argument_validation=policy), telemetry=Telemetry(provider)) as b:
        await b.chat(tools=[function("secret", parameters=UNIQUE), function("g")])
        checked = ("secret", "g") if fails else ("secret",)
        assert b.stream.output.checks == Checks(tools=checked, fails=fails)
        counted = b.registry.get_sample_value(
            "toolrail_preprocessor_keywords_total",
            {"family": "hermes", "status": "checked_after"},
        )
        assert counted == 1
    events = [e for span in exporter.get_finished_spans() for e in span.events]
    (event,) = (e for e in events if e.name == "toolrail.enforcement")
    assert event.attributes is not None
    assert event.attributes["toolrail.keywords.checked_after"] == 1
    assert event.attributes["toolrail.check_fails"] is fails
    assert "secret" not in str(dict(event.attributes))
