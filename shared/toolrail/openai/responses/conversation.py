"""From the items of a Responses request to the messages of the one internal form.

Items come one by one; chat templates read messages. Items of the assistant that stand together are
one turn: its reasoning, its text and its calls become one message, in the order that templates
show them. Text right after text begins another message. Calls that were cut off are left out, as
they were never made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, assert_never, cast

from toolrail.openai.conversation import (
    MAX_ARGUMENTS_BYTES,
    AssistantMessage,
    Instruction,
    Message,
    PastCall,
    ToolResult,
    UserMessage,
    custom_call,
)
from toolrail.openai.decode import decode_json
from toolrail.openai.limits import MAX_CALLS
from toolrail.openai.refusals import refusal, shortened
from toolrail.openai.responses.items import (
    AdditionalToolsItem,
    AgentMessageItem,
    CallOutputItem,
    Content,
    CustomCallItem,
    FunctionCallItem,
    InputText,
    Item,
    MessageItem,
    OutputText,
    Part,
    Placed,
    PlainText,
    ReasoningItem,
    ReferenceItem,
    Refusal,
)
from toolrail.openai.responses.sealed import MAX_TEXT_BYTES, unseal
from toolrail.openai.responses.tools import flat_name

_PART_SEPARATOR: Final = "\n"
_BETWEEN: Final = "\n\n"
"""Between instructions, and between pieces of reasoning."""


def conversation(
    instructions: str | None, items: Sequence[Placed], *, whole: bool = True
) -> tuple[Message, ...]:
    """The messages that `items` amount to, after the instructions. O(size).

    `whole` False: what came before the items is not known, so a result may answer a call that is
    not among them.

    Raises:
        CallerError: an item cannot be given to a model; `param` says which and where.
    """
    gathering = _Gathering(whole)
    for item, path in items:
        gathering.take(item, path)
    gathering.close()
    messages = gathering.messages
    if instructions:
        messages = _instructed(instructions, messages)
    return tuple(messages)


def _instructed(instructions: str, messages: Sequence[Message]) -> list[Message]:
    """The messages with the instructions first: one message with those that follow at once.

    Many templates know one system message, at the beginning.
    """
    texts = [instructions]
    for message in messages:
        if not isinstance(message, Instruction):
            break
        texts.append(message.content)
    rest = messages[len(texts) - 1 :]
    return [Instruction("system", _BETWEEN.join(filter(None, texts))), *rest]


@dataclass(slots=True)
class _Turn:
    """What the assistant said since anybody else did."""

    reasoning: list[str] = field(default_factory=list[str])
    texts: list[str] = field(default_factory=list[str])
    calls: dict[str, PastCall] = field(default_factory=dict[str, PastCall])
    ends_in_text: bool = False

    def message(self) -> AssistantMessage | None:
        """The turn as a message; None when there was none."""
        if not (self.reasoning or self.texts or self.calls):
            return None
        content = "".join(self.texts) if self.texts else None if self.calls else ""
        reasoning = _BETWEEN.join(filter(None, self.reasoning)) or None
        return AssistantMessage(content, reasoning, tuple(self.calls.values()))


class _Gathering:
    """Takes items, makes messages."""

    def __init__(self, whole: bool) -> None:
        self.messages: list[Message] = []
        self._whole = whole
        self._turn = _Turn()
        self._called: dict[str, str] = {}
        self._sealed_room = MAX_TEXT_BYTES

    def take(self, item: Item, path: str) -> None:
        """One more item. Tools and references were taken out of the items before."""
        match item:
            case MessageItem():
                self._take_message(item, path)
            case AgentMessageItem(content):
                self._say(UserMessage(_text(content, f"{path}.content")))
            case FunctionCallItem() | CustomCallItem():
                self._take_call(item, path)
            case CallOutputItem():
                self._take_output(item, path)
            case ReasoningItem():
                self._take_reasoning(item, path)
            case AdditionalToolsItem() | ReferenceItem():
                pass
            case _:
                assert_never(item)

    def close(self) -> None:
        """The assistant's turn, if one is open, is over."""
        message = self._turn.message()
        if message is not None:
            self.messages.append(message)
            self._called.update((call.id, call.name) for call in message.calls)
        self._turn = _Turn()

    def _take_message(self, item: MessageItem, path: str) -> None:
        if item.content is None and item.role != "assistant":
            raise refusal(
                f"Missing required parameter: '{path}.content'.",
                param=f"{path}.content",
                code="missing_required_parameter",
            )
        text = _text(item.content, f"{path}.content")
        match item.role:
            case "assistant":
                if self._turn.ends_in_text:
                    self.close()
                self._turn.texts.append(text)
                self._turn.ends_in_text = True
            case "user":
                self._say(UserMessage(text))
            case role:
                self._say(Instruction(role, text))

    def _take_reasoning(self, item: ReasoningItem, path: str) -> None:
        try:
            text = _reasoning(item, self._sealed_room)
        except OverflowError:
            raise refusal(
                f"The reasoning in all 'encrypted_content' exceeds {MAX_TEXT_BYTES:,} bytes.",
                param=f"{path}.encrypted_content",
                code="string_above_max_length",
            ) from None
        if item.encrypted_content:
            self._sealed_room = max(1, self._sealed_room - len(text.encode()))
        if text:
            self._turn.reasoning.append(text)
            self._turn.ends_in_text = False

    def _take_call(self, item: FunctionCallItem | CustomCallItem, path: str) -> None:
        if item.status == "incomplete":
            return
        if len(self._turn.calls) == MAX_CALLS:
            raise refusal(
                f"One turn has more than {MAX_CALLS:,} calls.",
                param=path,
                code="array_above_max_length",
            )
        if item.call_id in self._turn.calls:
            raise refusal(
                f"Two calls of one turn have the id '{shortened(item.call_id)}'.",
                param=f"{path}.call_id",
            )
        self._turn.calls[item.call_id] = _call(item, path)
        self._turn.ends_in_text = False

    def _take_output(self, item: CallOutputItem, path: str) -> None:
        self.close()
        name = self._called.get(item.call_id)
        if name is None and self._whole:
            raise refusal(
                f"No call before '{path}' has the id '{shortened(item.call_id)}': an output must "
                "follow the call that it answers, in 'input' or in the previous response.",
                param=f"{path}.call_id",
            )
        self.messages.append(
            ToolResult(item.call_id, name or "", _text(item.output, f"{path}.output"))
        )

    def _say(self, message: Message) -> None:
        self.close()
        self.messages.append(message)


def _call(item: FunctionCallItem | CustomCallItem, path: str) -> PastCall:
    name = flat_name(item.namespace, item.name)
    if isinstance(item, CustomCallItem):
        return custom_call(item.call_id, name, item.input or "")
    text = item.arguments
    if text is None or not text.strip():
        return PastCall(item.call_id, name, "{}", {})
    where = f"{path}.arguments"
    value = decode_json(text, where, max_bytes=MAX_ARGUMENTS_BYTES)
    if not isinstance(value, dict):
        raise refusal(
            f"'{where}' must be the JSON text of an object.", param=where, code="invalid_type"
        )
    return PastCall(item.call_id, name, text, cast("dict[str, object]", value))


def _reasoning(item: ReasoningItem, sealed_room: int) -> str:
    """The text of the reasoning; its summary where that is all there is."""
    for pieces in (item.content, None if item.encrypted_content else item.summary):
        text = _BETWEEN.join(piece.text for piece in pieces or () if piece.text)
        if text:
            return text
    found = unseal(item.encrypted_content, sealed_room) if item.encrypted_content else None
    if found is None and item.summary:
        return _BETWEEN.join(piece.text for piece in item.summary if piece.text)
    return found or ""


def _text(content: Content | None, path: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return _PART_SEPARATOR.join(
        _part(part, f"{path}[{index}]") for index, part in enumerate(content)
    )


def _part(part: Part, path: str) -> str:
    match part:
        case InputText(text) | OutputText(text) | PlainText(text) | Refusal(text):
            return text
        case _:
            kind = part.__struct_config__.tag
            raise refusal(
                f"Content of type '{kind}' is not supported: the models served here read text.",
                param=f"{path}.type",
                code="unsupported_value",
            )
