from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.postprocessor.choice import Choice, FinishedCall, Step
from services.postprocessor.joining import PORTION_CHARACTERS, joined, portions
from services.postprocessor.leaks import LeakWatch
from tests.services.postprocessing import (
    EOS,
    TOKENIZER,
    TOOL_TAGS,
    ToyParser,
    choice,
    delta,
    ids,
    plain_choice,
    plan,
)
from toolrail.events import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    ReasoningDelta,
    TextDelta,
    assemble,
)
from toolrail.messages import ChoiceEnd, Output, TokenLogprob, TopLogprob, VisibleLogprob


def fed(made: Choice, portions: Iterable[Sequence[int]], finish: str = "stop") -> list[Step]:
    """Steps of `portions` and then `finish`, until the choice ends."""
    steps: list[Step] = []
    for seq, portion in enumerate(portions):
        steps.append(made.feed(delta(portion, seq)))
        if steps[-1].end is not None:
            return steps
    return [*steps, made.feed(delta("", finish=finish))]


def events(steps: Iterable[Step]) -> list[Event]:
    return joined([event for step in steps for event in step.events])


def text_of(steps: Iterable[Step]) -> str | None:
    return assemble(events(steps)).content


def test_without_a_parser_all_is_text() -> None:
    steps = fed(plain_choice(), [ids("Hel"), ids("lo [f:1]")])
    assert [step.events for step in steps] == [[TextDelta("Hel")], [TextDelta("lo [f:1]")], []]
    assert steps[-1].end == ChoiceEnd("stop")


def test_events_come_in_the_order_of_the_output() -> None:
    assert events(fed(choice(), [ids('{why}so [f:{"a":1}] done')])) == [
        ReasoningDelta("why"),
        TextDelta("so "),
        CallStart(0, "f"),
        ArgumentsDelta(0, '{"a":1}'),
        CallEnd(0),
        TextDelta(" done"),
    ]


def test_the_end_of_text_token_is_counted_and_not_shown() -> None:
    made = plain_choice()
    step = made.feed(delta(f"hi{EOS}", finish="stop"))
    assert step.events == [TextDelta("hi")]
    assert made.completion_tokens == 3


def test_a_stop_token_that_is_text_is_not_shown_either() -> None:
    stop_id = ids("#")[0]
    made = Choice(replace(plan(), ends=frozenset({stop_id})), ToyParser())
    assert made.feed(delta("a#b", 0)).events == [TextDelta("a#b")]
    step = made.feed(delta("c#", 1, finish="stop", stop_token_id=stop_id))
    assert (step.events, step.end) == ([TextDelta("c")], ChoiceEnd("stop", stop_id))


def test_special_tokens_show_only_as_markers() -> None:
    made = Choice(plan(keep=TOOL_TAGS), ToyParser())
    assert made.feed(delta("a<s><tool_call>b")).events == [TextDelta("a<tool_call>b")]


def test_half_a_character_at_the_length_limit_becomes_a_replacement() -> None:
    made = plain_choice()
    made.feed(delta(ids("a日")[:-1]))
    step = made.feed(delta("", 1, finish="length"))
    assert (step.events, step.end) == ([TextDelta("\ufffd")], ChoiceEnd("length"))


def test_a_call_cut_by_the_length_limit_is_incomplete() -> None:
    steps = fed(choice(), [ids("[f:{")], finish="length")
    assert events(steps)[-1] == CallEnd(0, complete=False)
    assert steps[-1].calls == (FinishedCall("f", "truncated"),)
    assert steps[-1].end == ChoiceEnd("length")


def test_calls_are_told_with_what_became_of_them() -> None:
    steps = fed(choice(), [ids("[f:1][g:2]")])
    assert steps[0].calls == (
        FinishedCall("f", "complete"),
        FinishedCall("g", "unknown_tool"),
    )
    assert steps[0].recoveries == ()


@pytest.mark.parametrize("arguments", ["", "{}", "{ \n}"])
def test_a_call_without_the_arguments_that_its_tool_requires_is_empty(arguments: str) -> None:
    made = replace(plan(), needy=frozenset("f"))
    whole = ids(f"[f:{arguments}]")
    for cut in ([whole], [[one] for one in whole]):
        steps = fed(Choice(made, ToyParser()), cut)
        assert [call.outcome for step in steps for call in step.calls] == ["empty"]
    assert fed(Choice(made, ToyParser()), [ids("[f:{1}]")])[0].calls[0].outcome == "complete"
    assert fed(choice(), [ids("[f:{}]")])[0].calls[0].outcome == "complete"  # it needs none


def test_a_call_of_a_schema_that_nobody_holds_or_checks_is_unchecked() -> None:
    made = Choice(replace(plan(), open_tools=frozenset("f")), ToyParser())
    assert fed(made, [ids("[f:1]")])[0].calls == (FinishedCall("f", "unchecked"),)


class Broken(ToyParser):
    """Calls prove to be none."""

    def feed(self, text: str) -> list[Event]:
        found = super().feed(text)
        return [CallEnd(0, complete=False) if e == CallEnd(0) else e for e in found]


class Closing(ToyParser):
    """A call that is open at the end is whole."""

    def finish(self, *, cut: bool = False) -> list[Event]:
        return [_whole(event) for event in super().finish(cut=cut)]


def _whole(event: Event) -> Event:
    return CallEnd(event.index) if isinstance(event, CallEnd) else event


def test_what_a_parser_recovers_is_told() -> None:
    (broken, _) = fed(choice(parser=Broken()), [ids("[f:1]text")])
    assert (broken.calls, broken.recoveries) == ((FinishedCall("f", "malformed"),), ("went_on",))
    *_, closed = fed(choice(parser=Closing()), [ids("[f:1")])
    assert (closed.calls, closed.recoveries) == (
        (FinishedCall("f", "complete"),),
        ("closed_by_end",),
    )


# Stop strings.


def test_a_stop_string_over_several_deltas_cuts_the_text() -> None:
    made = plain_choice(Output(stop=("END",)))
    steps = fed(made, [ids("abE"), ids("N"), ids("Dxyz")])
    assert text_of(steps) == "ab"
    assert steps[-1].end == ChoiceEnd("stop", "END")
    assert steps[-1].engine_runs_on
    assert made.completion_tokens == 5  # the ids after the match are not the client's


def test_a_stop_string_may_be_kept() -> None:
    assert (
        text_of(fed(plain_choice(Output(stop=("D",), include_stop=True)), [ids("abDc")])) == "abD"
    )


def test_a_stop_string_never_matches_in_reasoning_or_arguments() -> None:
    output = Output(stop=("X",))
    steps = fed(choice(output), [ids("{aX}b[f:X]cXd")])
    assert events(steps) == [
        ReasoningDelta("aX"),
        TextDelta("b"),
        CallStart(0, "f"),
        ArgumentsDelta(0, "X"),
        CallEnd(0),
        TextDelta("c"),
    ]


def test_a_stop_string_does_not_reach_over_a_call() -> None:
    steps = fed(choice(Output(stop=("ab",))), [ids("a[f:1]b")])
    turn = assemble(events(steps))
    assert (turn.content, len(turn.calls)) == ("ab", 1)


def test_text_held_for_a_stop_string_comes_before_what_follows_it() -> None:
    steps = fed(choice(Output(stop=("ab",))), [ids("xa"), ids("{r}")])
    assert events(steps) == [TextDelta("xa"), ReasoningDelta("r")]


def test_text_held_at_the_end_is_flushed() -> None:
    steps = fed(plain_choice(Output(stop=("abc",))), [ids("xab")])
    assert text_of(steps) == "xab"
    assert steps[-1].end == ChoiceEnd("stop")


def test_a_match_in_what_the_end_releases_is_no_work_for_the_engine() -> None:
    made = plain_choice(Output(stop=("\ufffd",)))
    made.feed(delta(ids("a日")[:-1]))
    step = made.feed(delta("", 1, finish="length"))
    assert step.end == ChoiceEnd("stop", "\ufffd")
    assert not step.engine_runs_on


# The bound on calls.


def test_a_call_past_the_bound_ends_the_choice() -> None:
    steps = fed(choice(Output(max_calls=1)), [ids("[f:1] and "), ids("[f:2]x")])
    turn = assemble(events(steps))
    assert [call.arguments for call in turn.calls] == ["1"]
    assert turn.content == " and "
    assert steps[-1].end == ChoiceEnd("stop")
    assert steps[-1].engine_runs_on


def test_a_call_that_broke_off_does_not_use_up_the_bound() -> None:
    steps = fed(choice(Output(max_calls=1), Broken()), [ids("[f:1][f:2][f:3]")])
    assert [call.arguments for call in assemble(events(steps)).calls] == ["2"]
    assert steps[-1].end == ChoiceEnd("stop")


@pytest.mark.parametrize(
    ("text", "finish", "outcomes"),
    [("no", "stop", ["missing"]), ("[f:1]", "stop", ["complete"]), ("no", "length", [])],
)
def test_a_call_that_was_required_and_did_not_come_is_told(
    text: str, finish: str, outcomes: list[str]
) -> None:
    made = Choice(replace(plan(), must_call=True), ToyParser())
    steps = fed(made, [ids(text)], finish)
    assert [call.outcome for step in steps for call in step.calls] == outcomes


# Counts.


def test_reasoning_tokens_are_those_that_made_reasoning() -> None:
    made = choice()
    fed(made, [ids("{abc}de")])
    # The opening brace comes with the reasoning, the closing one with the text.
    assert (made.completion_tokens, made.reasoning_tokens) == (7, 4)


def test_reasoning_that_never_ends_is_counted() -> None:
    made = choice()
    fed(made, [ids("{abc")], finish="length")
    assert made.reasoning_tokens == 4


def logprobs(token_ids: Sequence[int]) -> tuple[TokenLogprob, ...]:
    return tuple(
        TokenLogprob(i, -1.0, (TopLogprob(i, -1.0), TopLogprob(ids("z")[0], -2.0)))
        for i in token_ids
    )


def test_logprobs_show_the_text_and_bytes_of_each_token() -> None:
    made = plain_choice(Output(top_logprobs=1))
    token_ids = (*ids("é"), *ids(EOS))
    step = made.feed(delta(token_ids, finish="stop", logprobs=logprobs(token_ids)))
    first, second = "é".encode()[:1], "é".encode()[1:]
    assert step.logprobs == (
        VisibleLogprob("\ufffd", -1.0, first, (("\ufffd", -1.0, first),)),
        VisibleLogprob("\ufffd", -1.0, second, (("\ufffd", -1.0, second),)),
    )


def test_logprobs_end_with_the_token_that_completed_a_stop_string() -> None:
    made = plain_choice(Output(stop=("b",), top_logprobs=0))
    step = made.feed(delta("abc", logprobs=logprobs(ids("abc"))))
    assert [entry.token for entry in step.logprobs] == ["a", "b"]


def test_logprobs_nobody_asked_for_are_left_out() -> None:
    assert plain_choice().feed(delta("a", logprobs=logprobs(ids("a")))).logprobs == ()


# Chunk-invariance, at the granularity of ids.


OUTPUTS = [
    Output(),
    Output(stop=("c", "ab")),
    Output(stop=("} b",), include_stop=True),
    Output(max_calls=1),
    Output(stop=("é",), max_calls=2, top_logprobs=2),
]


@pytest.mark.parametrize("output", OUTPUTS)
@given(
    text=st.text(alphabet="abc é{}[f:]", max_size=40),
    finish=st.sampled_from(["stop", "length"]),
    seed=st.integers(0, 5),
)
def test_how_ids_are_cut_into_deltas_changes_nothing(
    output: Output, text: str, finish: str, seed: int
) -> None:
    token_ids = ids(text)
    rng = random.Random(seed)
    places = sorted(rng.choices(range(len(token_ids) + 1), k=3))
    cuts = zip([0, *places], [*places, len(token_ids)], strict=True)

    def outcome(portions: Iterable[Sequence[int]]) -> tuple[object, ...]:
        made = choice(output)
        steps = fed(made, portions, finish)
        calls = [call for step in steps for call in step.calls]
        counts = (made.completion_tokens, made.reasoning_tokens)
        return events(steps), steps[-1].end, calls, counts

    one_by_one = outcome([[i] for i in token_ids])
    assert outcome([token_ids]) == one_by_one
    assert outcome([token_ids[a:b] for a, b in cuts]) == one_by_one


# Joining and cutting.


def test_neighbours_of_one_kind_leave_joined() -> None:
    assert joined(
        [
            TextDelta("a"),
            TextDelta("b"),
            ArgumentsDelta(0, "1"),
            ArgumentsDelta(1, "2"),
            ArgumentsDelta(1, "3"),
            CallEnd(0),
            CallEnd(1),
        ]
    ) == [
        TextDelta("ab"),
        ArgumentsDelta(0, "1"),
        ArgumentsDelta(1, "23"),
        CallEnd(0),
        CallEnd(1),
    ]


def test_a_long_value_is_cut_into_portions_that_travel() -> None:
    long = "x" * (2 * PORTION_CHARACTERS + 1)
    cut = portions([CallStart(0, "f"), ArgumentsDelta(0, long), CallEnd(0)])
    assert len(cut) == 3
    assert all(
        sum(len(e.text) for e in part if isinstance(e, ArgumentsDelta)) <= PORTION_CHARACTERS
        for part in cut
    )
    assert joined([event for part in cut for event in part]) == [
        CallStart(0, "f"),
        ArgumentsDelta(0, long),
        CallEnd(0),
    ]


def test_what_is_short_stays_one_portion() -> None:
    assert portions([]) == [[]]
    assert portions([TextDelta("a"), ReasoningDelta("b")]) == [
        [TextDelta("a"), ReasoningDelta("b")]
    ]


# Leaks.


@given(text=st.text(alphabet="<tc>/ ", max_size=30))
def test_markers_in_text_are_counted_at_any_cut(text: str) -> None:
    count = text.count("<t>") + text.count("</t>")
    assert LeakWatch(("<t>", "</t>")).feed(text) == count
    one_by_one = LeakWatch(("<t>", "</t>"))
    assert sum(one_by_one.feed(character) for character in text) == count


def test_a_choice_tells_of_markers_in_its_text() -> None:
    made = Choice(plan(markers=("<tool_call>",)), ToyParser())
    assert [step.markers_in_text for step in fed(made, [ids("a <tool_"), ids("call> b")])] == [
        0,
        1,
        0,
    ]


def test_no_markers_no_leaks() -> None:
    assert LeakWatch(()).feed("<tool_call>") == 0
    assert LeakWatch((" ",)).feed("a b") == 0


def test_the_tokenizer_of_these_tests_is_one_id_a_byte() -> None:
    assert len(ids("aé")) == 3
    assert TOKENIZER.decode(ids("aé")) == "aé"
