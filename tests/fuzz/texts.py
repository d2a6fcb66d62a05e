"""What models write: ids and texts of every kind, cut anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hypothesis import strategies as st

from services.postprocessor.choice import Choice
from tests.families.loading import FAMILIES
from tests.families.test_robustness import check_text, fragments, specs
from tests.fuzz.target import Target
from tests.grammars.test_fuzz import PIECES, REGEX, outcome
from tests.services.postprocessing import EOS_ID, TOKENIZER, plan
from tests.services.postprocessing import delta as token_delta
from tests.test_tokens import MARKERS, TOKENIZERS, fed, full_decode
from toolrail.events import assemble
from toolrail.families import stream_parser
from toolrail.messages import Output
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


@st.composite
def _choices(draw: st.DrawFn) -> tuple[ParseSpec, Output, list[list[int]], str]:
    name = draw(st.sampled_from(FAMILIES))
    spec = draw(specs(name))
    known = st.sampled_from(fragments(name)).map(TOKENIZER.encode_now)
    other = st.lists(st.integers(0, TOKENIZER.vocab_size + 1), max_size=4)
    runs = draw(st.lists(known | other, max_size=12))
    stop = st.lists(st.sampled_from(["a", "\n\n", "}}", "</", "é", "get_weather"]), max_size=2)
    output = Output(
        stop=tuple(draw(stop)),
        include_stop=draw(st.booleans()),
        max_calls=draw(st.sampled_from([None, 1, 2])),
    )
    return spec, output, runs, draw(st.sampled_from(["stop", "length", "abort"]))


def _chosen(given: tuple[ParseSpec, Output, list[list[int]], str]) -> None:
    spec, output, runs, finish = given
    ids = [token_id for run in runs for token_id in run]
    whole = _turn(spec, output, [ids], finish)
    assert _turn(spec, output, runs, finish) == whole
    assert _turn(spec, output, [[token_id] for token_id in ids], finish) == whole


def _turn(
    spec: ParseSpec, output: Output, runs: Sequence[Sequence[int]], finish: str
) -> tuple[Any, ...]:
    tools = [tool.name for tool in spec.tools]
    made = Choice(plan(output, tools=tools), stream_parser(spec))
    steps = []
    for seq, run in enumerate(runs):
        steps.append(made.feed(token_delta(run, seq)))
        if steps[-1].end is not None:
            break
    else:
        steps.append(made.feed(token_delta("", len(runs), finish=finish)))
    events = [event for step in steps for event in step.events]
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
        found=((ParseSpec("hermes"), Output(), [[EOS_ID, EOS_ID], [1]], "stop"),),
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
