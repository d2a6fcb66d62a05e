r"""muse_glimmer (`muse`): messages routed by recipient, calls in ATEM tags.

```
 to=self<|message|>hm<|eom|><|start|>assistant to=get_weather<|message|><atem:function_calls>
<atem:invoke name="get_weather">
<atem:parameter name="city">Paris</atem:parameter>
</atem:invoke>
</atem:function_calls><|eot|>
```

The prompt ends with `<|start|>assistant`. `self` (or no recipient) is reasoning, `user` the answer,
any other recipient a message to a tool, in which the invoke's name counts. The last message of a
turn ends with `<|eot|>`, others with `<|eom|>`; these are special tokens, the tags are plain text.
A value that is JSON is that JSON, unless its parameter can only be a string; any other value is
text, spaces included. Models sometimes leave reasoning by a bare ` to=NAME<|message|>`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from toolrail.events import Item
from toolrail.families.family import Family, Marker, PromptPolicy, ReasoningMarkers
from toolrail.parsing.blocks import Block, CallBlock, Reading
from toolrail.parsing.channels_guided import message_parser
from toolrail.parsing.headers import MessageSyntax, Route
from toolrail.parsing.shapes import CallShape
from toolrail.render import render_messages
from toolrail.structural_tag import TagFormat, const, sequence
from toolrail.structural_tag.arguments import held_arguments
from toolrail.structural_tag.channels import turn_tag
from toolrail.structural_tag.templated import TagRequest
from toolrail.syntax import (
    Args,
    CallSpelling,
    Lit,
    MessageSpelling,
    Name,
    Section,
    Syntax,
    TurnSpelling,
    XmlStyle,
)

START: Final = "<|start|>"
MESSAGE: Final = "<|message|>"
EOM: Final = "<|eom|>"
EOT: Final = "<|eot|>"
SPECIAL: Final = (START, MESSAGE, EOM, EOT)

ATEM: Final = XmlStyle(
    style="atem",
    open="<atem:parameter name=",
    key_end=">",
    close="</atem:parameter>",
    quotes="\"'",
    after="\n",
    follow=("<atem:parameter", "</atem:invoke>", "</atem:function_calls>", EOM, EOT, START),
    values="json_or_text",
    engine=False,
    counted="</at",
)
INVOKE: Final = '<atem:invoke name="'
CALLS: Final = Syntax(
    call=(Lit(INVOKE), Name(), Lit('">\n'), Args(ATEM), Lit("</atem:invoke>")),
    section=Section("<atem:function_calls>\n", "\n</atem:function_calls>"),
    separator="\n",
    closer_required=True,
)
_SHAPE: Final = CallShape(CALLS)
TAGS: Final = (
    "<atem:function_calls>",
    INVOKE,
    ATEM.open,
    ATEM.close,
    "</atem:invoke>",
    "</atem:function_calls>",
)

_ROLE: Final = re.compile(r"<\|start\|>\s*([a-z]+)")
_RECIPIENT: Final = re.compile(r"\bto=([\w.*-]+)")

SPELLING: Final = TurnSpelling(
    between=START + "assistant",
    thought=MessageSpelling(f" to=self{MESSAGE}", (EOM,)),
    remark=MessageSpelling(f" to=user{MESSAGE}", (EOM,)),
    answer=MessageSpelling(f" to=user{MESSAGE}", (EOT, EOM)),
    call=CallSpelling(
        begin=f' to={{name}}{MESSAGE}<atem:function_calls>\n{INVOKE}{{name}}">\n',
        end="</atem:invoke>\n</atem:function_calls>",
        ends=(EOM,),
        last=(EOT,),
    ),
    markers=(*SPECIAL, *TAGS),
)


def routing(text: tuple[str, ...], nowhere: tuple[str, ...]) -> Callable[[str, str], Route]:
    """Where bodies go; `text`, `nowhere`: recipients whose messages are shown, or to nobody."""

    def route(header: str, body: str) -> Route:
        role = _ROLE.match(header)
        if role is not None and role[1] != "assistant":
            return Route("nowhere")  # a turn of somebody else's, made up
        recipient = _RECIPIENT.search(header)
        to = recipient[1] if recipient else "self"
        if to == "self":
            return Route("reasoning")
        if to in text:
            return Route("text")
        return Route("nowhere") if to in nowhere else Route("call", to)

    return route


def _call(called: Route, reading: Reading) -> Block:
    return CallBlock(_SHAPE, reading, where="section")


SYNTAX: Final = MessageSyntax(
    starts=(START,),
    bodies=(MESSAGE,),
    ends=(EOM, EOT),
    strays=TAGS,
    last=(EOT,),
    header=re.compile(r"<\|start\|>\s*[a-z]*(?:[^\S\n]+(?:to=[\w.*-]*|to?\Z))?\s*"),
    first=re.compile(r"[^\S\n]*(?:to=[\w.*-]*|to?\Z)?"),
    route=routing(text=("user",), nowhere=()),
    call=_call,
    recipient="to=",
    recipient_leaves_reasoning=True,
    joint="\n",
)


def muse_tag(spelling: TurnSpelling, request: TagRequest) -> TagFormat | None:
    """The tag of a request."""
    if not request.policy.tools and request.policy.choice != "none":
        return None
    calls = [
        sequence(
            [
                const(spelling.call.begin.replace("{name}", tool.name)),
                held_arguments(ATEM, tool, request.options).format,
            ]
        )
        for tool in request.policy.tools
    ]
    return turn_tag(spelling, request, calls)


def _render(spelling: TurnSpelling, items: Sequence[Item]) -> str:
    return render_messages(spelling, ATEM, items)


FAMILY: Final = Family(
    name="muse_glimmer",
    aliases=("muse",),
    source="llama.cpp, models/templates/muse-glimmer.jinja (in llama-cpp-python 0.3.36)",
    reasoning=ReasoningMarkers(begin=SPELLING.thought.begin, end=EOM, after=SPELLING.between),
    markers=tuple(Marker(text, special=text in SPECIAL) for text in SPELLING.markers),
    prompt=PromptPolicy(text_apart=(("recipient", "user"), ("end_turn", False))),
    parser=partial(message_parser, SYNTAX),
    tag=partial(muse_tag, SPELLING),
    render=partial(_render, SPELLING),
    bans=(START,),
    arguments=ATEM,
    reasoning_names=("muse_glimmer",),
    owns_reasoning=True,
    routes=frozenset({"2"}),
    starts_in=SYNTAX.starts_in,
)


def variant(  # noqa: PLR0913 - the fields of a record
    *,
    name: str,
    aliases: tuple[str, ...],
    source: str,
    spelling: TurnSpelling,
    syntax: MessageSyntax,
    prompt: PromptPolicy,
) -> Family:
    """A family that differs from this one in its recipients alone."""
    return replace(
        FAMILY,
        name=name,
        aliases=aliases,
        source=source,
        prompt=prompt,
        parser=partial(message_parser, syntax),
        tag=partial(muse_tag, spelling),
        render=partial(_render, spelling),
        reasoning_names=(name,),
        starts_in=syntax.starts_in,
    )
