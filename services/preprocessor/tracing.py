"""What the span of a request says here: verdicts, sizes, hashes and counts, and no text of it."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from opentelemetry.trace import Span

from services.preprocessor.constraining import Settled
from toolrail import telemetry
from toolrail.errors import CallerError
from toolrail.messages import Failed, Prepare
from toolrail.openai.chat import ChatRequest
from toolrail.openai.conversation import (
    AssistantMessage,
    Instruction,
    Message,
    ToolResult,
    UserMessage,
)
from toolrail.telemetry import semconv
from toolrail.telemetry.content import (
    Content,
    Part,
    call_part,
    message,
    reasoning_part,
    result_part,
    text_part,
)

_FIELD: Final = re.compile(r"[a-z_]{1,40}(\[\d{1,5}\])?")


@contextmanager
def preflight() -> Generator[None]:
    """Reads a body in the block; the verdict is an event of the current span."""
    try:
        yield
    except CallerError as error:
        facts = {
            semconv.VERDICT: "refused",
            semconv.CODE: error.code or "invalid_request",
            semconv.PARAM: field(error.param),
        }
        telemetry.event(semconv.PREFLIGHT_EVENT, facts)
        raise
    telemetry.event(semconv.PREFLIGHT_EVENT, {semconv.VERDICT: "accepted"})


def field(param: str | None) -> str:
    """The head of a path into a request, `tools[0]`: what follows are names of the client's."""
    found = _FIELD.match(param or "")
    return found.group() if found else ""


def taken(prepare: Prepare) -> None:
    """A request came."""
    if (span := telemetry.recorded()) is not None:
        span.set_attribute(semconv.REQUEST_ID, prepare.request_id)
        span.set_attribute(semconv.API, prepare.api)
        span.set_attribute(semconv.TERM, prepare.term)


def accepted(request: ChatRequest, settled: Settled, prompt_tokens: int, content: Content) -> None:
    """It goes on to a postprocessor."""
    span = telemetry.recorded()
    if span is None:
        return
    constraint = settled.constraint
    facts: dict[str, str | int] = {
        semconv.HELD_BY: constraint.report.held_by,
        semconv.STARTS_IN: constraint.parse.starts_in,
        semconv.TOOLS: len(request.tools),
        semconv.TOOL_CHOICE: request.choice.mode,
        semconv.GEN_AI_USAGE_INPUT_TOKENS: prompt_tokens,
    }
    if tag := constraint.guidance.structural_tag:
        facts[semconv.TAG_HASH] = settled.tag_hash
        facts[semconv.TAG_BYTES] = len(tag)
        span.set_attribute(semconv.TAG_HASH, settled.tag_hash)
    span.add_event(semconv.PREPARED_EVENT, facts)
    span.add_event(semconv.ENFORCEMENT_EVENT, _enforcement(settled))
    if content.wanted(span):
        _tell(span, request, content)


def _enforcement(settled: Settled) -> dict[str, str | int | bool]:
    """The summary of the enforcement report: counts and states, no names of the client's."""
    constraint = settled.constraint
    return {
        semconv.HELD_BY: constraint.report.held_by,
        "toolrail.tools_checked": len(constraint.checks.tools),
        "toolrail.answer_checked": constraint.checks.answer is not None,
        "toolrail.check_fails": constraint.checks.fails,
        **{f"toolrail.keywords.{status}": count for status, count in settled.keywords.items()},
    }


def _tell(span: Span, request: ChatRequest, content: Content) -> None:
    """The conversation and the tools, as the GenAI conventions write them."""
    content.put(span, semconv.GEN_AI_INPUT_MESSAGES, [_message(m) for m in request.messages])
    if request.tools:
        tools = [
            {
                "type": tool.kind,
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            }
            for tool in request.tools
        ]
        content.put(span, semconv.GEN_AI_TOOL_DEFINITIONS, tools)


def _message(said: Message) -> Part:
    match said:
        case AssistantMessage():
            parts = [reasoning_part(said.reasoning)] if said.reasoning else []
            parts += [text_part(said.content)] if said.content else []
            parts += [call_part(call.id, call.name, call.value) for call in said.calls]
            return message("assistant", parts)
        case ToolResult():
            return message("tool", [result_part(said.call_id, said.content)])
        case Instruction():
            return message(said.role, [text_part(said.content)])
        case UserMessage():
            return message("user", [text_part(said.content)])


def failed(reply: Failed) -> None:
    """It ends here."""
    if (span := telemetry.recorded()) is not None:
        telemetry.fail(span, reply.code, ours=reply.status >= 500)
