"""Real families through the whole core: ids in, events out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from services.postprocessor.choice import Choice, FinishedCall, Step
from services.postprocessor.intake import made
from services.postprocessor.joining import joined
from tests.services.postprocessing import EOS, TOKENIZER, delta, ids
from tests.services.postprocessor_bench import CARD, MODEL, bench, stream
from tests.services.worker_kit import scripted, working
from toolrail.bus.memory import MemoryBroker
from toolrail.events import Call, Event, Reasoning, Text, Turn, assemble
from toolrail.messages import ChoiceEnd, Output, Sampling
from toolrail.parsing import ParseSpec
from toolrail.tools import Tool

WEATHER = Tool(
    "get_weather",
    {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
)
HERMES = ParseSpec(tool_parser="hermes", reasoning_parser="qwen3", tools=(WEATHER,))
CODER = ParseSpec(tool_parser="qwen3_coder", reasoning_parser="qwen3", tools=(WEATHER,))

HERMES_TEXT = """<think>Paris, I think.</think>

On it.
<tool_call>
{"name": "get_weather", "arguments": {"city": "Paris </tool_call>", "days": 2}}
</tool_call>"""
CODER_TEXT = """<think>Paris, I think.</think>

On it.
<tool_call>
<function=get_weather>
<parameter=city>
Paris
</parameter>
<parameter=days>
2
</parameter>
</function>
</tool_call>"""


def choice_of(spec: ParseSpec, output: Output | None = None) -> Choice:
    _, (choice,) = made(stream(parse=spec, output=output or Output()), CARD, TOKENIZER)
    return choice


def steps_of(choice: Choice, portions: Iterable[Sequence[int]], finish: str = "stop") -> list[Step]:
    steps: list[Step] = []
    for seq, portion in enumerate(portions):
        steps.append(choice.feed(delta(portion, seq)))
        if steps[-1].end is not None:
            return steps
    return [*steps, choice.feed(delta(EOS if finish == "stop" else "", finish=finish))]


def events_of(steps: Iterable[Step]) -> list[Event]:
    return joined([event for step in steps for event in step.events])


def turn_of(spec: ParseSpec, text: str, **more: Any) -> Turn:
    return assemble(events_of(steps_of(choice_of(spec), ([i] for i in ids(text)), **more)))


def test_a_hermes_turn_with_special_tokens_for_markers() -> None:
    assert turn_of(HERMES, HERMES_TEXT).items == (
        Reasoning("Paris, I think."),
        Text("On it."),
        Call("get_weather", '{"city": "Paris </tool_call>", "days": 2}'),
    )


def test_a_qwen3_coder_turn_is_typed_by_its_tools() -> None:
    *_, call = turn_of(CODER, CODER_TEXT).items
    assert isinstance(call, Call)
    assert call.arguments.replace(" ", "") == '{"city":"Paris","days":2}'


@pytest.mark.parametrize(("spec", "text"), [(HERMES, HERMES_TEXT), (CODER, CODER_TEXT)])
@pytest.mark.parametrize("output", [Output(), Output(stop=("it",)), Output(stop=("Paris", "zz"))])
def test_the_grouping_of_ids_changes_nothing(spec: ParseSpec, text: str, output: Output) -> None:
    token_ids = ids(text)

    def outcome(size: int) -> tuple[object, ...]:
        choice = choice_of(spec, output)
        portions = (token_ids[at : at + size] for at in range(0, len(token_ids), size))
        steps = steps_of(choice, portions)
        counts = (choice.completion_tokens, choice.reasoning_tokens)
        return events_of(steps), steps[-1].end, counts

    one_by_one = outcome(1)
    assert all(outcome(size) == one_by_one for size in (2, 3, 7, 50, 10_000))


@pytest.mark.parametrize(("spec", "text"), [(HERMES, HERMES_TEXT), (CODER, CODER_TEXT)])
def test_a_stop_string_in_reasoning_or_arguments_is_no_stop(spec: ParseSpec, text: str) -> None:
    steps = steps_of(choice_of(spec, Output(stop=("Paris", "<tool_call>"))), [ids(text)])
    assert steps[-1].end == ChoiceEnd("stop")
    assert [call for step in steps for call in step.calls] == [
        FinishedCall("get_weather", "complete")
    ]


def test_reasoning_tokens_are_counted() -> None:
    choice = choice_of(HERMES)
    steps_of(choice, [ids(HERMES_TEXT)])
    # One id a byte; `<think>` comes with the reasoning, `</think>` with what follows it.
    assert choice.reasoning_tokens == len("<think>Paris, I think.")


def test_a_call_cut_by_the_length_limit_is_not_dispatched() -> None:
    cut = HERMES_TEXT[: HERMES_TEXT.index('"days"')]
    turn = turn_of(HERMES, cut, finish="length")
    assert turn.calls == ()
    assert [call.name for call in turn.incomplete_calls] == ["get_weather"]


def test_with_tool_choice_none_there_are_no_calls_and_no_markup() -> None:
    spec = ParseSpec(tool_parser="hermes", tools=(WEATHER,), tool_choice="none")
    turn = turn_of(spec, 'Hi.\n<tool_call>\n{"name": "get_weather", "arguments": {}}\n</tool_call>')
    assert turn.calls == ()
    assert "<tool_call>" not in (turn.content or "")


def test_without_a_parser_special_tokens_are_dropped() -> None:
    assert turn_of(ParseSpec(), "a<tool_call>b").items == (Text("ab"),)


@pytest.mark.anyio
@pytest.mark.parametrize("chunk_tokens", [1, 5, 1000])
async def test_calls_stream_from_a_scripted_engine_to_the_gateway(chunk_tokens: int) -> None:
    broker = MemoryBroker()
    written = ids(HERMES_TEXT)  # in the vocabulary that the card names
    engine = scripted({"match": "", "token_ids": written, "chunk_tokens": chunk_tokens})
    async with bench(broker=broker) as b, working(engine, broker=broker):
        assert b.worker.pull is not None
        await b.worker.pull.stop()
        await b.gateway.hand_over(stream(parse=HERMES, sampling=Sampling(max_tokens=500)))
        last = await b.gateway.last()
        turn = assemble([event for d in b.gateway.deltas() for event in d.events])
        assert [call.name for call in turn.calls] == ["get_weather"]
        assert turn.reasoning == "Paris, I think."
        assert last.usage is not None
        assert last.usage.reasoning_tokens == len("<think>Paris, I think.")
        assert b.metric("calls_total", model=MODEL, family="hermes", outcome="valid") == 1
        if chunk_tokens == 1:
            arguments = [d for d in b.gateway.deltas() if "ArgumentsDelta" in repr(d.events)]
            assert len(arguments) > 20
