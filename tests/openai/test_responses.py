"""The strict preflight of Responses: every submitted function, wherever it stands."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.openai.bodies import WEATHER
from toolrail.errors import CallerError
from toolrail.openai.responses import check_responses

OPEN = {"type": "object"}


def flat(name: str = "f", parameters: Any = WEATHER, **more: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": parameters, **more}


def namespace(*tools: dict[str, Any], name: str = "n") -> dict[str, Any]:
    return {"type": "namespace", "name": name, "description": "d", "tools": list(tools)}


def check(**fields: Any) -> None:
    check_responses(json.dumps({"model": "m", "input": "hi", **fields}).encode())


def test_what_passes() -> None:
    check()
    check(tools=[])
    check(tools=[flat(strict=True), flat("g", OPEN), flat("h", None, strict=True)])
    check(tools=[{"type": "custom", "name": "patch"}, namespace(flat(strict=True))])
    check(tools=[namespace(flat(), name="a"), namespace(flat(), name="b")])
    check(input=[{"role": "user", "content": "hi"}])
    check(text={"format": {"type": "text"}})
    check(text={"format": {"type": "json_schema", "name": "x", "schema": OPEN}})


REFUSED = [
    ({"tools": [flat(parameters=OPEN, strict=True)]}, "tools[0].parameters"),
    ({"tools": [flat("a"), flat("b", OPEN, strict=True)]}, "tools[1].parameters"),
    (
        {"tools": [namespace(flat("a"), flat("b", OPEN, strict=True))]},
        "tools[0].tools[1].parameters",
    ),
    (
        {
            "tools": [flat("a"), flat("b", OPEN, strict=True)],
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "a"}],
            },
        },
        "tools[1].parameters",
    ),
    (
        {"text": {"format": {"type": "json_schema", "name": "x", "schema": OPEN, "strict": True}}},
        "text.format.schema",
    ),
    ({"tools": [flat("a b")]}, "tools[0].name"),
    ({"tools": [flat(), flat()]}, "tools[1].name"),
    ({"tools": [namespace()]}, "tools[0].tools"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": [flat(parameters=[])]}, "tools[0].parameters"),
    ({"model": 5}, "model"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED)
def test_what_is_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(CallerError) as info:
        check(**fields)
    assert (info.value.status, info.value.param) == (400, param)
