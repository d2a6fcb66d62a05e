"""Grammars that custom tools declare for their input: held where the deployment says so.

By the product specification such a tool is refused before generation. The structural-tag option
`custom_grammars` turns the refusal into a grammar that holds the input.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

from toolrail.errors import CallerError
from toolrail.grammars import UnheldGrammarError
from toolrail.openai.compilable import Verdict
from toolrail.openai.refusals import refusal
from toolrail.openai.setting import tag_json
from toolrail.structural_tag import TagOptions, grammar
from toolrail.structural_tag.inputs import text_rules
from toolrail.tools import Tool


def refuse_grammars(
    tools: Sequence[Tool], options: TagOptions | None, params: Mapping[str, str]
) -> None:
    """Returns unless one of `tools` declares a grammar and the deployment does not hold any.

    `options` None: structural tags are off. `params`: path of each tool's format, by name.

    Raises:
        CallerError: names the tool.
    """
    if options is not None and options.custom_grammars:
        return
    for tool in tools:
        if tool.grammar is not None:
            raise _refused(tool, params[tool.name])


def grammars_tried(
    tools: Sequence[Tool], params: Mapping[str, str]
) -> Generator[str, Verdict, None]:
    """Has the grammars of the callable `tools` tried, each alone.

    A tag begins with a call's header or with any text, from which a check that walks a little way
    would not come to the grammar inside.

    Raises:
        UnheldGrammarError: one is none, or cannot be held at all.
        CallerError: the engine refuses one, or it costs too much.
    """
    for tool in tools:
        if tool.grammar is None:
            continue
        try:
            rules = text_rules(tool.grammar)
        except UnheldGrammarError as error:
            raise UnheldGrammarError(error.reason, tool.name) from None
        verdict = yield tag_json(grammar(rules))
        if verdict is not None:
            raise CallerError(
                f"The grammar engine cannot hold the grammar of custom tool '{tool.name}': "
                f"{verdict.message}",
                param=params[tool.name],
                code=verdict.code or "invalid_grammar",
                status=verdict.status,
            )


def unheld(error: UnheldGrammarError, params: Mapping[str, str]) -> CallerError:
    """The 400 for a grammar that cannot be held; `params`: path of each tool's format, by name."""
    return refusal(
        f"The grammar of custom tool '{error.tool}' cannot be held: {error.reason}.",
        param=params[error.tool],
        code="invalid_grammar",
    )


def refuse_unheld(tools: Sequence[Tool], params: Mapping[str, str]) -> None:
    """Returns unless one of the callable `tools` has a grammar: no structural tag holds them.

    Raises:
        CallerError: names the tool.
    """
    for tool in tools:
        if tool.grammar is not None:
            reason = "no structural tag holds the calls of this request"
            raise unheld(UnheldGrammarError(reason, tool.name), params)


def _refused(tool: Tool, param: str) -> CallerError:
    return refusal(
        f"The grammar format of custom tool '{tool.name}' is not supported: use the format 'text', "
        "or ask the operator for the structural-tag option 'custom_grammars'.",
        param=param,
        code="unsupported_value",
    )
