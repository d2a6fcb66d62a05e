"""Whatever a request calls a grammar is read, or refused as a grammar: nothing else is raised."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.families.walking import tag_json
from toolrail.grammar import check_tag
from toolrail.grammars import UnheldGrammarError
from toolrail.structural_tag import grammar
from toolrail.structural_tag.inputs import input_rules
from toolrail.syntax import JSON, XmlStyle
from toolrail.tools import InputGrammar

XML = XmlStyle("xml", open="<p=", key_end=">", close="</p>")
FUZZ = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
PIECES = [
    *("start", ":", " ", "\n", "|", "(", ")", "[", "]", "?", "*", "+", "~2", "~1..3", '"a"'),
    *("/a+/", "/[^x]*/i", "/(a|b)?/", '"a".."z"', "A", "b", "\nA: ", "\nb: ", "-> x", "// c\n"),
    *("%ignore A", "%import common.WS", "\n%ignore WS\n", "%declare", ".2", '"é"i', "\\", "/"),
    *('"', '""', '"</p"'),
]
REGEX = [*"ab.|()[]{}*+?^$\\-,1", "\\d", "\\W", "[^", "(?:", "(?P<n>", "{2}", "{1,3}", "</p>", "é"]


def outcome(syntax: str, text: str) -> None:
    """Fails unless the text is refused as a grammar, or written so that the engine reads it."""
    for style in (JSON, XML):
        declared = InputGrammar(syntax, text)  # type: ignore[arg-type]
        with suppress(UnheldGrammarError):
            check_tag(tag_json(grammar(input_rules(style, declared, guarded=True))))


@FUZZ
@example('start: "a"' + "?" * 5_000)
@example("start: /" + "(" * 5_000 + "/")
@example("start: " + "(" * 5_000)
@example("start: " + "|" * 5_000)
@example("start: /a" + "*" * 50 + "/")
@example("start: a0\n" + "\n".join(f"a{i}: a{i + 1}" for i in range(900)) + '\na900: "x"')
@given(st.lists(st.sampled_from(PIECES), max_size=14).map(lambda parts: "start: " + "".join(parts)))
def test_lark(text: str) -> None:
    outcome("lark", text)


@FUZZ
@given(st.lists(st.sampled_from(REGEX), max_size=10).map("".join))
def test_regex(text: str) -> None:
    outcome("regex", text)


@FUZZ
@given(st.text(max_size=40))
def test_any_text(text: str) -> None:
    outcome("lark", text)
    outcome("regex", text)
