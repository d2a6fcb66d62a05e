r"""deepseek_v3_1: DeepSeek V3.1.

```
Let me look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"location": "NYC"}
<｜tool▁call▁end｜><｜tool▁calls▁end｜>
```

(one line on the wire). Five markers, each one token, written with U+FF5C and U+2581. Further calls
follow inside the section without a separator; there are no ids. The prompt has closed the think
span unless thinking was asked for.
"""

from __future__ import annotations

from typing import Final

from toolrail.syntax import Args, Lit, Name, ReasoningMarkers, Section, Syntax
from toolrail.templated import PromptPolicy, templated

SECTION: Final = Section("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
CALL_BEGIN: Final = "<｜tool▁call▁begin｜>"
SEPARATOR: Final = "<｜tool▁sep｜>"
CALL_END: Final = "<｜tool▁call▁end｜>"
SPECIAL: Final = (
    SECTION.begin,
    SECTION.end,
    CALL_BEGIN,
    SEPARATOR,
    CALL_END,
    "<think>",
    "</think>",
)
SYNTAX: Final = Syntax(
    call=(Lit(CALL_BEGIN), Name(), Lit(SEPARATOR), Args(), Lit(CALL_END)),
    section=SECTION,
    strays=(SEPARATOR,),
)

FAMILY: Final = templated(
    name="deepseek_v3_1",
    source="https://huggingface.co/deepseek-ai/DeepSeek-V3.1/blob/main/assets/chat_template.jinja",
    syntax=SYNTAX,
    reasoning=ReasoningMarkers("<think>", "</think>"),
    reasoning_names=("deepseek_v3_1", "deepseek_r1", "deepseek_v3"),
    special=SPECIAL,
    prompt=PromptPolicy(arguments="text"),
    routes=frozenset({"1"}),
)
