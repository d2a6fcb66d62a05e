"""Values of a pattern where the frame around a value is optional: both spellings, where safe."""

from __future__ import annotations

import pytest

from toolrail.families import family
from toolrail.grammar import accepts
from toolrail.structural_tag import TagFormat, tag
from toolrail.structural_tag.elements import Elements
from toolrail.syntax import XmlStyle

STYLE = family("beam").arguments


def parameter(pattern: str) -> TagFormat:
    assert isinstance(STYLE, XmlStyle)
    schema = {
        "type": "object",
        "properties": {"key": {"type": "string", "pattern": pattern}},
        "required": ["key"],
        "additionalProperties": False,
    }
    return tag("[", Elements(STYLE, schema, "").spelled_out(any_order=False), "]")


def written(value: str) -> str:
    return f'[<rfl:parameter name="key">{value}</rfl:parameter>]'


@pytest.mark.parametrize(
    ("pattern", "value", "unframed"),
    [
        ("^[a-z]+$", "word", True),
        ("^[a-z]+(\\n[a-z]+)*$", "two\nlines", True),
        ("^[a-z\\n]+$", "word", False),
        ("^x|y\\n$", "x", False),
    ],
)
def test_the_frame_is_optional_where_no_text_looks_framed(
    pattern: str, value: str, unframed: bool
) -> None:
    found = {"type": "structural_tag", "format": parameter(pattern)}
    assert accepts(found, written(f"\n{value}\n"))
    assert accepts(found, written(value)) is unframed
    assert not accepts(found, written(f"\n{value.upper()}\n"))
