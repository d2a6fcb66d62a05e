r"""nemotron_v3 (`nemotron3`): the wire of `qwen3_coder` with reasoning opened by the prompt.

`Need weather.</think><tool_call>\n<function=get_weather>\n...`
"""

from __future__ import annotations

from typing import Final

from toolrail.families.nemotron_nano import THINK
from toolrail.families.qwen3_coder import SPECIAL, SYNTAX
from toolrail.templated import templated

FAMILY: Final = templated(
    name="nemotron_v3",
    aliases=("nemotron3",),
    source="https://huggingface.co/nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16/blob/main/chat_template.jinja",
    syntax=SYNTAX,
    reasoning=THINK,
    reasoning_names=("nemotron_v3", "nemotron_nano", "qwen3", "basic", "deepseek_r1"),
    special=SPECIAL,
    routes=frozenset({"2"}),
)
