"""Tools of a Responses request: namespaces, custom tools, and every kind of choice."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.openai.bodies import WEATHER
from toolrail.errors import CallerError
from toolrail.openai.chat import ChatRequest
from toolrail.openai.conversation import UserMessage
from toolrail.openai.responses import check_responses
from toolrail.openai.responses.request import Past, read_responses, responses_request
from toolrail.openai.setting import schema_params

F = {"type": "function", "name": "f", "parameters": WEATHER, "description": "About f."}
G = {"type": "function", "name": "g", "parameters": None}
P = {"type": "custom", "name": "p"}


def space(name: str, *tools: Any) -> dict[str, Any]:
    return {
        "type": "namespace",
        "name": name,
        "description": f"About {name}.",
        "tools": list(tools),
    }


TOOLS = [F, P, space("crm", F, G), space("erp", G, P)]


def read(**fields: Any) -> ChatRequest:
    return check_responses(json.dumps({"model": "m", "input": "hi", **fields}).encode())


def refused(**fields: Any) -> CallerError:
    with pytest.raises(CallerError) as info:
        read(**fields)
    assert info.value.status == 400
    return info.value


def test_members_of_a_namespace_have_flat_names() -> None:
    request = read(tools=TOOLS)
    names = ["f", "p", "crm__f", "crm__g", "erp__g", "erp__p"]
    assert [tool.name for tool in request.tools] == names
    assert [tool.kind for tool in request.tools] == [
        "function", "custom", "function", "function", "function", "custom",
    ]  # fmt: skip
    assert request.origin.namespaces == {
        "crm__f": ("crm", "f"),
        "crm__g": ("crm", "g"),
        "erp__g": ("erp", "g"),
        "erp__p": ("erp", "p"),
    }
    assert schema_params(request) == {
        "f": "tools[0].parameters",
        "p": "tools[1].format",
        "crm__f": "tools[2].tools[0].parameters",
        "crm__g": "tools[2].tools[1].parameters",
        "erp__g": "tools[3].tools[0].parameters",
        "erp__p": "tools[3].tools[1].format",
    }


def test_a_namespace_is_described_once() -> None:
    about = {tool.name: tool.description for tool in read(tools=TOOLS).tools}
    assert about["crm__f"] == "About crm.\n\nAbout f."
    assert (about["crm__g"], about["erp__g"], about["erp__p"]) == (None, "About erp.", None)


ALL = ("f", "p", "crm__f", "crm__g", "erp__g", "erp__p")
CHOICES: list[tuple[Any, str, tuple[str, ...]]] = [
    (None, "auto", ALL),
    ("auto", "auto", ALL),
    ("none", "none", ()),
    ("required", "required", ALL),
    ({"type": "function", "name": "f"}, "named", ("f",)),
    ({"type": "custom", "name": "p"}, "named", ("p",)),
    ({"type": "function", "name": "crm__g"}, "named", ("crm__g",)),
    ({"type": "function", "name": "g", "namespace": "erp"}, "named", ("erp__g",)),
    ({"type": "custom", "name": "p", "namespace": "erp"}, "named", ("erp__p",)),
]


@pytest.mark.parametrize(("choice", "mode", "names"), CHOICES)
def test_choices(choice: Any, mode: str, names: tuple[str, ...]) -> None:
    found = read(tools=TOOLS, tool_choice=choice).choice
    assert (found.mode, tuple(tool.name for tool in found.callable)) == (mode, names)


def test_a_subset_may_be_allowed() -> None:
    entries = [
        {"type": "custom", "name": "p"},
        {"type": "function", "name": "f"},
        {"type": "namespace", "name": "erp"},
    ]
    allowed = {"type": "allowed_tools", "mode": "required", "tools": entries}
    found = read(tools=TOOLS, tool_choice=allowed).choice
    assert found.mode == "required"
    assert [tool.name for tool in found.callable] == ["f", "p", "erp__g", "erp__p"]


def test_the_own_name_of_a_member_is_enough_where_it_is_alone() -> None:
    found = read(
        tools=[space("a", F), space("b", G)], tool_choice={"type": "function", "name": "g"}
    )
    assert [tool.name for tool in found.choice.callable] == ["b__g"]


ONE = [F]
REFUSED: list[tuple[list[Any], Any, str]] = [
    ([{"type": "web_search"}], None, "tools[0].type"),
    ([F, {"type": "mcp", "server_label": "s"}], None, "tools[1].type"),
    ([space("n", {"type": "file_search"})], None, "tools[0].tools[0].type"),
    ([space("n", space("m", F))], None, "tools[0].tools[0].type"),
    ([F, F], None, "tools[1].name"),
    ([space("n", F, F)], None, "tools[0].tools[1].name"),
    ([space("n", F), F | {"name": "n__f"}], None, "tools[1].name"),
    ([space("n", F), space("n", G)], None, "tools[1].name"),
    ([{"type": "function", "function": {"name": "f"}}], None, "tools[0].function"),
    ([F | {"async": True}], None, "tools[0].async"),
    ([F | {"allowed_callers": ["programmatic"]}], None, "tools[0].allowed_callers"),
    ([P | {"format": {"type": "grammar"}}], None, "tools[0].format"),
    ([{"name": "f"}], None, "tools[0].type"),
    (ONE, "always", "tool_choice"),
    (ONE, {"type": "web_search"}, "tool_choice.type"),
    (ONE, {"type": "function"}, "tool_choice.name"),
    (ONE, {"type": "function", "name": "g"}, "tool_choice"),
    (ONE, {"type": "custom", "name": "f"}, "tool_choice"),
    (ONE, {"type": "namespace", "name": "n"}, "tool_choice.type"),
    (ONE, {"type": "allowed_tools", "mode": "auto", "tools": []}, "tool_choice.tools"),
    (ONE, {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp"}]},
     "tool_choice.tools[0].type"),
    (ONE, {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "g"}]},
     "tool_choice.tools[0]"),
    ([], "required", "tool_choice"),
    ([], {"type": "function", "name": "f"}, "tool_choice"),
    ([space("a", F), space("b", F)], {"type": "function", "name": "f"}, "tool_choice"),
]  # fmt: skip


@pytest.mark.parametrize(("tools", "choice", "param"), REFUSED)
def test_what_is_refused(tools: list[Any], choice: Any, param: str) -> None:
    assert refused(tools=tools, tool_choice=choice).param == param


def test_a_hosted_tool_is_refused_with_what_there_is_instead() -> None:
    error = refused(tools=[{"type": "code_interpreter", "container": {"type": "auto"}}])
    assert error.code == "unsupported_value"
    assert "'function', 'custom' and 'namespace'" in error.message


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("web_search_preview", ": hosted tools do not run here."),
        ("shell", ", which the client runs, are not written here."),
        ("computer_use_preview", ", which the client runs, are not written here."),
        ("teapot", "'teapot' are not supported. "),
    ],
)
def test_a_refused_tool_is_called_what_it_is(kind: str, why: str) -> None:
    assert why in refused(tools=[{"type": kind}]).message


def test_hosted_tools_may_be_left_out() -> None:
    fields = {
        "tools": [{"type": "web_search", "external_web_access": False}, F, {"type": "mcp"}],
        "tool_choice": {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "web_search"}, {"type": "function", "name": "f"}],
        },
        "input": [{"type": "web_search_call", "id": "ws_1"}, {"role": "user", "content": "hi"}],
    }
    raw = json.dumps({"model": "m", **fields}).encode()
    past = Past([msgspec.Raw(b'{"type": "mcp_call", "id": "m"}')])
    request = responses_request(read_responses(raw, without_hosted=True), past)
    assert [tool.name for tool in request.choice.callable] == ["f"]
    assert request.origin.schemas == {"f": "tools[1].parameters"}
    assert request.messages == (UserMessage("hi"),)
    for tool in ("shell", "apply_patch", "computer"):
        raw = json.dumps({"model": "m", "input": "x", "tools": [{"type": tool}]}).encode()
        with pytest.raises(CallerError):
            responses_request(read_responses(raw, without_hosted=True), None)
