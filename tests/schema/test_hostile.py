"""Schemas made to hurt: normalised within bounds, and cheap for the engine afterwards."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from services.preprocessor.compile_check import CompileCheck
from tests.schema.hostile import schemas
from toolrail.schema.context import MAX_NODES
from toolrail.schema.normalise import normalise
from toolrail.settings import PreprocessorSettings

HOSTILE = schemas()
MAX_EMITTED_CHARACTERS = 200_000


def size(value: Any) -> int:
    """Objects in the emitted schema."""
    if isinstance(value, dict):
        return 1 + sum(map(size, value.values()))
    return sum(map(size, value)) if isinstance(value, list) else 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("style", ["json", "qwen_xml"])
def test_the_result_is_small_and_nothing_is_lost_in_silence(name: str, style: str) -> None:
    normalised = normalise(HOSTILE[name], style=style)
    assert size(normalised.schema) <= 2 * MAX_NODES
    assert len(json.dumps(normalised.schema)) <= MAX_EMITTED_CHARACTERS
    assert normalised.schema["type"] == "object"
    if name not in {"many ranges", "many patterns", "crossed intersections"}:
        assert normalised.report.status != "enforced" or style != "json"


@pytest.mark.slow
def test_the_engine_takes_each_within_its_budgets() -> None:
    async def body() -> None:
        check = CompileCheck(PreprocessorSettings(compile_timeout_s=60.0, compile_slice_s=60.0))
        await check.start()
        try:
            for schema in HOSTILE.values():
                content = {
                    "type": "json_schema",
                    "json_schema": normalise(schema).schema,
                    "max_whitespace_cnt": 2,
                }
                await check.check(json.dumps({"type": "structural_tag", "format": content}))
            assert check.stats.replaced == 0
        finally:
            await check.stop()

    anyio.run(body)
