"""The chat template for Gemma 4 that ships with us, against what the published one writes.

`gemma4_prompts.jsonl` holds, for each conversation, the prompt of the named template.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from tests.families.loading import parse
from toolrail.chat_template import ChatTemplate
from toolrail.errors import CallerError
from toolrail.families import dialect
from toolrail.parsing import ParseSpec

SOURCE = files("toolrail").joinpath("families/templates/gemma4_tool.jinja").read_text("utf-8")
TEMPLATE = ChatTemplate(SOURCE, bos_token="<bos>")
ROWS = [
    json.loads(line)
    for line in (Path(__file__).parent / "gemma4_prompts.jsonl").read_text("utf-8").splitlines()
]
USER = {"role": "user", "content": "Weather?"}
GEMMA = dialect("gemma4", "gemma4")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["case"])
def test_prompts_are_those_of_the_published_template(row: dict[str, Any]) -> None:
    assert TEMPLATE.render(row["messages"], row["tools"], **row["variables"]) == row["text"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["case"])
def test_what_a_prompt_left_open_is_told_from_its_end(row: dict[str, Any]) -> None:
    opened = row["text"].endswith("<|channel>thought\n")
    assert GEMMA.starts_in(row["text"]) == ("reasoning" if opened else "none")


def test_an_empty_channel_leaves_the_answer_open() -> None:
    prompt = TEMPLATE.render([USER], empty_reasoning=True)
    assert prompt.endswith("<|turn>model\n<|channel>thought\n<channel|>")
    assert GEMMA.starts_in(prompt) == "response"


def test_the_model_sees_its_turn_as_it_wrote_it() -> None:
    """Text before a call stays before it, so that the prompt's prefix stays the same."""
    wrote = 'On it.<|tool_call>call:f{a:{b:[1,<|"|>x<|"|>]},c:null}<tool_call|>'
    turn = parse(ParseSpec("gemma4"), wrote)
    call = turn.calls[0]
    message = {
        "role": "assistant",
        "content": turn.content,
        "tool_calls": [
            {"id": "1", "function": {"name": call.name, "arguments": json.loads(call.arguments)}}
        ],
    }
    first = TEMPLATE.render([USER])
    assert TEMPLATE.render([USER, message]) == f"{first}{wrote}<|tool_response>"


def declared(schema: object) -> str:
    """How the template shows the model a parameter."""
    parameters = {
        "type": "object",
        "properties": {"p": schema},
        "$defs": {"D": {"type": "object", "properties": {"q": {"type": "string"}}}},
    }
    function = {"name": "f", "description": "d", "parameters": parameters}
    prompt = TEMPLATE.render([USER], [{"type": "function", "function": function}])
    return prompt.partition("properties:{p:")[2].partition('},type:<|"|>OBJECT<|"|>}}<tool|>')[0]


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        (
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
            '{nullable:true,type:<|"|>STRING<|"|>}',
        ),
        ({"type": ["integer", "null"]}, '{nullable:true,type:<|"|>INTEGER<|"|>}'),
        (
            {"anyOf": [{"type": "string"}, {"type": "integer"}], "description": "x"},
            '{description:<|"|>x<|"|>,type:[<|"|>STRING<|"|>,<|"|>INTEGER<|"|>]}',
        ),
        (
            {"$ref": "#/$defs/D"},
            '{properties:{q:{type:<|"|>STRING<|"|>}},type:<|"|>OBJECT<|"|>}',
        ),
        ({"const": 'a<|"|>b'}, '{enum:[<|"|>a"b<|"|>]}'),
        ({"$ref": "#/nowhere"}, "{}"),
        (True, "{}"),
    ],
)
def test_schemas_that_the_published_template_loses(schema: object, shown: str) -> None:
    assert declared(schema) == shown


def test_parts_of_a_message_are_joined_as_they_are() -> None:
    parts = [{"type": "text", "text": "a "}, {"type": "image"}, {"type": "text", "text": "b"}]
    prompt = TEMPLATE.render([{"role": "user", "content": parts}])
    assert "<|turn>user\na <|image|>b<turn|>" in prompt


def test_arguments_as_text_are_refused() -> None:
    calls = [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]
    with pytest.raises(CallerError, match="must be an object"):
        TEMPLATE.render([USER, {"role": "assistant", "content": None, "tool_calls": calls}])
