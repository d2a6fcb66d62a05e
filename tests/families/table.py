"""The table of `docs/families.md`, made from the records: `python -m tests.families.table`.

Nothing in it is written by hand: a cell is what the family's parser, tag and cases do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from tests.families.loading import CASES, FAMILIES, cases, events
from tests.families.test_real_tokens import own_markers
from tests.families.walking import tag_json
from toolrail.errors import CallerError
from toolrail.events import ArgumentsDelta, Call
from toolrail.families import Dialect, dialect, families, tool_parser_names
from toolrail.families import family as family_of
from toolrail.grammar import GrammarError, check_tag
from toolrail.openai.chat import check_chat
from toolrail.openai.constraint import Setting, settle
from toolrail.openai.policy import Deployment
from toolrail.parsing import ParseSpec
from toolrail.structural_tag import TagOptions
from toolrail.tools import Tool, ToolChoice, ToolPolicy

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "families.md"
_HEAD: Final = """# Families

One row a family, made by `python -m tests.families.table` from the records themselves; a test holds
this page to it. How a family is added: [adding a family](adding-a-family.md).

- **names**: what `--tool-call-parser` takes, engine spellings included.
- **reasoning**: reasoning parsers of the same models; one machine reads both.
- **streams**: how many pieces a 300-character string argument leaves in when it arrives a character
  at a time. 1 means that it waits for its end.
- **tag**: tool choices that a structural tag holds. **bans**: what a `none` tag keeps out.
- **held** and **left**: of the JSON Schema keywords that were tried, which the grammar holds and
  which are relaxed or dropped and checked after generation.
- **tokens**: every case also runs id by id through DeepSeek's vocabulary. `real`: it has the
  family's single-token markers itself; `added`: they were added to it; `text`: there are none.
- **cases**: rows of `tests/families/cases/`, and how many came from a published corpus.

"""
_COLUMNS: Final = (
    "family",
    "names",
    "reasoning",
    "streams",
    "tag",
    "bans",
    "held",
    "left",
    "tokens",
    "cases",
)
_TOOL: Final = Tool(
    "write", {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
)
_CHOICES: Final[tuple[ToolChoice, ...]] = ("auto", "required", "named", "none")
_KEYWORDS: Final[Mapping[str, object]] = {
    "type": {"type": "integer"},
    "enum": {"enum": ["a", "b"]},
    "const": {"const": "a"},
    "pattern": {"type": "string", "pattern": "^[a-z]{2,5}$"},
    "minLength": {"type": "string", "minLength": 2},
    "maxLength": {"type": "string", "maxLength": 5},
    "format": {"type": "string", "format": "date"},
    "minimum": {"type": "integer", "minimum": 1},
    "maximum": {"type": "integer", "maximum": 9},
    "items": {"type": "array", "items": {"type": "integer"}},
    "minItems": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
    "maxItems": {"type": "array", "items": {"type": "integer"}, "maxItems": 2},
    "properties": {"type": "object", "properties": {"a": {"type": "integer"}}},
    "required": {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    },
    "anyOf": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    "uniqueItems": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
    "multipleOf": {"type": "number", "multipleOf": 0.5},
}


def document() -> str:
    """The whole page."""
    return _HEAD + table() + "\n"


def table() -> str:
    """The table as Markdown."""
    lines = [_COLUMNS, tuple("---" for _ in _COLUMNS)]
    lines += [_row(name) for name in FAMILIES]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _row(name: str) -> tuple[str, ...]:
    pair = _pair(name)
    held, left = _keywords(pair)
    found = cases(name)
    published = sum(_origin(name, "golden", "fixture"))
    own = family_of(name)
    return (
        f"`{name}`",
        _code(n for n in tool_parser_names() if n != name and family_of(n) == own),
        _code(own.reasoning_names),
        str(_pieces(pair)),
        ", ".join(_tagged(pair)) or "none",
        _code(pair.bans),
        ", ".join(held) or "nothing",
        ", ".join(left) or "nothing",
        _tokens(pair),
        f"{len(found)} ({published})",
    )


@cache
def _pair(name: str) -> Dialect:
    own = family_of(name)
    return dialect(name, own.reasoning_names[0] if own.reasoning_names else None)


def _pieces(pair: Dialect) -> int:
    text = pair.render([Call("write", json.dumps({"text": "a b " * 75}))])
    spec = ParseSpec(pair.tool_parser, pair.reasoning_parser, (_TOOL,))
    return sum(
        isinstance(event, ArgumentsDelta) and "a" in event.text for event in events(spec, text)
    )


def _tagged(pair: Dialect) -> list[str]:
    tags = {c: pair.tag(ToolPolicy(c, (_TOOL,)), "none", TagOptions()) for c in _CHOICES}
    for tag in tags.values():
        if tag is not None:
            check_tag(tag_json(tag))
    return [choice for choice, tag in tags.items() if tag is not None]


def _keywords(pair: Dialect) -> tuple[list[str], list[str]]:
    statuses = {keyword: _status(pair, keyword) for keyword in _KEYWORDS}
    held = [keyword for keyword, status in statuses.items() if status == "enforced"]
    return held, [keyword for keyword in statuses if keyword not in held]


def _status(pair: Dialect, keyword: str) -> str:
    parameters = {"type": "object", "properties": {"p": _KEYWORDS[keyword]}, "required": ["p"]}
    request = {
        "model": "m",
        "messages": [{"role": "user", "content": "?"}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": parameters}}],
        "tool_choice": "required",
    }
    deployment = Deployment.of(pair.family, options=TagOptions(), exclude_tools_when_none=True)
    setting = Setting(deployment, pair, pair.tool_parser, pair.reasoning_parser, "none")
    settling = settle(check_chat(json.dumps(request).encode()), setting)
    try:
        pending = next(settling)
        while True:
            pending = settling.send(_verdict(pending))
    except StopIteration as settled:
        report = settled.value.report.to_json()
    if report["held_by"] != "structural_tag":
        return "dropped"
    return report["tools"]["f"]["keywords"].get(f"#/properties/p/{keyword}", {}).get("status", "")


def _verdict(tag: str) -> CallerError | None:
    try:
        check_tag(tag)
    except GrammarError as error:
        return CallerError(str(error))
    return None


def _tokens(pair: Dialect) -> str:
    special = {marker.text for marker in pair.markers if marker.special}
    if not special:
        return "text"
    return "real" if special <= own_markers() else "added"


def _origin(name: str, *origins: str) -> list[bool]:
    lines = (CASES / f"{name}.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line).get("origin") in origins for line in lines]


def _code(texts: object) -> str:
    return ", ".join(f"`{text}`".replace("|", "\\|") for text in sorted(texts)) or "none"  # type: ignore[call-overload]


if __name__ == "__main__":
    assert {f.name for f in families()} == set(FAMILIES)
    DOCUMENT.write_text(document(), "utf-8")
