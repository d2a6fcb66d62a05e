"""Constraints without the family's markup: guided fields, and forced calls as bare JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from toolrail.messages import Guidance
from toolrail.openai.answers import GuidedAnswer
from toolrail.openai.chat import ChatRequest
from toolrail.openai.compilable import arguments_of, blamed, compilable
from toolrail.openai.policy import tool_policy
from toolrail.openai.refusals import refusal
from toolrail.openai.report import HeldSchema, Report
from toolrail.openai.schemas import call_schema
from toolrail.openai.setting import (
    Constraint,
    Setting,
    Settling,
    json_format,
    max_calls,
    parse_spec,
    report_lines,
    schema_params,
    tag_json,
    unenforceable,
)
from toolrail.schema.normalise import normalise_value
from toolrail.structural_tag import TagFormat
from toolrail.tools import JsonSchema, Tool, ToolPolicy


def guided_call(request: ChatRequest, setting: Setting, policy: ToolPolicy) -> Settling:
    """A forced call as bare JSON: the arguments of a named one, an array of `required` ones."""

    def schema_of(tools: Sequence[Tool]) -> JsonSchema:
        if policy.choice == "named":
            return {"type": "object"} if tools[0].parameters is None else tools[0].parameters
        return call_schema(tools, single=policy.single)

    def tag_of(tools: Sequence[Tool]) -> str | None:
        return tag_json(json_format(schema_of(tools)))

    params = schema_params(request)
    wanted = arguments_of(policy.tools, setting.options, "json", params)
    found = yield from compilable(tag_of, tag_of, wanted, params)
    if isinstance(found, str):
        raise refusal(f"A forced call cannot be held: {found}.", param="tools")
    held = found[1]
    schema = schema_of([entry.held for entry in held])
    waits = setting.engine_waits
    parse = parse_spec(setting, policy)
    return Constraint(
        Guidance(json_schema=msgspec.json.encode(schema).decode(), reasoning_ended=not waits),
        # Held from the first token on, the output is the payload, whatever the prompt opened.
        msgspec.structs.replace(
            parse, mode="guided_json", starts_in="reasoning" if waits else "none"
        ),
        max_calls(policy),
        Report("guided_json", report_lines(policy, held)),
    )


def bare(request: ChatRequest, setting: Setting, guided: GuidedAnswer) -> Settling:
    """A guided field, over all output from the first token on."""
    policy = tool_policy(request, setting.deployment)
    on = setting.deployment.turn_grammar and not setting.deployment.free_turns
    if on and request.choice.callable and not policy.parallel:
        raise refusal(unenforceable(setting), param=guided.param)
    guidance, same, line = _bare_guidance(guided)
    verdict = yield tag_json(same)
    if verdict is not None:
        raise blamed(verdict, guided.param, f"'{guided.param}'")
    # It starts at the first token, so nothing that the prompt opened goes on.
    starts_in = "response" if setting.starts_in == "reasoning" else setting.starts_in
    parse = parse_spec(replace(setting, starts_in=starts_in), policy)
    return Constraint(guidance, parse, max_calls(policy), Report("guided_field", answer=line))


def _bare_guidance(guided: GuidedAnswer) -> tuple[Guidance, TagFormat, HeldSchema]:
    """The bare constraint, a tag format that says the same (to be checked), and the report."""
    line = HeldSchema(guided.param)
    match guided.value:
        case tuple() as choices:
            elements = [{"type": "const_string", "value": text} for text in choices]
            return Guidance(choice=choices), {"type": "or", "elements": elements}, line
        case str(text) if guided.kind == "regex":
            return Guidance(regex=text), {"type": "regex", "pattern": text}, line
        case str(text):
            return Guidance(grammar=text), {"type": "grammar", "grammar": text}, line
        case schema:
            found = normalise_value(schema)
            text = msgspec.json.encode(found.schema).decode()
            line = HeldSchema(guided.param, None, found.report)
            return Guidance(json_schema=text), json_format(found.schema), line
