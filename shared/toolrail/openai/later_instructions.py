"""Instructions amid a conversation, for templates that know them at its beginning alone.

Agents put them there, and such a template fails or leaves them out without a word. They become the
user's words, before what the user says next: the nearest thing that every template shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from toolrail.openai.conversation import Instruction, Message, ToolResult, UserMessage

_SEPARATOR: Final = "\n\n"


def instructed_by_users(messages: Sequence[Message]) -> list[Message]:
    """The messages, with instructions at the beginning only. O(messages).

    What stands between a call and its result goes after the result.
    """
    out: list[Message] = []
    waiting: list[str] = []
    has_begun = False
    for message in messages:
        if isinstance(message, Instruction):
            if has_begun:
                waiting.append(message.content)
            else:
                out.append(message)
            continue
        has_begun = True
        if isinstance(message, UserMessage) and waiting:
            out.append(replace(message, content=_SEPARATOR.join([*waiting, message.content])))
            waiting.clear()
        else:
            if waiting and not isinstance(message, ToolResult):
                _say(out, waiting)
            out.append(message)
    if waiting:
        _say(out, waiting)
    return out


def _say(out: list[Message], waiting: list[str]) -> None:
    """What waits becomes the user's, with what the user has just said if that is next to it."""
    text = _SEPARATOR.join(waiting)
    waiting.clear()
    last = out[-1]
    if isinstance(last, UserMessage):
        out[-1] = replace(last, content=f"{last.content}{_SEPARATOR}{text}")
    else:
        out.append(UserMessage(text))
