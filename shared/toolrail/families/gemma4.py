r"""gemma4: Gemma 4.

`<|channel>thought\nhm<channel|>On it.<|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:3}
<tool_call|>` (one line)

A value grammar of its own, with the types on the wire: strings stand between `<|"|>`, and all that
is between is data. The markers are single tokens. The label of reasoning is eaten only as the exact
word and its newline. The templates show the model its tools and its calls with sorted keys.
"""

from __future__ import annotations

from typing import Final

from toolrail.syntax import (
    Args,
    Lit,
    Name,
    Notation,
    NotationStyle,
    ReasoningMarkers,
    Syntax,
)
from toolrail.templated import templated

QUOTE: Final = '<|"|>'
VALUES: Final = Notation(
    separator=",",
    member=("", ":", ""),
    bare=' \t\n\r:,{}[]<>|"',
    quotes=(QUOTE,),
    escaped=False,
    guard=QUOTE,
)
GEMMA: Final = NotationStyle("gemma4", VALUES, VALUES, reads="delimited", sorts=True)
SYNTAX: Final = Syntax(
    call=(Lit("<|tool_call>"), Lit("call:"), Name(), Args(GEMMA), Lit("<tool_call|>")),
    inner=(QUOTE,),
)

FAMILY: Final = templated(
    name="gemma4",
    aliases=("gemma-4",),
    source="https://huggingface.co/google/gemma-4-E4B-it/blob/main/chat_template.jinja, 2026-07-09",
    syntax=SYNTAX,
    reasoning=ReasoningMarkers("<|channel>", "<channel|>", label="thought\n"),
    reasoning_names=("gemma4",),
    special=("<|tool_call>", "<tool_call|>", QUOTE, "<|channel>", "<channel|>"),
)
