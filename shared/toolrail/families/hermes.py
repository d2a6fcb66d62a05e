r"""hermes: Qwen2.5, QwQ, Qwen3 instruct and thinking, NousHermes.

```
<think>hm</think>

On it.
<tool_call>
{"name": "get_weather", "arguments": {"location": "NYC"}}
</tool_call>
```

On Qwen the tags are single tokens, on other checkpoints plain text. JSON is passed through: there
is no typing, a string stays a string, and wrapper text inside a JSON string is data.
"""

from __future__ import annotations

from typing import Final

from toolrail.syntax import Objects, ReasoningMarkers, Section, Syntax
from toolrail.templated import templated

SOURCE: Final = "https://huggingface.co/Qwen/Qwen2.5-7B-Instruct/blob/main/tokenizer_config.json"
THINK: Final = ReasoningMarkers(begin="<think>", end="</think>", after="\n\n")
THINKING_NAMES: Final = (
    "qwen3",
    "basic",
    "glm45",
    "nemotron_deci",
    "deepseek_r1",
    "step3",
    "nemotron_nano",
    "nemotron_v3",
)
SYNTAX: Final = Syntax(
    call=(Objects(),),
    section=Section("<tool_call>\n", "\n</tool_call>", each=True),
    separator="\n",
    lead="\n",
)

FAMILY: Final = templated(
    name="hermes",
    source=SOURCE,
    syntax=SYNTAX,
    reasoning=THINK,
    reasoning_names=THINKING_NAMES,
    special=("<tool_call>", "</tool_call>", "<think>", "</think>"),
    routes=frozenset({"1"}),
)
