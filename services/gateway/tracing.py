"""What the span of a request says: names, counts and times, never its text."""

from __future__ import annotations

from opentelemetry.trace import Span

from services.gateway.answer import Outcome
from services.gateway.exchange import CLIENT_LEFT, Exchange
from services.gateway.failures import http_status
from toolrail import telemetry
from toolrail.telemetry import semconv


def describe(span: Span, exchange: Exchange, outcome: Outcome | None) -> None:
    """What the request came to, in the names of the GenAI conventions."""
    if not span.is_recording():
        return
    span.set_attribute(semconv.REQUEST_ID, exchange.request_id)
    span.set_attribute(semconv.HTTP_RESPONSE_STATUS_CODE, exchange.status or CLIENT_LEFT)
    if outcome is not None:
        describe_outcome(span, outcome)


def describe_outcome(span: Span, outcome: Outcome) -> None:
    """The same of a request, or a background response, that was generated."""
    if not span.is_recording():
        return
    if outcome.failed is not None:
        code = outcome.failed.code
        telemetry.fail(span, code, ours=http_status(outcome.failed) >= 500)
        facts = {semconv.FINISH: "error", semconv.CODE: code}
        span.add_event(semconv.FINISH_EVENT, facts)
    if outcome.left:
        span.set_attribute(semconv.LEFT, outcome.left)
    if not outcome.model:
        return
    reasons = outcome.tally.finish_reasons
    span.set_attributes(
        {
            semconv.GEN_AI_OPERATION_NAME: semconv.GEN_AI_OPERATION_CHAT,
            semconv.GEN_AI_PROVIDER_NAME: semconv.GEN_AI_PROVIDER_TOOLRAIL,
            semconv.GEN_AI_REQUEST_MODEL: outcome.model,
            semconv.GEN_AI_REQUEST_STREAM: outcome.stream,
            semconv.GEN_AI_RESPONSE_ID: outcome.response_id,
            semconv.GEN_AI_RESPONSE_MODEL: outcome.model,
            semconv.GEN_AI_RESPONSE_FINISH_REASONS: reasons,
            semconv.CALLS: outcome.tally.complete_calls,
        }
    )
    if outcome.failed is None and reasons:
        span.add_event(semconv.FINISH_EVENT, {semconv.FINISH: ",".join(reasons)})
    if outcome.first_event_s is not None:
        span.set_attribute(semconv.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK, outcome.first_event_s)
    if (usage := outcome.tally.usage) is not None:
        span.set_attributes(
            {
                semconv.GEN_AI_USAGE_INPUT_TOKENS: usage.prompt_tokens,
                semconv.GEN_AI_USAGE_OUTPUT_TOKENS: usage.completion_tokens,
                semconv.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: usage.cached_tokens,
                semconv.GEN_AI_USAGE_REASONING_OUTPUT_TOKENS: usage.reasoning_tokens,
            }
        )


def handed_over(postprocessor: str, prompt_tokens: int) -> None:
    """The request of the current span has an owner."""
    if (span := telemetry.recorded()) is not None:
        facts = {semconv.OWNER: postprocessor, semconv.TOKENS: prompt_tokens}
        span.add_event(semconv.ACCEPTED_EVENT, facts)


def taken_over(span: Span, former: str, owner: str, term: int) -> None:
    """The stream of `span` lost an owner; `owner`: who has it now, "" where nobody took it."""
    if span.is_recording():
        facts = {
            semconv.FORMER: former,
            semconv.OWNER: owner,
            semconv.TERM: term,
            semconv.OUTCOME: "done" if owner else "failed",
        }
        span.add_event(semconv.TAKE_OVER_EVENT, facts)
