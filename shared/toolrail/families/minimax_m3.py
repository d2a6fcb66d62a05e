r"""minimax_m3: MiniMax M3.

```
hm</mm:think>On it.]<]minimax[>[<tool_call>
]<]minimax[>[<invoke name="run">]<]minimax[>[<cmd>ls -l]<]minimax[>[</cmd>]<]minimax[>[</invoke>
]<]minimax[>[</tool_call>
```

Every tag of a call stands behind the namespace token; without it a tag is data. Arguments are
elements that nest, leaves are text typed by the schema; JSON in the leaf of an object or array is
read as well. The template writes newlines as shown, all of which may be missing. A first lone
closer of reasoning turns what came before it into reasoning.
"""

from __future__ import annotations

from typing import Final

from toolrail.syntax import (
    Args,
    Lit,
    Name,
    Notation,
    NotationStyle,
    ReasoningMarkers,
    Section,
    Syntax,
)
from toolrail.templated import templated

NS: Final = "]<]minimax[>["
ELEMENTS: Final = Notation(
    object=("", ""),
    array=("", ""),
    separator="",
    member=(NS + "<", ">", NS + "</{key}>"),
    item=(NS + "<item>", NS + "</item>"),
    gap="\n",
    bare="<>/[]\n\r",
    quoted=False,
    quotes=("",),
    escaped=False,
    guard=NS,
    typed=False,
)
M3: Final = NotationStyle(
    "minimax_m3",
    ELEMENTS,
    ELEMENTS,
    inner=Notation(guard=NS),
    reads="elements",
    strays=tuple(NS + tag for tag in ("<tool_call>", "</tool_call>", "<invoke", "</invoke>")),
)
SYNTAX: Final = Syntax(
    call=(
        Lit(NS + "<invoke name="),
        Name(quotes="\"'"),
        Lit(">"),
        Args(M3),
        Lit(NS + "</invoke>\n"),
    ),
    section=Section(NS + "<tool_call>\n", NS + "</tool_call>"),
    inner=(NS,),
    loose=True,
    closer_required=True,
)

FAMILY: Final = templated(
    name="minimax_m3",
    aliases=("minimax-m3", "minimax_m3_nom", "minimax-m3-nom"),
    source="https://huggingface.co/MiniMaxAI/MiniMax-M3/blob/main/chat_template.jinja",
    syntax=SYNTAX,
    reasoning=ReasoningMarkers("<mm:think>", "</mm:think>", unopened=True),
    reasoning_names=("minimax_m3",),
    special=(NS, "<mm:think>", "</mm:think>"),
)
