"""Strings drawn at random from a compiled tag, over bytes and the family's own strings."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from toolrail.families import Dialect
from toolrail.grammar import CompiledGrammar, Matcher, Vocabulary, compile_tag
from toolrail.structural_tag import TagFormat, TagOptions
from toolrail.syntax import NotationStyle, XmlStyle
from toolrail.tools import StartsIn, Tool, ToolPolicy

CHOICES = ("auto", "required", "named", "none")
MAX_TOKENS = 400
PATIENCE = 40
"""Tokens after which a walk begins to make for the end."""

TOOLS = (
    Tool(
        "get_weather",
        {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "unit": {"type": "string", "enum": ["°C", "kelvin", "42"]},
                "note": {"type": ["string", "null"]},
            },
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    ),
    Tool(
        "typed",
        {
            "type": "object",
            "properties": {
                "on": {"type": "boolean"},
                "ratio": {"type": "number"},
                "mode": {"const": "fast"},
                "level": {"enum": [1, 2, "high"]},
                "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "place": {"$ref": "#/$defs/Place"},
                "numbers": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
            },
            "required": ["on", "place"],
            "additionalProperties": False,
            "$defs": {"Place": {"type": "string"}},
        },
    ),
    Tool(
        "constrained",
        {
            "type": "object",
            "properties": {
                "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{2}$"},
                "path": {"type": "string", "pattern": "^.*$"},
                "short": {"type": "string", "minLength": 1, "maxLength": 4},
                "day": {"type": "string", "format": "date"},
                "odd": {"type": "string", "enum": [" a", "<b>", "c\n", ""]},
                "sep": {"const": "\n"},
            },
            "required": ["code", "short"],
            "additionalProperties": False,
        },
    ),
    Tool(
        "nested",
        {
            "type": "object",
            "properties": {
                "options": {
                    "type": "object",
                    "properties": {"text": {"type": "string"}, "n": {"type": "number"}},
                    "required": ["text"],
                    "additionalProperties": False,
                },
                "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
                "both": {"anyOf": [{"type": "string"}, {"type": "object"}]},
            },
            "required": ["options"],
            "additionalProperties": False,
        },
    ),
    Tool("ping", {"type": "object", "properties": {}, "additionalProperties": False}),
    Tool("free", None),
)
RELAXED = tuple(Tool(tool.name, tool.parameters, strict=False) for tool in TOOLS)
_WORDS = (
    *("city", "days", "unit", "Paris", "é", "東京", "null", "true", "42", "-1", "1.5", "fast"),
    *('"', '": ', '", "', "{", "}", '{"', "[", "]", ", ", ": ", "\\n", '\\"', "\n", "\n\n", " "),
    *("kelvin", "°C", "high", "AB-12", "2024-05-06", "options", "text", "ab", "hm"),
)


@dataclass(frozen=True)
class Setting:
    """One tag to walk."""

    choice: str
    starts_in: StartsIn
    strict: bool
    parallel: bool

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The offered tools."""
        offered = TOOLS if self.strict else RELAXED
        return offered[2:3] if self.choice == "named" else offered

    @property
    def policy(self) -> ToolPolicy:
        """The policy of the tag."""
        return ToolPolicy(self.choice, self.tools, self.parallel)

    def __str__(self) -> str:
        """As a test id."""
        held = "strict" if self.strict else "relaxed"
        return f"{self.choice}-{self.starts_in}-{held}-{'parallel' if self.parallel else 'single'}"


SETTINGS = tuple(
    Setting(choice, start, strict, parallel)
    for choice in CHOICES
    for start in ("none", "reasoning")
    for strict in (True, False)
    for parallel in (True, False)
    if not (choice == "none" and not strict)
)


def tag_of(dialect: Dialect, setting: Setting, options: TagOptions | None = None) -> TagFormat:
    """The tag of a setting."""
    found = dialect.tag(setting.policy, setting.starts_in, options or TagOptions())
    assert found is not None
    return found


def tag_json(tag: TagFormat) -> str:
    """A tag as the engine takes it."""
    return json.dumps({"type": "structural_tag", "format": tag}, ensure_ascii=False)


class Walker:
    """Draws strings from tags of one dialect."""

    def __init__(self, dialect: Dialect) -> None:
        markers = [marker.text for marker in dialect.markers]
        style = dialect.family.arguments if dialect.family else None
        if isinstance(style, XmlStyle):
            markers += [style.open, style.close, style.close + style.after]
            markers += [style.frame + style.close] if style.frame else []
        if isinstance(style, NotationStyle) and style.reads == "block":
            # Calls without markers: their names are what tells them from prose.
            markers += [f"{opening}{tool.name}(" for tool in TOOLS for opening in ("", "[", "[ ")]
        pieces = {piece for marker in markers for piece in (marker[:3], marker[-2:])}
        letters = sorted({c for text in (*markers, *_WORDS) for c in text if not c.isascii()})
        words = list(dict.fromkeys([*_WORDS, *markers, *sorted(pieces), *letters]))
        # Bytes that are no text by themselves stay out: a model writes whole characters.
        self._tokens = [bytes([b]) if b < 128 else b"" for b in range(256)]
        self._tokens += [*(w.encode() for w in words), b"<end>"]
        self._end = len(self._tokens) - 1
        self._vocabulary = Vocabulary(self._tokens, (self._end,))
        self._markers = _mask(256 + words.index(m) for m in markers)
        self._words = _mask(range(256, self._end))
        self._plain = _mask([10, *range(32, 127)])
        closing = ["}", '"', "]", *(m for m in markers if "/" in m or "end" in m)]
        self._closing = _mask(self._tokens.index(c.encode()) for c in closing)

    def compile(self, tag: TagFormat) -> CompiledGrammar:
        """The tag over this walker's vocabulary."""
        return compile_tag(tag_json(tag), self._vocabulary)

    def walk(self, compiled: CompiledGrammar, random_: random.Random) -> str | None:
        """A random string of the tag; None when it would not end in time. Fails at a dead end."""
        matcher = Matcher(compiled)
        out: list[bytes] = []
        for step in range(MAX_TOKENS):
            allowed = int.from_bytes(matcher.allowed(), "little")
            if allowed >> self._end & 1 and random_.random() < (0.15 if step < PATIENCE else 0.8):
                break
            allowed &= ~(1 << self._end)
            if not allowed:
                assert matcher.can_end, b"".join(out)  # no dead end
                break
            token = _pick(allowed, self._groups(step), random_)
            assert matcher.accept_token(token)
            out.append(self._tokens[token])
        if not matcher.can_end:
            return None
        return b"".join(out).decode()

    def _groups(self, step: int) -> Sequence[tuple[float, int]]:
        late = step > PATIENCE
        return (
            (0.9 if late else 0.15, self._closing),
            (0.5 if late else 0.25, self._markers),
            (0.4, self._words),
            (0.9, self._plain),
        )


def _pick(allowed: int, groups: Sequence[tuple[float, int]], random_: random.Random) -> int:
    for chance, group in groups:
        if allowed & group and random_.random() < chance:
            return _any_bit(allowed & group, random_)
    return _any_bit(allowed, random_)


def _any_bit(bits: int, random_: random.Random) -> int:
    text = f"{bits:b}"
    nth = random_.randrange(bits.bit_count())
    at = len(text)
    for _ in range(nth + 1):
        at = text.rindex("1", 0, at)
    return len(text) - 1 - at


def _mask(ids: Iterable[int]) -> int:
    return sum(1 << i for i in set(ids))
