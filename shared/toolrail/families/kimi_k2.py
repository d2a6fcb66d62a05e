r"""kimi_k2: Kimi K2, K2 Thinking, K2.5.

```
check weather</think>On it.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0
<|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|><|tool_calls_section_end|>
```

(one line on the wire). The header `functions.get_weather:0` is the call's id, kept as it is; its
number counts the calls of the conversation and need not start again in each turn. All five markers
are special tokens. Sections are also read in the singular (`<|tool_call_section_begin|>`), which
some checkpoints write.
"""

from __future__ import annotations

from typing import Final

from toolrail.syntax import Args, Index, Lit, Name, ReasoningMarkers, Section, Syntax
from toolrail.templated import PromptPolicy, templated

SECTION: Final = Section(
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    begins=("<|tool_call_section_begin|>",),
    ends=("<|tool_call_section_end|>",),
)
CALL_BEGIN: Final = "<|tool_call_begin|>"
ARGUMENT_BEGIN: Final = "<|tool_call_argument_begin|>"
CALL_END: Final = "<|tool_call_end|>"
SYNTAX: Final = Syntax(
    call=(
        Lit(CALL_BEGIN),
        Lit("functions."),
        Name(),
        Lit(":"),
        Index(),
        Lit(ARGUMENT_BEGIN),
        Args(),
        Lit(CALL_END),
    ),
    section=SECTION,
    strays=(ARGUMENT_BEGIN,),
)
SPECIAL: Final = (
    SECTION.begin,
    SECTION.end,
    *SECTION.begins,
    *SECTION.ends,
    CALL_BEGIN,
    ARGUMENT_BEGIN,
    CALL_END,
    "<think>",
    "</think>",
)

FAMILY: Final = templated(
    name="kimi_k2",
    source="https://huggingface.co/moonshotai/Kimi-K2-Thinking/blob/main/chat_template.jinja",
    syntax=SYNTAX,
    reasoning=ReasoningMarkers("<think>", "</think>"),
    reasoning_names=("kimi_k25",),
    special=SPECIAL,
    prompt=PromptPolicy(call_id="functions_index"),
    kept_tags=("required", "named"),
)
