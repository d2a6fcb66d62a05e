r"""kimi_k3 (`kimi-k3`): Kimi K3, messages in XTML channels.

```
plan<|close|>think<|sep|><|open|>response<|sep|>On it.<|close|>response<|sep|><|open|>tools<|sep|>
<|open|>call tool="get_weather" index="1"<|sep|><|open|>argument key="city" type="string"<|sep|>
Paris<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>
<|end_of_msg|>
```

(one line on the wire; the prompt opened `think`). `<|open|>`, `<|close|>` and `<|sep|>` are special
tokens, names and attributes between them plain text. Values carry their type: strings are raw, all
else is JSON; calls may instead have one `<|open|>json type="object"<|sep|>{…}<|close|>json<|sep|>`.
Attributes write `&` as `&amp;` and `"` as `&quot;`. A message always has its response channel, if
only an empty one, before its tools.

A raw value that holds the exact closer of an argument cannot be told from structure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Final

from toolrail.events import Call, Item, Reasoning, Text
from toolrail.families.family import Family, Marker, PromptPolicy
from toolrail.parsing import ParseSpec, StreamParser
from toolrail.parsing.blocks import Block, Reading
from toolrail.parsing.guided import GuidedParser
from toolrail.parsing.turn import TurnParser
from toolrail.parsing.turn_grammar import Grammar
from toolrail.parsing.xtml import (
    ARGUMENT,
    ARGUMENT_END,
    CALL_END,
    CALLS,
    CLOSE,
    END_OF_MESSAGE,
    ENTITIES,
    MESSAGE_END,
    OPEN,
    RESPONSE,
    RESPONSE_END,
    SEP,
    THINK,
    THINK_END,
    TOOLS,
    TOOLS_END,
    CallsBlock,
    escaped,
    spellings,
)
from toolrail.reasoning import PARSERS
from toolrail.render import arguments_of
from toolrail.structural_tag import (
    TagFormat,
    any_text,
    const,
    either,
    optional,
    regex,
    separated,
    sequence,
    tag,
)
from toolrail.structural_tag.arguments import held_arguments
from toolrail.structural_tag.templated import TagRequest
from toolrail.syntax import ReasoningMarkers, TypeAttribute, XmlStyle
from toolrail.tools import StartsIn, Tool

ARGUMENTS: Final = XmlStyle(
    style="xtml",
    open=ARGUMENT,
    key_end=SEP,
    close=ARGUMENT_END,
    entities=ENTITIES,
    attribute=TypeAttribute(
        '" type="',
        "string",
        "object",
        '"',
        bad_json="malformed",
        kinds=(
            ("integer", "number"),
            ("number", "number"),
            ("boolean", "boolean"),
            ("null", "null"),
            ("object", "object"),
            ("array", "array"),
        ),
    ),
    engine=False,  # its own style lets any type be said of a union, and pads what is no string
    counted=CLOSE,
    reserved=CLOSE,
)
STRAYS: Final = (
    *TOOLS_END,
    *(closer for name in ("call", "argument", "json") for closer in spellings(CLOSE, name)),
    *RESPONSE,
    *RESPONSE_END,
    *MESSAGE_END,
    END_OF_MESSAGE,
)
_LAST_CHANNEL: Final = re.compile(r"<\|open\|>\s*(think|response)\s*<\|sep\|>")


def _block(opener: str, reading: Reading) -> Block:
    return CallsBlock(reading, in_channel=opener in TOOLS)


def _resume(closer: str, reading: Reading) -> Block | None:
    return None if closer in TOOLS_END else CallsBlock(reading, in_channel=True, resumed=True)


@cache
def _grammar(reasoning: ReasoningMarkers | None) -> Grammar:
    return Grammar(
        openers=(*TOOLS, *CALLS),
        block=_block,
        reasoning=reasoning,
        strays=STRAYS,
        resume=_resume,
        header=f'{CALLS[0]}tool="',
    )


def _parser(spec: ParseSpec, reasoning: ReasoningMarkers | None) -> StreamParser:
    machine = GuidedParser if spec.mode == "guided_json" else TurnParser
    return machine(_grammar(reasoning), spec)


def _starts_in(prompt: str) -> StartsIn:
    """What the last channel is that the prompt opened and did not close."""
    tail = prompt[max(prompt.rfind(OPEN), 0) :]
    opened = _LAST_CHANNEL.match(tail)
    if opened is None or CLOSE in tail:
        return "none"
    return "reasoning" if opened[1] == "think" else "response"


# --- writing ---


def _render(items: Sequence[Item]) -> str:
    out: list[str] = []
    calls = 0
    answered = False
    for at, item in enumerate(items):
        match item:
            case Reasoning(text):
                out.append(THINK[0] + text + THINK_END[0])
            case Text(text):
                out.append(RESPONSE[0] + text + RESPONSE_END[0])
                answered = True
            case Call():
                if not isinstance(items[at - 1] if at else None, Call):
                    out += [] if answered else [RESPONSE[0], RESPONSE_END[0]]
                    out.append(TOOLS[0])
                    answered = True
                calls += 1
                name = escaped(item.name)
                out.append(f'{CALLS[0]}tool="{name}" index="{calls}"{SEP}')
                out += (arguments_of(ARGUMENTS, item.arguments), CALL_END)
                if not isinstance(items[at + 1] if at + 1 < len(items) else None, Call):
                    out.append(TOOLS_END[0])
    return "".join(out)


# --- holding ---


def _tag(request: TagRequest) -> TagFormat | None:
    policy = request.policy
    if policy.choice == "none":
        if request.response is None:
            return any_text((*TOOLS, *CALLS))
        return sequence([*_reasoning(request), _answer(request, request.response)])
    if not policy.tools:
        return None
    calls = [_call(request, tool) for tool in policy.tools]
    listed = calls[0] if policy.single and len(calls) == 1 else None
    if listed is None:
        listed = separated(calls, "", stop_after_first=policy.single)
    channel = tag(TOOLS[0], listed, TOOLS_END[0])
    if request.response is not None:
        body = either([sequence([_silence(request), channel]), _answer(request, request.response)])
    elif policy.choice == "auto":
        answer = _answer(request, any_text(_controls(request)))
        body = sequence([_optional_answer(request, answer), optional(channel)])
    else:
        body = sequence([_silence(request), channel])
    return sequence([*_reasoning(request), body, optional(const(MESSAGE_END[0]))])


def _controls(request: TagRequest) -> tuple[str, ...]:
    if request.excludes:
        return (OPEN, CLOSE, SEP)
    return (*TOOLS, *CALLS) if request.counts_calls else ()


def _call(request: TagRequest, tool: Tool) -> TagFormat:
    body = [
        regex("[1-9][0-9]*"),
        const(f'"{SEP}'),
        held_arguments(ARGUMENTS, tool, request.options).format,
    ]
    return tag(f'{CALLS[0]}tool="{escaped(tool.name)}" index="', sequence(body), CALL_END)


def _answer(request: TagRequest, content: TagFormat) -> TagFormat:
    """The response channel, which the prompt may have opened."""
    return tag("" if request.starts_in == "response" else RESPONSE[0], content, RESPONSE_END[0])


def _optional_answer(request: TagRequest, answer: TagFormat) -> TagFormat:
    return answer if request.starts_in == "response" else optional(answer)


def _silence(request: TagRequest) -> TagFormat:
    """The response channel without a word, as it stands before forced calls."""
    if request.starts_in == "response":
        return const(RESPONSE_END[0])
    return optional(const(RESPONSE[0] + RESPONSE_END[0]))


def _reasoning(request: TagRequest) -> list[TagFormat]:
    """The think channel; nothing when the engine owns its boundary."""
    if request.options.reasoning_boundary == "backend" or request.starts_in == "response":
        return []
    span = any_text(_controls(request))
    if request.starts_in == "reasoning":
        return [tag("", span, THINK_END[0])]
    return [] if request.reasoning is None else [optional(tag(THINK[0], span, THINK_END[0]))]


FAMILY: Final = Family(
    name="kimi_k3",
    aliases=("kimi-k3",),
    source="https://github.com/ggml-org/llama.cpp/blob/master/models/templates/Kimi-K3.jinja",
    reasoning=PARSERS["kimi_k3"].markers,
    markers=(
        *(Marker(text) for text in (THINK[0], THINK_END[0], *TOOLS, *CALLS, *STRAYS[:-1])),
        Marker(END_OF_MESSAGE, special=True),
    ),
    prompt=PromptPolicy(named_choice=(("thinking", False), ("enable_thinking", False))),
    parser=_parser,
    tag=_tag,
    render=_render,
    bans=(*TOOLS, *CALLS),
    arguments=ARGUMENTS,
    reasoning_names=("kimi_k3",),
    owns_reasoning=True,
    kept_tags=("named",),
    starts_in=_starts_in,
)
