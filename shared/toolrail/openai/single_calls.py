"""History for templates that show one call in a message: calls alternate with their results.

gpt-oss's template shows the first call of a message and leaves the others out without a word; text
beside a call it shows as reasoning, and beside reasoning as well it fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from toolrail.openai.conversation import AssistantMessage, Message, ToolResult


def one_call_each(messages: Sequence[Message]) -> list[Message]:
    """The messages, each with one call at most, before the results of that call. O(messages)."""
    out: list[Message] = []
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        if not isinstance(message, AssistantMessage) or not message.calls:
            out.append(message)
            continue
        results: dict[str, list[Message]] = {}
        while at < len(messages) and isinstance(result := messages[at], ToolResult):
            results.setdefault(result.call_id, []).append(result)
            at += 1
        out += _alternating(_without_text_beside_reasoning(message), results)
    return out


def _alternating(message: AssistantMessage, results: dict[str, list[Message]]) -> list[Message]:
    out: list[Message] = []
    for index, call in enumerate(message.calls):
        alone = AssistantMessage(None, None, (call,), message.name)
        out.append(alone if index else replace(message, calls=(call,)))
        out += results.pop(call.id, [])
    for late in results.values():  # of calls in earlier messages
        out += late
    return out


def _without_text_beside_reasoning(message: AssistantMessage) -> AssistantMessage:
    if message.reasoning is None or not message.content:
        return message
    return replace(message, reasoning=f"{message.reasoning}\n{message.content}", content=None)
