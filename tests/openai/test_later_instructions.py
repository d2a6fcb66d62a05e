"""Instructions amid a conversation, where the template knows them at its beginning alone."""

from __future__ import annotations

import pytest

from toolrail.chat_template import ChatTemplate
from toolrail.families.family import PromptPolicy
from toolrail.openai.conversation import (
    AssistantMessage,
    Instruction,
    Message,
    PastCall,
    ToolResult,
    UserMessage,
)
from toolrail.openai.habits import habits
from toolrail.openai.later_instructions import instructed_by_users
from toolrail.openai.prompt import template_messages

FIRST = Instruction("system", "Be brief.")
LATER = Instruction("system", "Use tools.")
ASKED = UserMessage("Hi")
SAID = AssistantMessage("Hello")
CALLED = AssistantMessage(None, None, (PastCall("c", "f", "{}", {}),))
RESULT = ToolResult("c", "f", "17")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([FIRST, LATER, ASKED], [FIRST, LATER, ASKED]),
        ([FIRST, ASKED, SAID, LATER, UserMessage("And?", "ann")],
         [FIRST, ASKED, SAID, UserMessage("Use tools.\n\nAnd?", "ann")]),
        ([ASKED, LATER], [UserMessage("Hi\n\nUse tools.")]),
        ([ASKED, LATER, SAID], [UserMessage("Hi\n\nUse tools."), SAID]),
        ([ASKED, SAID, LATER, LATER, SAID],
         [ASKED, SAID, UserMessage("Use tools.\n\nUse tools."), SAID]),
        ([ASKED, CALLED, LATER, RESULT], [ASKED, CALLED, RESULT, UserMessage("Use tools.")]),
        ([ASKED, CALLED, RESULT, LATER, ASKED],
         [ASKED, CALLED, RESULT, UserMessage("Use tools.\n\nHi")]),
    ],
)  # fmt: skip
def test_they_become_the_user_s_words(given: list[Message], expected: list[Message]) -> None:
    assert instructed_by_users(given) == expected


STRICT = """
{%- for m in messages %}
{%- if m.role == "system" and not loop.first %}{{ raise_exception("at the beginning") }}{% endif %}
{{- m.role }}:{{ m.content }};
{%- endfor %}"""
FORGETFUL = """
{%- if messages[0].role == "system" %}{{ messages[0].content }};{% endif %}
{%- for m in messages if m.role != "system" %}{{ m.role }}:{{ m.content }};{% endfor %}"""
OPEN = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"


@pytest.mark.parametrize(("template", "shows"), [(STRICT, False), (FORGETFUL, False), (OPEN, True)])
def test_a_template_that_cannot_show_them_is_found_out(template: str, shows: bool) -> None:
    compiled = ChatTemplate(template)
    found = habits(compiled, PromptPolicy())
    assert found.later_instructions is shows
    given = [FIRST, ASKED, SAID, LATER, ASKED]
    prompt = compiled.render(template_messages(given, found, PromptPolicy()))
    assert "Use tools." in prompt
    assert ("system:Use tools.;" in prompt) is shows
