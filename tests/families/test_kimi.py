"""What is particular to the Kimi families: channels, typed arguments, tags that stay."""

from __future__ import annotations

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from tests.families.loading import cases, shown
from tests.families.walking import tag_json
from toolrail.events import assemble
from toolrail.families import dialect, family
from toolrail.grammar import accepts
from toolrail.structural_tag import TagFormat, TagOptions
from toolrail.tokens import Detokenizer, Tokenizer
from toolrail.tools import StartsIn, Tool, ToolPolicy

THINK, THINK_END = "<|open|>think<|sep|>", "<|close|>think<|sep|>"
RESPONSE, RESPONSE_END = "<|open|>response<|sep|>", "<|close|>response<|sep|>"
TOOLS, TOOLS_END = "<|open|>tools<|sep|>", "<|close|>tools<|sep|>"
MESSAGE_END = "<|close|>message<|sep|>"
USER = '<|open|>message role="user"<|sep|>Use <|open|>think<|sep|>!<|close|>message<|sep|>'
ASSISTANT = USER + '<|end_of_msg|><|open|>message role="assistant"<|sep|>'
K3 = dialect("kimi-k3", "kimi-k3")
TOOL = Tool(
    "f",
    {
        "type": "object",
        "properties": {
            "a": {"type": ["string", "null"]},
            "n": {"anyOf": [{"type": "integer", "minimum": 3}, {"type": "boolean"}]},
            "q&a": {"enum": ["x", 1]},
        },
        "required": ["a"],
        "additionalProperties": False,
    },
)


def tag(
    choice: str = "required",
    starts_in: StartsIn = "none",
    options: TagOptions | None = None,
    *,
    tool: Tool = TOOL,
    parallel: bool = True,
    response: TagFormat | None = None,
) -> str:
    policy = ToolPolicy(choice, (tool,), parallel)
    found = K3.tag(policy, starts_in, options or TagOptions(), response=response)
    assert found is not None
    return tag_json(found)


def argument(key: str, kind: str, value: str) -> str:
    return f'<|open|>argument key="{key}" type="{kind}"<|sep|>{value}<|close|>argument<|sep|>'


def call(*arguments: str, index: int = 1) -> str:
    body = "".join(arguments)
    return f'<|open|>call tool="f" index="{index}"<|sep|>{body}<|close|>call<|sep|>'


ONE = TOOLS + call(argument("a", "string", "x")) + TOOLS_END
TWO = TOOLS + call(argument("a", "string", "x")) + call(argument("a", "null", "null"), index=2)


@pytest.mark.parametrize(
    ("tail", "start"),
    [
        (THINK, "reasoning"),
        ("<|open|> think <|sep|>\n", "reasoning"),
        (THINK + "So far", "reasoning"),
        (RESPONSE, "response"),
        (RESPONSE + "It is", "response"),
        (THINK + "so" + THINK_END, "none"),
        ("", "none"),
    ],
)
def test_the_prompt_says_which_channel_is_open(tail: str, start: StartsIn) -> None:
    assert K3.starts_in(ASSISTANT + tail) == start


def test_tags_that_stay_when_tags_are_off() -> None:
    assert family("kimi_k2").kept_tags == ("required", "named")
    assert family("kimi_k3").kept_tags == ("named",)


def test_a_named_choice_switches_thinking_off() -> None:
    assert dict(K3.prompt.named_choice) == {"thinking": False, "enable_thinking": False}
    assert dialect("kimi_k2", "kimi_k25").prompt.call_id == "functions_index"


TYPED = {
    # what is written, whether the tag takes it
    "the string of a union": (argument("a", "string", "null"), True),
    "the null of a union": (argument("a", "null", "null"), True),
    "a string announced as null": (argument("a", "null", "x"), False),
    "another type": (argument("a", "number", "1"), False),
    "the integer of a union": (argument("a", "string", "") + argument("n", "number", "3"), True),
    "below its minimum": (argument("a", "string", "") + argument("n", "number", "2"), False),
    "its boolean": (argument("a", "string", "") + argument("n", "boolean", "true"), True),
    "a boolean as a number": (argument("a", "string", "") + argument("n", "number", "true"), False),
    "a constant": (argument("a", "string", "") + argument("q&amp;a", "string", "x"), True),
    "a number constant": (argument("a", "string", "") + argument("q&amp;a", "number", "1"), True),
    "no constant": (argument("a", "string", "") + argument("q&amp;a", "string", "1"), False),
    "a name that was not escaped": (
        argument("a", "string", "") + argument("q&a", "string", "x"),
        False,
    ),
    "the required one left out": ("", False),
    "an unknown one": (argument("a", "string", "") + argument("z", "string", ""), False),
    "a control token in a string": (argument("a", "string", "<|close|> argument <|sep|>"), False),
    "nearly one": (argument("a", "string", "<|close|"), True),
}


@pytest.mark.parametrize("case", TYPED)
def test_a_value_is_held_with_its_type(case: str) -> None:
    arguments, taken = TYPED[case]
    assert accepts(tag(), TOOLS + call(arguments) + TOOLS_END) == taken


def test_arguments_without_a_schema_have_types_that_fit() -> None:
    held = tag(tool=Tool("f"))
    for good in (argument("a", "string", "1"), argument("a", "number", "1"), ""):
        assert accepts(held, TOOLS + call(good) + TOOLS_END), good
    for bad in (argument("a", "number", "x"), argument("a", "object", "[]"), "x"):
        assert not accepts(held, TOOLS + call(bad) + TOOLS_END), bad


def test_one_call_is_one_call() -> None:
    two = TWO + TOOLS_END
    assert accepts(tag(), two)
    for held in (tag(parallel=False), tag("named"), tag("auto", parallel=False)):
        assert accepts(held, ONE)
        assert not accepts(held, two)
        assert not accepts(held, ONE + ONE)


@pytest.mark.parametrize("choice", ["required", "named"])
def test_before_a_forced_call_the_answer_is_empty(choice: str) -> None:
    assert accepts(tag(choice), RESPONSE + RESPONSE_END + ONE + MESSAGE_END)
    assert not accepts(tag(choice), RESPONSE + "Hm" + RESPONSE_END + ONE)
    assert accepts(tag(choice, "response"), RESPONSE_END + ONE)
    assert not accepts(tag(choice, "response"), "Hm" + RESPONSE_END + ONE)
    assert accepts(tag(choice, "reasoning"), "so" + THINK_END + ONE)
    assert not accepts(tag(choice, "reasoning"), ONE)
    backend = TagOptions(reasoning_boundary="backend")
    assert accepts(tag(choice, "reasoning", backend), ONE)


def test_auto_is_the_channels_of_a_message() -> None:
    message = THINK + "so" + THINK_END + RESPONSE + "Hi" + RESPONSE_END
    for rest in ("", ONE, TWO + TOOLS_END, MESSAGE_END, ONE + MESSAGE_END):
        assert accepts(tag("auto"), message + rest), rest
        assert accepts(tag("auto", "response"), "Hi" + RESPONSE_END + rest), rest
    assert not accepts(tag("auto"), message + TOOLS + TOOLS_END)
    assert not accepts(tag("auto"), message + "<|open|> tools <|sep|>")


@pytest.mark.parametrize(
    "opener", ["<|open|> tools <|sep|>", "<|open|>tools <|sep|>", "<|open|> call "]
)
def test_the_ban_knows_every_spelling(opener: str) -> None:
    assert not accepts(tag("none"), "Hm " + opener)
    assert accepts(tag("none"), RESPONSE + "Hm" + RESPONSE_END)


def test_a_held_answer_is_in_its_channel() -> None:
    schema: TagFormat = {"type": "json_schema", "json_schema": {"type": "object"}}
    held = tag("auto", response=schema)
    assert accepts(held, RESPONSE + '{"a": 1}' + RESPONSE_END)
    assert accepts(held, RESPONSE + RESPONSE_END + ONE)
    assert not accepts(held, RESPONSE + "Hi" + RESPONSE_END)
    assert accepts(tag("auto", "response", response=schema), '{"a": 1}' + RESPONSE_END)
    alone = tag("none", "reasoning", response=schema)
    assert accepts(alone, "so" + THINK_END + RESPONSE + "{}" + RESPONSE_END)
    assert not accepts(alone, "so" + THINK_END + ONE)


def test_channels_are_made_of_special_tokens() -> None:
    """No vocabulary of Kimi K3 is published: single bytes, and its four tokens."""
    inner = tokenizers.Tokenizer(
        models.BPE(
            vocab={c: at for at, c in enumerate(pre_tokenizers.ByteLevel.alphabet())}, merges=[]
        )
    )
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    tokens = ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")
    inner.add_special_tokens([AddedToken(token, normalized=False) for token in tokens])
    tokenizer = Tokenizer.from_json(inner.to_str())
    written = "".join(marker.text for marker in K3.markers)
    keep = frozenset(token for token in tokenizer.special_tokens if token in written)
    assert keep == set(tokens)
    for case in cases("kimi_k3"):
        detokenizer, parser = Detokenizer(tokenizer, keep), K3.parser(case.spec)
        found = [
            event
            for token_id in tokenizer.encode_now(case.text)
            for event in parser.feed(detokenizer.feed([token_id]))
        ]
        found += parser.feed(detokenizer.finish())
        assert shown(assemble(found + parser.finish(cut=case.cut))) == case.events, case.id
