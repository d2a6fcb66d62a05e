r"""inkling: typed blocks, every marker one special token.

```
<|content_thinking|>hm<|end_message|><|message_model|>get_weather<|content_invoke_tool_json|>
{"name":"get_weather","args":{"city":"Paris"}}<|end_message|><|content_model_end_sampling|>
```

(one line in reality). The prompt has written the first `<|message_model|>`; blocks come in any
order. The name before the marker is redundant: the one in the JSON counts. `args` may be missing.
Raw tool text and tool errors are visible text; image and audio blocks show nothing. Templates write
the JSON without spaces, other renderers with them: the tag holds both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Final

from toolrail.arguments.json_calls import CallObject
from toolrail.arguments.json_value import Read
from toolrail.events import Item
from toolrail.families.family import Family, Marker, PromptPolicy, ReasoningMarkers
from toolrail.parsing.blocks import Block, Reading
from toolrail.parsing.channels_guided import message_parser
from toolrail.parsing.headers import MessageSyntax, Route
from toolrail.render import render_messages
from toolrail.scan import Buffer
from toolrail.structural_tag import TagFormat, const, either, optional, sequence
from toolrail.structural_tag.arguments import held_arguments
from toolrail.structural_tag.channels import turn_tag
from toolrail.structural_tag.templated import TagRequest
from toolrail.syntax import JSON, CallSpelling, MessageSpelling, Objects, TurnSpelling
from toolrail.tools import Tool

MODEL: Final = "<|message_model|>"
THINKING: Final = "<|content_thinking|>"
TEXT: Final = "<|content_text|>"
INVOKE: Final = "<|content_invoke_tool_json|>"
INVOKE_TEXT: Final = "<|content_invoke_tool_text|>"
TOOL_ERROR: Final = "<|content_tool_error|>"
MEDIA: Final = ("<|content_image|>", "<|content_audio_input|>", "<|content_xml|>")
AUDIO_END: Final = "<|audio_end|>"
END: Final = "<|end_message|>"
END_SAMPLING: Final = "<|content_model_end_sampling|>"

KEYS: Final = Objects(arguments=("args", "arguments", "parameters"))

SPELLING: Final = TurnSpelling(
    between=MODEL,
    thought=MessageSpelling(THINKING, (END,)),
    remark=MessageSpelling(TEXT, (END,)),
    answer=MessageSpelling(TEXT, (END + END_SAMPLING, END, END_SAMPLING)),
    call=CallSpelling(
        begin=f'{{name}}{INVOKE}{{"name":"{{name}}","args":',
        end="}",
        ends=(END,),
        last=(END + END_SAMPLING, END_SAMPLING),
    ),
    markers=(
        MODEL,
        THINKING,
        TEXT,
        INVOKE,
        INVOKE_TEXT,
        TOOL_ERROR,
        *MEDIA,
        AUDIO_END,
        END,
        END_SAMPLING,
    ),
)


class _CallBody:
    """The JSON object of one call."""

    def __init__(self, reading: Reading) -> None:
        self._output: Final = reading.output
        self._call: Final = CallObject(KEYS, reading.output)
        self._begun = False

    @property
    def begun(self) -> bool:
        """Whether the call began."""
        return self._begun

    def read(self, buffer: Buffer, *, final: bool = False) -> Read:
        """Read on."""
        status = self._call.read(buffer, final=final)
        self._begun = self._begun or self._output.in_call
        if status is Read.DONE:
            self._output.end()
        return status


def route(header: str, body: str) -> Route:
    """Where a block goes: its marker says it."""
    if body == THINKING:
        return Route("reasoning")
    if body == INVOKE:
        return Route("call")
    return Route("nowhere" if body in MEDIA else "text")


def _call(called: Route, reading: Reading) -> Block:
    return _CallBody(reading)


SYNTAX: Final = MessageSyntax(
    starts=(MODEL,),
    bodies=(THINKING, TEXT, INVOKE, INVOKE_TEXT, TOOL_ERROR, *MEDIA),
    ends=(END, END_SAMPLING),
    inner=(AUDIO_END,),
    header=re.compile(r"<\|message_model\|>\s*[\w.-]*\s*"),
    first=re.compile(r"\s*[\w.-]*"),
    route=route,
    call=_call,
    self_describing=True,
)


def _call_tag(request: TagRequest, tool: Tool) -> TagFormat:
    name = tool.name
    heads = (f'{INVOKE}{{"name":"{name}","args":', f'{INVOKE}{{"name": "{name}", "args": ')
    return sequence(
        [
            optional(const(name)),
            either([const(head) for head in heads]),
            held_arguments(JSON, tool, request.options).format,
        ]
    )


def _tag(request: TagRequest) -> TagFormat | None:
    if not request.policy.tools and request.policy.choice != "none":
        return None
    return turn_tag(SPELLING, request, [_call_tag(request, t) for t in request.policy.tools])


def _render(items: Sequence[Item]) -> str:
    return render_messages(SPELLING, JSON, items)


FAMILY: Final = Family(
    name="inkling",
    aliases=(),
    source="vLLM 0.32.0, vllm/renderers/inkling_encoding.py",
    reasoning=ReasoningMarkers(begin=THINKING, end=END, after=MODEL),
    markers=tuple(Marker(text, special=True) for text in SPELLING.markers),
    prompt=PromptPolicy(),
    parser=partial(message_parser, SYNTAX),
    tag=_tag,
    render=_render,
    bans=(INVOKE,),
    reasoning_names=("inkling",),
    owns_reasoning=True,
    needs_reasoning=True,
    routes=frozenset({"1"}),
    starts_in=SYNTAX.starts_in,
)
