"""What models write: ids and texts of every kind, cut anywhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
from hypothesis import strategies as st

from services.postprocessor.choice import Choice, Step
from tests.families.loading import FAMILIES
from tests.families.test_robustness import check_text, fragments, specs
from tests.fuzz.target import Target
from tests.grammars.test_fuzz import PIECES, REGEX, outcome
from tests.services.postprocessing import EOS_ID, TOKENIZER, TOOL_TAGS, plan
from tests.services.postprocessing import delta as token_delta
from tests.test_tokens import MARKERS, TOKENIZERS, fed, full_decode
from toolrail.events import assemble
from toolrail.families import stream_parser
from toolrail.messages import EventDelta, EventFrame, Output, decode_event_frame, encode
from toolrail.parsing import ParseSpec

# Ids to text.


@st.composite
def _id_runs(draw: st.DrawFn) -> tuple[str, list[list[int]], tuple[str, ...]]:
    name = draw(st.sampled_from(sorted(TOKENIZERS)))
    size = TOKENIZERS[name].vocab_size
    strange = st.sampled_from([-1, -(2**63), size, size + 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1])
    # Most ids are of the vocabulary; its first ones are the bytes.
    one = st.integers(0, min(300, size - 1)) | st.integers(0, size - 1) | strange
    runs = draw(st.lists(st.lists(one, max_size=12), max_size=6))
    return name, runs, draw(st.sampled_from([(), MARKERS]))


def _decoded(given: tuple[str, list[list[int]], tuple[str, ...]]) -> None:
    name, runs, keep = given
    tokenizer = TOKENIZERS[name]
    ids = [token_id for run in runs for token_id in run]
    there = [token_id for token_id in ids if 0 <= token_id < 2**32]
    expected = full_decode(tokenizer, there, keep)
    assert fed(tokenizer, runs, keep) == expected
    assert fed(tokenizer, [ids], keep) == expected
    assert fed(tokenizer, [[token_id] for token_id in ids], keep) == expected


# Text to events.


@st.composite
def _texts(draw: st.DrawFn) -> tuple[str, ParseSpec, str, bool]:
    name = draw(st.sampled_from(FAMILIES))
    spec = draw(specs(name))
    parts = st.lists(st.sampled_from(fragments(name)) | st.text(max_size=5), max_size=20)
    return name, spec, "".join(draw(parts)), draw(st.booleans())


def _parsed(given: tuple[str, ParseSpec, str, bool]) -> None:
    _, spec, text, cut = given
    check_text(spec, text, cut=cut)


# Ids to events: text, parser, stop strings and the bound on calls together.


@dataclass(frozen=True)
class Run:
    """A choice: what it is to be, and the ids that come."""

    spec: ParseSpec
    output: Output
    customs: frozenset[str]
    runs: tuple[tuple[int, ...], ...]
    finish: str


_INPUTS: Final = ('{"input": "', "\\ud83d", "\\ude00", "\\u0000", "\\n", '\\"', '"}', '", "b": 1}')


@st.composite
def _choices(draw: st.DrawFn) -> Run:
    name = draw(st.sampled_from(FAMILIES))
    spec = draw(specs(name))
    known = st.sampled_from((*fragments(name), *_INPUTS)).map(TOKENIZER.encode_now)
    other = st.lists(st.integers(-1, TOKENIZER.vocab_size + 1), max_size=4)
    runs = draw(st.lists(known | other, max_size=12))
    text = TOKENIZER.decode([token_id for run in runs for token_id in run])
    at, size = draw(st.integers(0, len(text))), draw(st.integers(1, 12))
    near = text[at : at + size]  # and one that begins like the text and goes on differently
    known_stops = ["a", "\n\n", "}}", "</", "get_weather", near or "a", f"{near}\x01"]
    stop = st.lists(st.sampled_from(known_stops), max_size=2)
    output = Output(
        stop=tuple(draw(stop)),
        include_stop=draw(st.booleans()),
        max_calls=draw(st.sampled_from([None, 1, 2])),
    )
    customs = draw(st.sampled_from([(), [tool.name for tool in spec.tools]]))
    finish = draw(st.sampled_from(["stop", "length"]))
    return Run(spec, output, frozenset(customs), tuple(map(tuple, runs)), finish)


def _chosen(run: Run) -> None:
    ids = tuple(token_id for portion in run.runs for token_id in portion)
    whole = _turn(replace(run, runs=(ids,)))
    assert _turn(run) == whole
    assert _turn(replace(run, runs=tuple((token_id,) for token_id in ids))) == whole
    if run.output.stop and whole[1].stop is None:  # stop strings that do not come change nothing
        assert _turn(replace(run, output=msgspec.structs.replace(run.output, stop=()))) == whole


def _turn(run: Run) -> tuple[Any, ...]:
    """What comes of it; every event can cross the bus and leave as JSON."""
    runs, finish = run.runs, run.finish
    tools = [tool.name for tool in run.spec.tools]
    made = Choice(
        replace(plan(run.output, tools=tools, keep=TOOL_TAGS), customs=run.customs),
        stream_parser(run.spec),
    )
    steps: list[Step] = []
    for seq, portion in enumerate(runs):
        steps.append(made.feed(token_delta(portion, seq)))
        if steps[-1].end is not None:
            break
    else:
        steps.append(made.feed(token_delta("", len(runs), finish=finish)))
    events = [event for step in steps for event in step.events]
    frame = EventFrame(1, "p", (EventDelta("r", 0, 0, tuple(events)),))
    assert decode_event_frame(encode(frame)) == frame
    return assemble(events), steps[-1].end


# Grammars that requests bring.

_SOUP: Final = st.lists(
    st.sampled_from(PIECES) | st.sampled_from(REGEX) | st.text(max_size=3), max_size=24
).map("".join)


def _grammar(given: tuple[str, str]) -> None:
    outcome(*given)


TARGETS: Final = (
    Target("detokenizer", _id_runs(), _decoded, bounded=120),
    Target("parsers", _texts(), _parsed, bounded=150),
    Target(
        "choices",
        _choices(),
        _chosen,
        found=(Run(ParseSpec("hermes"), Output(), frozenset(), ((EOS_ID, EOS_ID), (1,)), "stop"),),
        bounded=120,
    ),
    Target(
        "grammars",
        st.tuples(st.just("lark"), _SOUP.map(lambda soup: "start: " + soup))
        | st.tuples(st.sampled_from(["lark", "regex"]), _SOUP),
        _grammar,
        bounded=100,
    ),
)
