r"""phi4: Phi-4, Phi-4-mini, Phi-4-mini-reasoning.

`functools[{"name": "get_weather", "arguments": {"location": "NYC"}}]`: plain text, no closer.
"""

from __future__ import annotations

from typing import Final

from toolrail.syntax import Objects, Section, Syntax
from toolrail.templated import templated

SYNTAX: Final = Syntax(
    call=(Objects(array=True),),
    section=Section("functools", "", word=True),
    prose_after_opener="literal",
)

FAMILY: Final = templated(
    name="phi4",
    source="https://huggingface.co/microsoft/Phi-4-mini-instruct/blob/main/tokenizer_config.json",
    syntax=SYNTAX,
    routes=frozenset({"1"}),
)
