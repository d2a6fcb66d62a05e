r"""jamba: Jamba 1.5, 1.6, 1.7.

`<tool_calls>[{"name": "get_weather", "arguments": {"location": "NYC"}}]</tool_calls>`: special
tokens around a JSON array, often with newlines inside.
"""

from __future__ import annotations

from typing import Final

from toolrail.syntax import Objects, Section, Syntax
from toolrail.templated import templated

SYNTAX: Final = Syntax(
    call=(Objects(array=True),),
    section=Section("<tool_calls>", "</tool_calls>"),
)

FAMILY: Final = templated(
    name="jamba",
    source="https://huggingface.co/ai21labs/AI21-Jamba-Large-1.7/blob/main/chat_template.jinja",
    syntax=SYNTAX,
    special=("<tool_calls>", "</tool_calls>"),
    routes=frozenset({"1"}),
)
