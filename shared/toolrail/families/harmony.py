r"""harmony (`gpt_oss`): gpt-oss-20b and gpt-oss-120b.

```
<|channel|>analysis<|message|>Need weather.<|end|><|start|>assistant to=functions.get_weather
<|channel|>commentary json<|message|>{"city": "Paris"}<|call|>
```

(one line in reality). A turn is a list of messages; the prompt has written the first one's
`<|start|>assistant`. `analysis` is reasoning, `final` the answer, `commentary` without a recipient
a visible preamble, any channel with `to=functions.NAME` a call. Models put the recipient after the
role or after the channel, and write `<|constrain|>json`, `json` or nothing; all of it is read, and
held by the tag. All markers are special tokens. `<|call|>` and `<|return|>` end generation, so they
may be absent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Final

from toolrail.events import Item
from toolrail.families.family import Family, Marker, PromptPolicy, ReasoningMarkers
from toolrail.parsing.blocks import Block, Reading
from toolrail.parsing.bodies import ArgumentsBlock, NoCall
from toolrail.parsing.channels_guided import message_parser
from toolrail.parsing.headers import MessageSyntax, Route
from toolrail.render import render_messages
from toolrail.structural_tag import TagFormat, const, either, sequence
from toolrail.structural_tag.arguments import held_arguments
from toolrail.structural_tag.channels import turn_tag
from toolrail.structural_tag.templated import TagRequest
from toolrail.syntax import JSON, CallSpelling, MessageSpelling, TurnSpelling
from toolrail.tools import Tool

START: Final = "<|start|>"
CHANNEL: Final = "<|channel|>"
CONSTRAIN: Final = "<|constrain|>"
MESSAGE: Final = "<|message|>"
END: Final = "<|end|>"
CALL: Final = "<|call|>"
RETURN: Final = "<|return|>"
NAMESPACE: Final = "functions."

# Every beginning of a header matches, so that it is known early when something is none.
_CHANNEL: Final = (
    r"(?:<\|channel\|>\s*[a-z]*(?:\s+(?:to=[^\s<]*|to?\Z))?\s*(?:<\|constrain\|>\s*)?\w*\s*)?"
)
HEADER: Final = re.compile(r"(?:<\|start\|>\s*[\w.-]*(?:\s+(?:to=[^\s<]*|to?\Z))?\s*)?" + _CHANNEL)
FIRST: Final = re.compile(r"\s*(?:to=[^\s<]*\s*|to?\Z)?" + _CHANNEL)
ROLE: Final = re.compile(r"<\|start\|>\s*([\w.-]+)")
RECIPIENT: Final = re.compile(r"\bto=([^\s<]+)")
CHANNEL_NAME: Final = re.compile(r"<\|channel\|>\s*([a-z]+)")
_TYPED: Final = re.compile(r"<\|constrain\|>|<\|channel\|>\s*[a-z]+\s+(?!to=)\w")
_EVERYBODY: Final = ("all", "user")

SPELLING: Final = TurnSpelling(
    between=START + "assistant",
    thought=MessageSpelling(f"{CHANNEL}analysis{MESSAGE}", (END,)),
    remark=MessageSpelling(f"{CHANNEL}commentary{MESSAGE}", (END,)),
    answer=MessageSpelling(f"{CHANNEL}final{MESSAGE}", (RETURN, END)),
    call=CallSpelling(
        begin=f" to={NAMESPACE}{{name}}{CHANNEL}commentary json{MESSAGE}",
        end="",
        ends=(CALL, END),
        last=(CALL,),
    ),
    markers=(START, CHANNEL, CONSTRAIN, MESSAGE, END, CALL, RETURN),
)


def route(header: str, body: str) -> Route:
    """Where a message's body goes."""
    role = ROLE.match(header)
    if role is not None and role[1] != "assistant":
        return Route("nowhere")  # a turn of somebody else's, made up
    recipient = RECIPIENT.search(header)
    if recipient is not None and recipient[1] not in _EVERYBODY:
        return Route("call", recipient[1])
    channel = CHANNEL_NAME.search(header)
    match channel[1] if channel else "":
        case "analysis":
            return Route("reasoning")
        case "commentary" if _TYPED.search(header):
            return Route("nowhere")  # arguments of a call to nobody
        case _:
            return Route("text")


def _call(called: Route, reading: Reading) -> Block:
    """A recipient outside the namespace is a tool built into the model, unless it is offered."""
    name = called.name.removeprefix(NAMESPACE)
    if not name or (name == called.name and name not in reading.tools):
        return NoCall()
    return ArgumentsBlock(name, JSON, (START, CHANNEL, END, CALL, RETURN), reading)


SYNTAX: Final = MessageSyntax(
    starts=(START, CHANNEL),
    bodies=(MESSAGE,),
    ends=(END, CALL, RETURN),
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
    """The body of a call with its header, in the orders and spellings that models use."""
    to = f" to={NAMESPACE}{tool.name}"
    channels = ("commentary", "analysis")
    heads = [f"{to}{CHANNEL}{c}" for c in channels] + [f"{CHANNEL}{c}{to}" for c in channels]
    types = (" json", f" {CONSTRAIN}json", f"{CONSTRAIN}json")
    return sequence(
        [
            either([const(head) for head in heads]),
            either([const(kind + MESSAGE) for kind in types]),
            held_arguments(JSON, tool, request.options).format,
        ]
    )


def _tag(request: TagRequest) -> TagFormat | None:
    if not request.policy.tools and request.policy.choice != "none":
        return None
    calls = [_call_tag(request, tool) for tool in request.policy.tools]
    return turn_tag(SPELLING, request, calls)


def _render(items: Sequence[Item]) -> str:
    return render_messages(SPELLING, JSON, items)


FAMILY: Final = Family(
    name="harmony",
    aliases=("gpt_oss", "harmony_text"),
    source="https://huggingface.co/openai/gpt-oss-120b/blob/main/chat_template.jinja",
    reasoning=ReasoningMarkers(begin=SPELLING.thought.begin, end=END, after=SPELLING.between),
    markers=tuple(Marker(text, special=True) for text in SPELLING.markers),
    prompt=PromptPolicy(reasoning=("thinking",), single_calls=True),
    parser=partial(message_parser, SYNTAX),
    tag=_tag,
    render=_render,
    bans=(START, CHANNEL),
    reasoning_names=("gpt_oss",),
    owns_reasoning=True,
    starts_in=SYNTAX.starts_in,
)
