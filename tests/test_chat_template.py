"""Templates render as transformers renders them, within a budget, with an injected date."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from toolrail.chat_template import Budget, ChatTemplate
from toolrail.errors import CallerError, ConfigError, DeadlineError, FaultError

USER = {"role": "user", "content": "hi"}
TOOL = {
    "type": "function",
    "function": {"name": "f", "description": "<é> & 'x'", "parameters": {"z": 1, "a": None}},
}


def render(source: str, messages: Any = (USER,), tools: Any = None, **kwargs: Any) -> str:
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>").render(messages, tools, **kwargs)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", "<s>hi</s>"),
        ("{{ messages[0]['role'] }}", "user"),
        ("{% if tools %}t{% else %}n{% endif %}", "n"),
        ("{{ enable_thinking is defined }}", "False"),
        ("{{ documents is none }}", "True"),
        # Blocks leave neither their line nor their indentation.
        ("{% if true %}\n  a\n    {% endif %}\nb", "  a\nb"),
        ("{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "012"),
        (
            "{% for i in range(4) %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}",
            "023",
        ),
        ("a{% generation %}{{ messages[0].content }}{% endgeneration %}b", "ahib"),
        ("{% set ns = namespace(n=1) %}{% set ns.n = 2 %}{{ ns.n }}", "2"),
        ("{{ 'x' | length }}{{ [3, 1] | sort }}", "1[1, 3]"),
    ],
)
def test_what_templates_use(source: str, text: str) -> None:
    assert render(source) == text


@pytest.mark.parametrize(
    ("filter_", "text"),
    [
        (
            "tojson",
            '{"name": "f", "description": "<é> & \'x\'", "parameters": {"z": 1, "a": null}}',
        ),
        (
            "tojson(ensure_ascii=true)",
            '{"name": "f", "description": "<\\u00e9> & \'x\'", "parameters": {"z": 1, "a": null}}',
        ),
        (
            "tojson(sort_keys=true)",
            '{"description": "<é> & \'x\'", "name": "f", "parameters": {"a": null, "z": 1}}',
        ),
        (
            "tojson(separators=(',', ':'))",
            '{"name":"f","description":"<é> & \'x\'","parameters":{"z":1,"a":null}}',
        ),
        ("tojson(indent=2) | replace('\\n', '/') | truncate(14, true, '')", '{/  "name": "f'),
    ],
)
def test_tojson_keeps_order_and_escapes_nothing(filter_: str, text: str) -> None:
    assert render(f"{{{{ tools[0].function | {filter_} }}}}", tools=[TOOL]) == text


def test_variables_and_the_generation_prompt() -> None:
    source = "{{ effort }}{% if add_generation_prompt %}<a>{% endif %}"
    assert render(source, effort="low") == "low<a>"
    assert render(source, effort="low", add_generation_prompt=False) == "low"


def test_the_date_is_injected() -> None:
    source = "{{ strftime_now('%d %b %Y %H:%M') }}"
    date = datetime(2026, 11, 29, tzinfo=UTC)
    assert ChatTemplate(source, date=date).render([USER]) == "29 Nov 2026 00:00"
    with pytest.raises(FaultError, match="date"):
        ChatTemplate(source).render([USER])


def test_a_refusal_of_the_template_is_the_callers() -> None:
    with pytest.raises(CallerError) as info:
        render("{{ raise_exception('Only one system message, please.') }}")
    assert (info.value.status, info.value.param) == (400, "messages")
    assert info.value.code == "template_refused"
    assert "Only one system message, please." in info.value.message


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[7].content }}",
        "{{ messages[0].nothing.more }}",
        "{{ messages[0] + 1 }}",
        "{{ 1 / 0 }}",
        "{{ ''.__class__.__mro__ }}",
        "{% set _ = messages.append(1) %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    ],
)
def test_a_template_that_fails_is_our_fault(source: str) -> None:
    with pytest.raises(FaultError) as info:
        render(source, messages=[USER])
    assert info.value.code == "internal"


@pytest.mark.parametrize("source", ["{% if %}", "{{ x", "{% unknown %}"])
def test_what_is_no_template_cannot_be_served(source: str) -> None:
    with pytest.raises(ConfigError):
        ChatTemplate(source)


LOOPS = "{% for i in range(100000) %}{% for j in range(100000) %}%s{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    "body", ["{% set x = messages[0] %}", "{% set x = messages.x %}", "{% set x = range(1) %}"]
)
def test_a_rendering_ends_at_its_deadline(body: str) -> None:
    template = ChatTemplate(LOOPS.replace("%s", body), budget=Budget(timeout_s=0.05))
    with pytest.raises(DeadlineError):
        template.render([USER])


def test_a_rendering_ends_at_its_size() -> None:
    template = ChatTemplate(LOOPS.replace("%s", "x"), budget=Budget(max_chars=1000))
    with pytest.raises(CallerError) as info:
        template.render([USER])
    assert info.value.code == "context_length_exceeded"
    exact = ChatTemplate("{% for i in range(10) %}x{% endfor %}", budget=Budget(max_chars=10))
    assert exact.render([USER]) == "x" * 10


def test_one_template_renders_for_several_at_once() -> None:
    template = ChatTemplate("{{ messages[0].content }}")
    inner = ChatTemplate("{{ strftime_now('%Y') }}", date=datetime(2026, 1, 1, tzinfo=UTC))

    class Nested:
        def __str__(self) -> str:
            return inner.render([USER])

    assert template.render([{"role": "user", "content": Nested()}]) == "2026"
    assert template.render([USER]) == "hi"
