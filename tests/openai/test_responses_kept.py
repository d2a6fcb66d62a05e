"""What is kept of a request can be read again, and says the same."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from toolrail.openai.responses import check_responses
from toolrail.openai.responses.ids import response_id
from toolrail.openai.responses.kept import kept_items, references
from toolrail.openai.responses.sealed import seal

RID = response_id("ab" * 16)

texts = st.text(max_size=12)
parts = st.lists(
    st.builds(lambda kind, text: {"type": kind, "text": text},
              st.sampled_from(["input_text", "output_text", "text"]), texts)
    | st.builds(lambda text: {"type": "refusal", "refusal": text}, texts),
    max_size=3,
)  # fmt: skip
contents = texts | parts
extras = st.dictionaries(st.sampled_from(["id", "status", "phase", "extra"]), st.none(), max_size=2)


def fields(**more: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda base, rest: rest | base, st.fixed_dictionaries(more), extras)


def just(value: Any) -> st.SearchStrategy[Any]:
    return st.just(value)


messages = fields(
    role=st.sampled_from(["user", "assistant", "system", "developer"]), content=contents
) | fields(type=just("message"), role=just("assistant"), content=parts, id=just("msg_1"))
reasonings = fields(
    type=just("reasoning"),
    summary=st.lists(st.builds(lambda text: {"type": "summary_text", "text": text}, texts)),
    encrypted_content=st.none() | texts | texts.map(seal),
)
agents = fields(type=just("agent_message"), content=contents)


@st.composite
def calls(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A call of either kind and its output."""
    call_id = draw(st.text("abc", min_size=1, max_size=8))
    custom = draw(st.booleans())
    kind = "custom_tool_call" if custom else "function_call"
    given_ = {"input": draw(texts)} if custom else {"arguments": json.dumps({"a": draw(texts)})}
    called = {"type": kind, "call_id": call_id, "name": "f", **given_}
    if draw(st.booleans()):
        called["namespace"] = "n"
    return [called, {"type": f"{kind}_output", "call_id": call_id, "output": draw(contents)}]


turns = (messages | reasonings | agents).map(lambda item: [item]) | calls()
inputs = texts | st.lists(turns, min_size=1, max_size=6).map(
    lambda found: list(chain.from_iterable(found))
)


@settings(max_examples=80, deadline=None)
@given(inputs)
def test_what_is_kept_says_the_same(given_input: Any) -> None:
    raw = json.dumps({"model": "m", "input": given_input}).encode()
    told = check_responses(raw).messages
    assert references(raw) == ()
    kept = json.loads(kept_items(raw, RID, {}))
    assert len({item["id"] for item in kept} - {"msg_1"}) == len(
        [item for item in kept if item["id"] != "msg_1"]
    )
    again = json.dumps({"model": "m", "input": kept}).encode()
    assert check_responses(again).messages == told
    assert json.loads(kept_items(again, RID, {})) == kept
