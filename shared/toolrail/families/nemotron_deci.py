r"""nemotron_deci: Nemotron Super, Ultra, Deci; Llama-Nemotron.

`<think>hm</think>On it. <TOOLCALL>[{"name": "get_weather", "arguments": {"location": "NYC"}}]
</TOOLCALL>` (one line): plain text tags around a JSON array. A lone object is read as well.
"""

from __future__ import annotations

from typing import Final

from toolrail.syntax import Objects, ReasoningMarkers, Section, Syntax
from toolrail.templated import templated

SYNTAX: Final = Syntax(
    call=(Objects(array=True),),
    section=Section("<TOOLCALL>", "</TOOLCALL>"),
)

FAMILY: Final = templated(
    name="nemotron_deci",
    source="https://huggingface.co/nvidia/Llama-3_3-Nemotron-Super-49B-v1_5/blob/main/tokenizer_config.json",
    syntax=SYNTAX,
    reasoning=ReasoningMarkers("<think>", "</think>"),
    reasoning_names=("nemotron_deci", "basic"),
    routes=frozenset({"1"}),
)
