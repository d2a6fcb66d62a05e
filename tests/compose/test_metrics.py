"""Series: in the docs as in the code, bounded whatever callers write, and they count."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests import pipeline
from tests.compose.metrics_table import PAGE, page, rows
from tests.e2e.script import hermes
from tests.e2e.tools import ask, tool

MANY = 1000
"""Names of tools; every fourth is also one of a model and a path."""
SCRIPT = [
    {"match": "case wrong", "text": hermes("point", {"x": "no"})},
    {"match": "case nothing", "text": hermes("point", {})},
    {"match": "case stranger", "text": hermes("pint", {"x": 1})},
    {"match": "case cut", "text": hermes("point", {"x": 1})[:30], "finish": "length"},
    {"match": "case broken", "text": hermes("point", {"x": 1}).replace("1", "oops") + " and"},
    {"match": "case call", "text": hermes("point", {"x": 1})},
    {"match": "", "text": "So <think> it is."},
]
SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pipeline.Pipeline]:
    script = tmp_path_factory.mktemp("script") / "script.jsonl"
    script.write_text("".join(json.dumps(row) + "\n" for row in SCRIPT), "utf-8")
    with pipeline.running("--script", str(script)) as made:
        yield made


def values(running: pipeline.Pipeline, service: str, name: str) -> dict[tuple[str, ...], float]:
    """The samples of a series that are not zero, by the values of their labels."""
    return {
        tuple(sample.labels.values()): sample.value
        for metric in running.metrics[service].collect()
        for sample in metric.samples
        if sample.name == name and sample.value
    }


def said(client: httpx.Client, case: str, **more: Any) -> int:
    return client.post("/v1/chat/completions", json=ask(f"case {case}", **more)).status_code


def test_the_page_says_what_the_services_have(running: pipeline.Pipeline) -> None:
    assert PAGE.read_text("utf-8") == page(running.metrics)
    for found in rows(running.metrics).values():
        for row in found:
            assert row.help.endswith("."), row.name
            if row.name.startswith("toolrail_"):
                assert (row.name.endswith("_total")) == (row.kind == "counter")


def test_calls_are_counted_by_what_became_of_them(running: pipeline.Pipeline) -> None:
    free = tool("point", SCHEMA, strict=False)
    with running.client() as client:
        for case in ("wrong", "nothing", "stranger", "cut", "broken", "call"):
            assert said(client, case, tools=[free]) == 200
    calls = values(running, "postprocessor", "toolrail_postprocessor_calls_total")
    outcomes = ("invalid", "empty", "unknown_tool", "truncated", "malformed", "valid")
    assert calls == {("demo", "hermes", outcome): 1 for outcome in outcomes}
    recovered = values(running, "postprocessor", "toolrail_postprocessor_parser_recoveries_total")
    assert recovered == {("hermes", "went_on"): 1}


def test_none_is_counted_with_what_its_prompt_shows_and_what_is_banned(
    running: pipeline.Pipeline,
) -> None:
    with running.client() as client:
        assert (
            said(client, "words", tools=[tool("point", SCHEMA, strict=None)], tool_choice="none")
            == 200
        )
    forbidden = values(running, "preprocessor", "toolrail_preprocessor_calls_forbidden_total")
    assert forbidden == {("hermes", "excluded", "banned"): 1}
    held = values(running, "preprocessor", "toolrail_preprocessor_held_by_total")
    assert held[("hermes", "structural_tag", "none")] == 1


def test_markers_in_text_are_counted_with_what_was_allowed(running: pipeline.Pipeline) -> None:
    name = "toolrail_postprocessor_markers_in_text_total"
    before = running.count("postprocessor", name)
    with running.client() as client:
        assert said(client, "words") == 200
    assert running.count("postprocessor", name) == before + 1
    assert ("hermes", "none") in values(running, "postprocessor", name)


def test_the_line_and_the_queue_are_measured(running: pipeline.Pipeline) -> None:
    with running.client() as client:
        assert said(client, "words") == 200
    assert running.count("worker", "toolrail_worker_queue_wait_seconds_count") >= 1
    assert running.count("worker", "toolrail_worker_redeliveries_total") == 0
    (line,) = (
        sample
        for metric in running.metrics["postprocessor"].collect()
        for sample in metric.samples
        if sample.name == "toolrail_postprocessor_waiting_streams"
    )
    assert (line.labels, line.value) == ({"model": "demo"}, 0)


@pytest.mark.exhaustive
def test_what_callers_write_makes_no_series(running: pipeline.Pipeline) -> None:
    def count() -> dict[str, int]:
        return {
            service: sum(len(metric.samples) for metric in registry.collect())
            for service, registry in running.metrics.items()
        }

    def named(client: httpx.Client, names: list[str]) -> None:
        schema = {"type": "object"}
        offered = [tool(name, schema, strict=None) for name in names]
        assert said(client, "words", tools=offered, tool_choice="none", user=names[0]) == 200
        for name in names[: len(names) // 4]:
            assert said(client, "words", model=name) == 404
            assert client.get(f"/v1/{name}").status_code == 404

    with httpx.Client(base_url=running.base_url, timeout=60) as client:
        named(client, ["first", "second", "third", "fourth"])
        before = count()
        for start in range(0, MANY, 100):
            named(client, [f"name{number}" for number in range(start, start + 100)])
    assert count() == before
