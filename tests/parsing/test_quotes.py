"""Which markers are only talked about."""

from __future__ import annotations

import pytest

from toolrail.parsing.quotes import ProseContext, closing


@pytest.mark.parametrize(
    ("before", "loose", "strict"),
    [
        ("the literal ", None, None),
        ('the literal "', '"', '"'),
        ("the literal 'example ", "'", "'"),
        ("the literal 'doesn't ", "'", "'"),
        ("it doesn't ", None, None),
        ("the `", "`", "`"),
        ('say("', '"', '"'),
        ('5" wide ', None, None),
        ('said "yes" ', None, None),
        ('said "yes" and "', '"', '"'),
        ('x="', '"', None),
        ('"a {b} ', '"', None),
        ("“so ", "”", "”"),
        ('"line\n', None, None),
        ("```xml\n", "```", "```"),
        ("```xml\na\n```\n", None, None),
    ],
)
def test_open_quote(before: str, loose: str | None, strict: str | None) -> None:
    whole, pieces = ProseContext(), ProseContext()
    whole.add(before)
    for character in before:
        pieces.add(character)
    for context in (whole, pieces):
        assert context.open_quote() == loose
        assert context.open_quote(strict=True) == strict


@pytest.mark.parametrize(
    ("after", "quote", "loose", "strict"),
    [
        ('" marker', '"', 1, 1),
        (" marker' stays", "'", 8, 8),
        (' { example }" stays', '"', 13, -1),
        (" doesn't\" so", '"', 9, 9),
        (' has"more words', '"', -1, -1),
        (' and "other" text', '"', -1, -1),
        ("\nmore` text", "`", 6, -1),
        ("\n\nmore` text", "`", -1, -1),
        ("\n```\nOk", "```", 4, 4),
        ("\nwords\n```\nOk", "```", 10, -1),
        (" no end", '"', -1, -1),
    ],
)
def test_closing(after: str, quote: str, loose: int, strict: int) -> None:
    assert closing(after, 0, quote, strict=False, final=True) == loose
    assert closing(after, 0, quote, strict=True, final=True) == strict


def test_closing_waits_for_what_decides() -> None:
    assert closing(" marker", 0, '"', strict=True, final=False) is None
    assert closing(' marker"', 0, '"', strict=True, final=False) is None
    assert closing(" " + "word " * 100, 0, '"', strict=True, final=False) == -1
