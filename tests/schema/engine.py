"""What the engine takes, asked of the engine."""

from __future__ import annotations

import json
from typing import Any

from tests.schema.wire import arguments
from toolrail.grammar import CompiledGrammar, accepts, compile_tag
from toolrail.schema.normalise import Normalised, normalise, normalise_value


def compiled(schema: object, style: str = "json", **options: object) -> CompiledGrammar:
    """A tag that is the schema alone."""
    content = {"type": "json_schema", "json_schema": schema, "style": style, **options}
    return compile_tag(json.dumps({"type": "structural_tag", "format": content}))


def texts(value: Any) -> set[str]:
    """The value as JSON text, with and without spaces."""
    compact = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return {compact, json.dumps(value, ensure_ascii=False)}


class Held:
    """A schema of a value, as the engine holds it in JSON."""

    def __init__(self, schema: object) -> None:
        self.normalised = normalise_value(schema)
        self.grammar = compiled(self.normalised.schema)

    def takes(self, value: Any) -> bool:
        """True when the grammar takes the value in one of its writings."""
        return any(accepts(self.grammar, text) for text in texts(value))


class HeldArguments:
    """A schema of arguments, as the engine holds it in a style."""

    def __init__(self, schema: object, style: str, **options: Any) -> None:
        self.style = style
        self.normalised: Normalised = normalise(schema, style=style, **options)
        self.grammar = compiled(self.normalised.schema, style)

    def takes(self, values: dict[str, Any]) -> bool:
        return accepts(self.grammar, arguments(values, self.style))

    def takes_text(self, text: str) -> bool:
        return accepts(self.grammar, text)
