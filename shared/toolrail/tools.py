"""The tools of a request and the one resolved policy that says which of them may be called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

JsonSchema: TypeAlias = Mapping[str, object] | bool
ToolChoice: TypeAlias = Literal["auto", "required", "named", "none"]
ArgumentValidation: TypeAlias = Literal["off", "report", "fail"]
"""What becomes of arguments that break what the grammar could not hold."""
StartsIn: TypeAlias = Literal["none", "reasoning", "response"]
"""What the rendered prompt left open: nothing, a reasoning span, or the visible answer."""


ToolKind: TypeAlias = Literal["function", "custom"]
INPUT: Final = "input"
"""The one parameter of a custom tool, as models see it: the raw input, as a string."""
INPUT_SCHEMA: Final[Mapping[str, object]] = {
    "type": "object",
    "properties": {INPUT: {"type": "string"}},
    "required": [INPUT],
    "additionalProperties": False,
}
"""The parameters under which families, tags and parsers know a custom tool."""


class InputGrammar(msgspec.Struct, frozen=True):
    """The grammar that a custom tool declares for its input."""

    syntax: Literal["lark", "regex"]
    definition: str


class Tool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool. `parameters` None: declared without a schema (any object).

    `kind` custom: its input is raw text. Models see a function with the parameters `INPUT_SCHEMA`;
    what they write is unwrapped above the parser. `grammar`: what its input must be, for a tag.
    """

    name: str
    parameters: JsonSchema | None = None
    strict: bool | None = None
    description: str | None = None
    kind: ToolKind = "function"
    grammar: InputGrammar | None = None


class ToolPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tool choice, resolved once, before any family sees it.

    `tools` are those that may be called (for `named`: exactly one; for `none`: those offered in the
    prompt, all of them banned). `parallel` False allows one call; `named` is always one call.
    `others`: names that the prompt shows as well and that may not be called.
    """

    choice: ToolChoice = "auto"
    tools: tuple[Tool, ...] = ()
    parallel: bool = True
    others: tuple[str, ...] = ()

    @property
    def single(self) -> bool:
        """True when at most one call may be written."""
        return self.choice == "named" or not self.parallel
