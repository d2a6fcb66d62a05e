r"""deepseek_v3: DeepSeek V3 and R1-0528.

```
<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather
```json
{"location": "NYC"}
```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
```

The markers of deepseek_v3_1, but the type word comes first, the name ends at a line break, and the
arguments sit in a fence. A fence inside a JSON string is data. Calls are one to a line.
"""

from __future__ import annotations

from typing import Final

from toolrail.families.deepseek_v3_1 import CALL_BEGIN, CALL_END, SECTION, SEPARATOR, SPECIAL
from toolrail.syntax import Args, Lit, Name, ReasoningMarkers, Syntax
from toolrail.templated import PromptPolicy, templated

SYNTAX: Final = Syntax(
    call=(
        Lit(CALL_BEGIN),
        Lit("function" + SEPARATOR),
        Name(),
        Lit("\n```json\n"),
        Args(),
        Lit("\n```" + CALL_END),
    ),
    section=SECTION,
    separator="\n",
    trail="",
    strays=(SEPARATOR, CALL_END),
)

FAMILY: Final = templated(
    name="deepseek_v3",
    source="https://huggingface.co/deepseek-ai/DeepSeek-R1-0528/blob/main/tokenizer_config.json",
    syntax=SYNTAX,
    reasoning=ReasoningMarkers("<think>", "</think>", after="\n\n"),
    reasoning_names=("deepseek_r1", "deepseek_v3"),
    special=SPECIAL,
    prompt=PromptPolicy(arguments="text"),
    routes=frozenset({"1"}),
)
