"""The table of fields in the documents has every field, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from toolrail.openai.wire import ChatBody

DOCUMENT = Path(__file__).parents[2] / "docs" / "requests.md"


def test_every_field_of_chat_completions_is_in_the_table() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    section = text.partition("## Fields of Chat Completions")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)}
    fields = {field.name for field in msgspec.structs.fields(ChatBody)}
    assert named - {"include_usage"} == fields - {"stream_options"}
