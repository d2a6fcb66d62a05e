"""From the messages of a Messages request to those of the one internal form.

A message of this API holds blocks of several kinds; chat templates read messages of one kind each.
So results of calls become messages of their own, before the text beside them, since templates want
them right after the call. Messages of one role that follow each other are one turn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, cast

import msgspec

from toolrail.anthropic.blocks import (
    DocumentBlock,
    RedactedBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    document_text,
    joined,
    read_block,
    texts_of,
)
from toolrail.anthropic.wire import Content, WireTurn
from toolrail.errors import CallerError
from toolrail.openai.conversation import (
    MAX_ARGUMENTS_BYTES,
    AssistantMessage,
    Instruction,
    Message,
    PastCall,
    ToolResult,
    UserMessage,
)
from toolrail.openai.decode import decode_json
from toolrail.openai.refusals import refusal, shortened
from toolrail.openai.wire import given

_BILLING: Final = re.compile(r"\Ax-anthropic-billing-header:[^\n]*\n*")
"""A line that an agent puts before its system prompt, with a hash that differs in every request.

It says nothing to a model, and would make every prompt differ from its first tokens on, so that no
prefix of it could ever be read from the cache.
"""
_ROLES: Final = "'user', 'assistant' and 'system'"


def conversation(system: Content | None, turns: Sequence[WireTurn]) -> tuple[Message, ...]:
    """The messages in order, the system prompt first. O(size).

    Raises:
        CallerError: a message cannot be given to a model; `param` says which and where.
    """
    gathering = _Gathering()
    gathering.instruct(system, "system")
    for position, turn in enumerate(turns):
        path = f"messages[{position}]"
        match turn.role:
            case "user":
                gathering.take_user(turn.content, f"{path}.content")
            case "assistant":
                gathering.take_assistant(turn.content, f"{path}.content")
            case "system":
                gathering.instruct(turn.content, f"{path}.content")
            case role:
                raise refusal(
                    f"Invalid value for '{path}.role': '{shortened(role)}'. Supported values are "
                    f"{_ROLES}.",
                    param=f"{path}.role",
                )
    return tuple(gathering.messages)


@dataclass(slots=True)
class _Turn:
    """An assistant's message while its blocks are read."""

    thoughts: list[str] = field(default_factory=list[str])
    texts: list[str] = field(default_factory=list[str])
    calls: list[PastCall] = field(default_factory=list[PastCall])

    def message(self) -> AssistantMessage:
        content = joined(self.texts)
        return AssistantMessage(
            content or (None if self.calls else ""),
            joined(self.thoughts) or None,
            tuple(self.calls),
        )


class _Gathering:
    """Takes turns, makes messages."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._called: dict[str, str] = {}

    def instruct(self, content: Content | None, path: str) -> None:
        """A system prompt; one with an instruction right before it."""
        text = joined([_BILLING.sub("", text) for text in texts_of(content, path)])
        if not text:
            return
        last = self.messages[-1] if self.messages else None
        if isinstance(last, Instruction):
            self.messages[-1] = Instruction("system", joined([last.content, text]))
        else:
            self.messages.append(Instruction("system", text))

    def take_user(self, content: Content, path: str) -> None:
        """What the user says, and what calls gave."""
        texts: list[str] = []
        if isinstance(content, str):
            texts.append(content)
        else:
            for index, raw in enumerate(content):
                where = f"{path}[{index}]"
                block = read_block(raw, where)
                match block:
                    case TextBlock(text):
                        texts.append(text)
                    case DocumentBlock():
                        texts.append(document_text(block, where))
                    case ToolResultBlock():
                        self._answer(self._result(block, where))
                    case _:
                        raise _misplaced(where, "user", "'text', 'document' and 'tool_result'")
        text = joined(texts)
        last = self.messages[-1] if self.messages else None
        if isinstance(last, UserMessage):
            self.messages[-1] = UserMessage(joined([last.content, text]))
        elif text or not isinstance(last, ToolResult):
            self.messages.append(UserMessage(text))

    def take_assistant(self, content: Content, path: str) -> None:
        """An earlier answer."""
        turn = _Turn()
        last = self.messages[-1] if self.messages else None
        if isinstance(last, AssistantMessage):
            self.messages.pop()
            turn = _Turn([last.reasoning or ""], [last.content or ""], list(last.calls))
        if isinstance(content, str):
            turn.texts.append(content)
        else:
            for index, raw in enumerate(content):
                self._take_block(turn, raw, f"{path}[{index}]")
        self.messages.append(turn.message())

    def _take_block(self, turn: _Turn, raw: msgspec.Raw, where: str) -> None:
        block = read_block(raw, where)
        match block:
            case TextBlock(text):
                turn.texts.append(text)
            case ThinkingBlock(thinking):
                turn.thoughts.append(thinking)
            case RedactedBlock():
                pass
            case ToolUseBlock():
                if any(call.id == block.id for call in turn.calls):
                    raise refusal(
                        f"Two calls of one turn have the id '{shortened(block.id)}'.",
                        param=f"{where}.id",
                    )
                turn.calls.append(self._call(block, where))
            case _:
                raise _misplaced(where, "assistant", "'text', 'thinking' and 'tool_use'")

    def _answer(self, result: ToolResult) -> None:
        """The result goes before what the user said since the call."""
        said = self.messages[-1]
        self.messages.append(result)
        if isinstance(said, UserMessage):
            self.messages[-2:] = [result, said]

    def _call(self, block: ToolUseBlock, path: str) -> PastCall:
        self._called[block.id] = block.name
        where = f"{path}.input"
        if not given(block.input):
            return PastCall(block.id, block.name, "{}", {})
        value = decode_json(block.input, where, max_bytes=MAX_ARGUMENTS_BYTES)
        if not isinstance(value, dict):
            raise refusal(f"'{where}' must be an object.", param=where, code="invalid_type")
        arguments = bytes(block.input).decode()
        return PastCall(block.id, block.name, arguments, cast("dict[str, object]", value))

    def _result(self, block: ToolResultBlock, path: str) -> ToolResult:
        name = self._called.get(block.tool_use_id)
        if name is None:
            raise refusal(
                f"No 'tool_use' before '{path}' has the id '{shortened(block.tool_use_id)}': a "
                "'tool_result' must follow the message whose 'tool_use' it answers.",
                param=f"{path}.tool_use_id",
            )
        text = joined(texts_of(block.content, f"{path}.content"))
        return ToolResult(block.tool_use_id, name, text or ("Error" if block.is_error else ""))


def _misplaced(where: str, role: str, supported: str) -> CallerError:
    return refusal(
        f"A block of this type cannot stand in a message of the {role}: supported are {supported}.",
        param=f"{where}.type",
        code="unsupported_value",
    )
