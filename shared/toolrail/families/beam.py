r"""beam: channels like harmony's, parameters in tags.

```
<|channel|>analysis<|message|>Need weather.<|end|><|start|>assistant to=get_weather<|channel|>
analysis <|constrain|>xml<|message|><rfl:parameter name="city">Paris</rfl:parameter><|call|>
```

(one line in reality). The prompt ends with `<|start|>assistant`; a recipient after the role makes a
call, `final` is the answer and there is no preamble. Values are typed by the schema. Sources differ
on their framing: a newline on each side is read as framing, and written only around values that
begin or end with one. `<|call|>` and `<|return|>` end generation, so they may be absent.

A grammar holds every turn: reasoning that is not empty, then calls or the answer. It holds patterns
as well, but the specification has strict tools with one refused.

No chat template of these models is public: the format was read in the specification, *Tool Call
Parsing*, section *Beam*, and in published cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from toolrail.events import Item
from toolrail.families.family import Family, Marker, PromptPolicy, ReasoningMarkers
from toolrail.families.harmony import (
    CALL,
    CHANNEL,
    CHANNEL_NAME,
    CONSTRAIN,
    END,
    FIRST,
    HEADER,
    MESSAGE,
    RECIPIENT,
    RETURN,
    ROLE,
    START,
)
from toolrail.parsing.blocks import Block, Reading
from toolrail.parsing.bodies import ArgumentsBlock
from toolrail.parsing.channels_guided import message_parser
from toolrail.parsing.headers import MessageSyntax, Route
from toolrail.render import render_messages
from toolrail.structural_tag import TagFormat, const, sequence
from toolrail.structural_tag.arguments import held_arguments
from toolrail.structural_tag.channels import turn_tag
from toolrail.structural_tag.templated import TagRequest
from toolrail.syntax import CallSpelling, MessageSpelling, TurnSpelling, XmlStyle
from toolrail.tools import Tool

_ENDS: Final = (END, CALL, RETURN)
SPECIAL: Final = (START, CHANNEL, CONSTRAIN, MESSAGE, *_ENDS)

RFL: Final = XmlStyle(
    style="rfl",
    open="<rfl:parameter name=",
    key_end=">",
    close="</rfl:parameter>",
    quotes="\"'",
    frame="\n",
    framed=False,
    follow=("<rfl:parameter name=", *_ENDS, START),
    next_ends=True,
    engine=False,
)

SPELLING: Final = TurnSpelling(
    between=START + "assistant",
    thought=MessageSpelling(f"{CHANNEL}analysis{MESSAGE}", (END,)),
    remark=MessageSpelling(f"{CHANNEL}final{MESSAGE}", (END,)),
    answer=MessageSpelling(f"{CHANNEL}final{MESSAGE}", (RETURN, END, CALL)),
    call=CallSpelling(
        begin=f" to={{name}}{CHANNEL}analysis {CONSTRAIN}xml{MESSAGE}",
        end="",
        ends=(CALL, END),
        last=(CALL,),
    ),
    markers=(*SPECIAL, RFL.open, RFL.close),
)


def route(header: str, body: str) -> Route:
    """Where a message's body goes."""
    role = ROLE.match(header)
    if role is not None and role[1] != "assistant":
        return Route("nowhere")  # a turn of somebody else's, made up
    recipient = RECIPIENT.search(header)
    if recipient is not None:
        return Route("call", recipient[1])
    channel = CHANNEL_NAME.search(header)
    return Route("reasoning" if channel and channel[1] == "analysis" else "text")


def _call(called: Route, reading: Reading) -> Block:
    return ArgumentsBlock(called.name, RFL, (START, CHANNEL, *_ENDS), reading)


SYNTAX: Final = MessageSyntax(
    starts=(START, CHANNEL),
    bodies=(MESSAGE,),
    ends=_ENDS,
    inner=(CHANNEL, CONSTRAIN),
    last=(RETURN,),
    header=HEADER,
    first=FIRST,
    route=route,
    call=_call,
    recipient="to=",
    joint="\n",
)


def _call_tag(request: TagRequest, tool: Tool) -> TagFormat:
    head = const(SPELLING.call.begin.replace("{name}", tool.name))
    return sequence([head, held_arguments(RFL, tool, request.options).format])


def _tag(request: TagRequest) -> TagFormat | None:
    calls = [_call_tag(request, tool) for tool in request.policy.tools]
    return turn_tag(SPELLING, request, calls, thinks_first=True)


def _render(items: Sequence[Item]) -> str:
    return render_messages(SPELLING, RFL, items)


FAMILY: Final = Family(
    name="beam",
    aliases=(),
    source="product specification, Tool Call Parsing, section Beam (no public template)",
    reasoning=ReasoningMarkers(begin=SPELLING.thought.begin, end=END, after=SPELLING.between),
    markers=tuple(Marker(text, special=text in SPECIAL) for text in SPELLING.markers),
    prompt=PromptPolicy(
        defaults=(("allow_missing_thinking", True),),
        fixed=(("preserve_thinking", True),),
        request_fields=("preserve_thinking", "allow_missing_thinking"),
        tool_names=("builtin_tools",),
    ),
    kept_tags=("required", "named"),
    parser=partial(message_parser, SYNTAX),
    tag=_tag,
    render=_render,
    bans=(START, CHANNEL),
    arguments=RFL,
    reasoning_names=("beam",),
    owns_reasoning=True,
    needs_reasoning=True,
    routes=frozenset({"2"}),
    turn_grammar=True,
    strict_refuses=("pattern",),
    starts_in=SYNTAX.starts_in,
)
