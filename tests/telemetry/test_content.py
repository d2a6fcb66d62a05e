from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import INVALID_SPAN

from toolrail.telemetry.content import Content, call_part, message, text_part

NAME = "gen_ai.input.messages"
KEY = "sk-proj-" + "abcDEF0123456789" * 3


def put(content: Content, *values: dict[str, object], cut: bool = False) -> dict[str, Any]:
    """The attributes of a span with these."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provider.get_tracer("t").start_as_current_span("s") as span:
        content.put(span, NAME, values, cut=cut)
    (made,) = exporter.get_finished_spans()
    return dict(made.attributes or {})


def said(text: str) -> dict[str, object]:
    return message("user", [text_part(text)])


def test_nothing_is_put_unless_it_is_wanted() -> None:
    assert put(Content(), said("hello")) == {}
    full = Content("full")
    assert not full.wanted(INVALID_SPAN)
    assert json.loads(put(full, said(KEY))[NAME]) == [said(KEY)]


def test_what_the_rules_find_is_blacked_out() -> None:
    call = message("assistant", [call_part("c1", "login", {"password": "hunter22"})])
    attributes = put(Content("redacted"), said(f"My key is {KEY}."), call)
    assert list(attributes) == [NAME]
    assert KEY not in attributes[NAME]
    assert "hunter22" not in attributes[NAME]
    (first, second) = json.loads(attributes[NAME])
    assert first["parts"][0]["content"].startswith("My key is [redacted:")
    assert second["parts"][0]["name"] == "login"


@pytest.mark.parametrize("mode", ["redacted", "full"])
def test_it_is_bounded_and_the_oldest_goes_first(mode: Any) -> None:
    content = Content(mode, max_bytes=1000)
    many = put(content, *(said(f"{number} " + 'word "é" ' * 20) for number in range(90)))
    assert len(many[NAME].encode()) <= 1000
    assert many["toolrail.content_cut"] is True
    assert json.loads(many[NAME])[-1]["parts"][0]["content"].startswith("89 ")
    one = put(content, said("\x01" * 900))  # six bytes each as JSON
    assert len(one[NAME]) <= 1000
    assert json.loads(one[NAME])[0]["parts"][0]["content"].endswith("…")
    assert json.loads(put(content, said("x" * 100_000))[NAME]) == []
    assert put(content, said("short"), cut=True)["toolrail.content_cut"] is True


def test_no_half_of_a_secret_is_left_where_it_is_cut() -> None:
    content = Content("redacted", max_bytes=1000)
    for length in range(900, 1000, 3):
        text = put(content, said("x" * length + " " + KEY))[NAME]
        assert "sk-proj" not in text
