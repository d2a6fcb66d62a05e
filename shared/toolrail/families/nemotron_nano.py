"""nemotron_nano: the wire of `qwen3_coder`; output usually starts inside reasoning.

Its template opens `<think>` in the prompt, so that only `</think>` appears in the output.
"""

from __future__ import annotations

from typing import Final

from toolrail.families.qwen3_coder import SPECIAL, SYNTAX
from toolrail.syntax import ReasoningMarkers
from toolrail.templated import templated

THINK: Final = ReasoningMarkers(begin="<think>", end="</think>")

FAMILY: Final = templated(
    name="nemotron_nano",
    source="https://huggingface.co/nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16/blob/main/chat_template.jinja",
    syntax=SYNTAX,
    reasoning=THINK,
    reasoning_names=("nemotron_nano", "nemotron_v3", "qwen3", "basic", "deepseek_r1"),
    special=SPECIAL,
    routes=frozenset({"1"}),
)
