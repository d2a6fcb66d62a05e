r"""minimax_m2: MiniMax M2, M2.1.

```
thinking</think>On it.
<minimax:tool_call>
<invoke name="get_weather">
<parameter name="city">Paris</parameter>
</invoke>
</minimax:tool_call>
```

The wrapper and think markers are tokens, invoke and parameter tags plain text. Values are raw text
typed by the schema, without framing; entities are not decoded. Names may be quoted or bare. The
inner fences are strict: an invoke or a parameter without its closer is no call.
"""

from __future__ import annotations

from typing import Final

from toolrail.syntax import Args, Lit, Name, ReasoningMarkers, Section, Syntax, XmlStyle
from toolrail.templated import templated

MINIMAX_XML: Final = XmlStyle(
    style="minimax_xml",
    open="<parameter name=",
    key_end=">",
    close="</parameter>",
    after="\n",
    quotes="\"'",
)
SYNTAX: Final = Syntax(
    call=(
        Lit("<invoke name="),
        Name(quotes="\"'"),
        Lit(">\n"),
        Args(MINIMAX_XML),
        Lit("</invoke>"),
    ),
    section=Section("<minimax:tool_call>\n", "\n</minimax:tool_call>"),
    separator="\n",
    lead="\n",
    closer_required=True,
)

FAMILY: Final = templated(
    name="minimax_m2",
    source="https://huggingface.co/MiniMaxAI/MiniMax-M2/blob/main/chat_template.jinja",
    syntax=SYNTAX,
    reasoning=ReasoningMarkers("<think>", "</think>", after="\n\n"),
    reasoning_names=("minimax_m2",),
    special=("<minimax:tool_call>", "</minimax:tool_call>", "<think>", "</think>"),
)
