"""What a chat template can read, found out by trying it once with a small conversation.

Templates disagree on a past call: some want its arguments as an object, some as JSON text; some
need an empty string where there is no text, DeepSeek's need null. With the wrong one a template
fails, or silently leaves the call out. Of 389 public templates that know calls, an object and an
empty string suit 350, and the search below 369; the family's own policy is tried first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol

from toolrail.errors import CallerError, FaultError
from toolrail.families.family import PromptPolicy


class Template(Protocol):
    """A chat template, wherever it is rendered."""

    def reads(self, name: str) -> bool:
        """Whether its text mentions `name`."""
        ...

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        tools: Sequence[Mapping[str, object]] | None = None,
        *,
        add_generation_prompt: bool = True,
        **kwargs: object,
    ) -> str:
        """The prompt."""
        ...


@dataclass(frozen=True, slots=True)
class Habits:
    """How one template takes messages.

    Attributes:
        arguments: past arguments as an object or as JSON text.
        no_text: the `content` of a message that only calls.
        developer: whether it knows the role `developer`; else those messages become `system`.
        later_instructions: whether it shows a system message that is not at the beginning.
    """

    arguments: Literal["object", "text"] = "object"
    no_text: str | None = ""
    developer: bool = False
    later_instructions: bool = True


_QUESTION: Final = "Question17"
_VALUE: Final = "Value23"
_RESULT: Final = "Result29"
_INSTRUCTION: Final = "Instruction31"
_TOOL: Final[Mapping[str, object]] = {
    "type": "function",
    "function": {
        "name": "probe",
        "description": "A probe.",
        "parameters": {
            "type": "object",
            "properties": {"key": {"type": "string", "description": "A key."}},
            "required": ["key"],
        },
    },
}


def habits(template: Template, policy: PromptPolicy) -> Habits:
    """The first habits with which `template` shows a past call whole, the policy's own first.

    A template that shows calls in no way (it does not know tools) keeps the policy's. Renders up to
    five times.
    """
    found = _of_calls(template, policy)
    return replace(found, later_instructions=_shows_later_instructions(template))


def _of_calls(template: Template, policy: PromptPolicy) -> Habits:
    first = Habits(policy.arguments, "", template.reads("developer"))
    other = replace(first, arguments="text" if policy.arguments == "object" else "object")
    for candidate in (first, replace(first, no_text=None), other, replace(other, no_text=None)):
        if _shows_calls(template, candidate):
            return candidate
    return first


def _shows_later_instructions(template: Template) -> bool:
    messages: list[Mapping[str, object]] = [
        {"role": "user", "content": _QUESTION},
        {"role": "assistant", "content": _RESULT},
        {"role": "system", "content": _INSTRUCTION},
        {"role": "user", "content": "Thanks."},
    ]
    try:
        return _INSTRUCTION in template.render(messages)
    except (CallerError, FaultError):
        return False


def _shows_calls(template: Template, candidate: Habits) -> bool:
    arguments = {"key": _VALUE} if candidate.arguments == "object" else f'{{"key": "{_VALUE}"}}'
    call = {"id": "abc456789", "type": "function"}
    messages: list[Mapping[str, object]] = [
        {"role": "user", "content": _QUESTION},
        {
            "role": "assistant",
            "content": candidate.no_text,
            "tool_calls": [{**call, "function": {"name": "probe", "arguments": arguments}}],
        },
        {"role": "tool", "tool_call_id": call["id"], "name": "probe", "content": _RESULT},
        {"role": "user", "content": "Thanks."},
    ]
    try:
        shown = template.render(messages, [_TOOL]).partition(_QUESTION)[2]
    except (CallerError, FaultError):
        return False
    # "None": null was printed. A backslash: the text was escaped once more.
    return _VALUE in shown and _RESULT in shown and "None" not in shown and '\\"key' not in shown
