"""Control tokens in what a request brings: where a deployment does not take them.

A chat template writes texts into the prompt as they are, and the tokenizer makes a control token of
whatever is spelled like one: whoever writes into a conversation (a user, a web page that a tool has
read) could forge a turn of it. What is looked at here is what templates are given, after JSON has
been read, in arguments of calls too; a spelling that the template itself completes is not seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, cast

import msgspec

from toolrail.errors import CallerError
from toolrail.openai.canonical import template_tool
from toolrail.openai.chat import ChatRequest
from toolrail.openai.conversation import AssistantMessage, Message, ToolResult
from toolrail.openai.refusals import refusal, shortened

CONTROL_TOKEN: Final = "control_token"
"""The code of such a refusal."""

_PROMPT_FIELDS: Final = (
    *("messages", "input", "instructions", "system"),
    *("tools", "functions", "chat_template_kwargs"),
)
"""Fields of a body, of any API, of which prompts are made; searched in this order for a place."""


class ControlTokens:
    """The control tokens of a model, as texts that are looked for."""

    def __init__(
        self,
        texts: Collection[str],
        looked_at: Callable[[str], Iterable[str]] = lambda text: (text,),
    ) -> None:
        """`looked_at`: the forms of a text in which the tokenizer looks for them."""
        longest_first = sorted(filter(None, texts), key=len, reverse=True)
        found = "|".join(map(re.escape, longest_first))
        self._search = re.compile(found).search if found else None
        self._looked_at = looked_at

    def first(self, text: str) -> str | None:
        """The first that `text` holds, or None. O(text)."""
        if self._search is None:
            return None
        for form in self._looked_at(text):
            if found := self._search(form):
                return found[0]
        return None

    def refuse(self, request: ChatRequest, body: bytes) -> None:
        """Refuse a request that brings one. `body`: as it came, to say where. O(request).

        Raises:
            CallerError: it does.
        """
        for text in _prompt_texts(request):
            token = self.first(text)
            if token is not None:
                raise self._refusal(token, request, body)

    def _refusal(self, token: str, request: ChatRequest, body: bytes) -> CallerError:
        param = self._place(body) or request.origin.conversation
        return refusal(
            f"'{param}' holds '{token}', a control token of this model, which this server takes "
            "from nobody: leave it out, or write it differently.",
            param=param,
            code=CONTROL_TOKEN,
        )

    def _place(self, body: bytes) -> str | None:
        """Path of the first text of the body that holds one as it stands."""
        fields = cast("Mapping[str, object]", msgspec.json.decode(body))
        for name in _PROMPT_FIELDS:
            for path, text in _strings(fields.get(name), name):
                if self.first(text) is not None:
                    return path
        return None


def _prompt_texts(request: ChatRequest) -> Iterator[str]:
    """Every text of the request that a template may write."""
    for message in request.messages:
        yield from _message_texts(message)
    for tool in request.tools:
        yield from _all_strings(template_tool(tool))
    yield from _all_strings(request.template_kwargs)


def _message_texts(message: Message) -> Iterator[str]:
    yield message.content or ""
    if isinstance(message, AssistantMessage):
        yield message.reasoning or ""
        for call in message.calls:
            yield from (call.id, call.name, call.arguments)
            yield from _all_strings(call.value)
    elif isinstance(message, ToolResult):
        yield message.call_id
    yield message.name or ""


def _all_strings(value: object) -> Iterator[str]:
    return (text for _, text in _strings(value, ""))


def _strings(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Every string in a JSON value with its path, keys included (with the path of their value)."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, object]", value).items():
            place = f"{path}.{shortened(key)}"
            yield place, key
            yield from _strings(inner, place)
    elif isinstance(value, Sequence):
        for index, inner in enumerate(cast("Sequence[object]", value)):
            yield from _strings(inner, f"{path}[{index}]")
