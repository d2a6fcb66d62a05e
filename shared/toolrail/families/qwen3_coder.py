r"""qwen3_coder: Qwen3-Coder, Qwen3.5 and later (unified alias `qwen3`).

```
Check weather.
</think>

On it.

<tool_call>
<function=get_weather>
<parameter=city>
Paris
</parameter>
</function>
</tool_call>
```

`<tool_call>`, `</tool_call>` and the think tags are single tokens; function and parameter tags are
plain text. Values are raw text, typed by the tool's schema; one newline on each side is framing,
and values without it (which a grammar writes) are read as well. Entities are not decoded.
"""

from __future__ import annotations

from typing import Final

from toolrail.families.hermes import THINK
from toolrail.syntax import Args, Lit, Name, Section, Syntax, XmlStyle
from toolrail.templated import templated

QWEN_XML: Final = XmlStyle(
    style="qwen_xml",
    open="<parameter=",
    key_end=">",
    close="</parameter>",
    frame="\n",
    after="\n",
    follow=("<parameter=", "</function>", "</tool_call>", "<function=", "<tool_call>"),
    missing_close=("</function>",),
    missing_follow=("</tool_call>", "<function=", "<tool_call>"),
)
SYNTAX: Final = Syntax(
    call=(Lit("<function="), Name(), Lit(">\n"), Args(QWEN_XML), Lit("</function>")),
    section=Section("<tool_call>\n", "\n</tool_call>", each=True),
    separator="\n",
    lead="\n\n",
    lead_in_part=True,
    closer_required=True,
    prose_after_opener="kept",
)
SPECIAL: Final = ("<tool_call>", "</tool_call>", "<think>", "</think>")

FAMILY: Final = templated(
    name="qwen3_coder",
    aliases=("qwen3",),
    source="https://huggingface.co/Qwen/Qwen3-Coder-30B-A3B-Instruct/blob/main/chat_template.jinja",
    syntax=SYNTAX,
    reasoning=THINK,
    reasoning_names=("qwen3", "basic", "nemotron_nano", "nemotron_v3", "deepseek_r1"),
    special=SPECIAL,
)
