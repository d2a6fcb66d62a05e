"""The enforcement report as a header: what it holds, and that it fits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.gateway.enforcement import HEADER, MAX_BYTES, header_value
from tests.services.gateway_double import stack, text
from toolrail.messages import Failed


def report(tools: int, keywords: int, **more: Any) -> dict[str, Any]:
    line = {
        "strict": None,
        "status": "checked_after",
        "keywords": {
            "#/type": {"status": "enforced"},
            **{
                f"#/properties/größe{n}\x7f\r\n/maxLength": {
                    "status": "checked_after",
                    "reason": "long_bound",
                    "detail": "the grammar counts up to 256 characters",
                }
                for n in range(keywords)
            },
        },
    }
    return {"held_by": "structural_tag", "tools": {f"t{n}": line for n in range(tools)}, **more}


def shown(full: dict[str, Any]) -> dict[str, Any]:
    value = header_value(json.dumps(full))
    assert len(value) <= MAX_BYTES
    assert all(0x20 <= byte < 0x7F for byte in value)
    return json.loads(value)


def test_what_is_not_enforced_is_named_and_the_rest_is_counted() -> None:
    found = shown(report(1, 1, notes=["a wish that is not granted"]))
    assert found == {
        "held_by": "structural_tag",
        "keywords": {"enforced": 1, "checked_after": 1},
        "tools": {
            "t0": {
                "status": "checked_after",
                "keywords": {"#/properties/größe0\x7f\r\n/maxLength": "checked_after"},
            }
        },
        "notes": ["a wish that is not granted"],
    }


@pytest.mark.parametrize(("tools", "keywords"), [(1, 100), (30, 3), (128, 0), (128, 200)])
def test_a_report_that_does_not_fit_says_so_and_counts_all_of_it(tools: int, keywords: int) -> None:
    found = shown(report(tools, keywords, reason="because " * 1000))
    assert found["truncated"] is True
    assert found["keywords"].get("checked_after", 0) == tools * keywords
    assert found["tools"]


@pytest.mark.anyio
@pytest.mark.parametrize("failed", [False, True])
async def test_it_comes_with_whatever_the_answer_is(*, failed: bool) -> None:
    async with stack(enforcement=json.dumps(report(1, 1))) as s:
        answer = s.visit(headers={HEADER: "1"})
        rid = await s.peers.request()
        if failed:
            gone = Failed(request_id=rid, code="model_output", message="broken", status=502)
            await s.peers.say(rid, failed=gone)
        else:
            await s.peers.finish(rid, *text("a"))
        await answer.end()
        assert answer.status == (502 if failed else 200)
        assert json.loads(answer.headers[HEADER])["held_by"] == "structural_tag"
