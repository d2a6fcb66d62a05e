"""What the span of a run says: names, counts and times. Nothing is gathered where none is recorded.

One span from the slot that a job gets to its last word. It is linked to the run of the attempt
before; its own context goes out with the first delta, so that the stream it feeds is linked to it.
"""

from __future__ import annotations

from opentelemetry.trace import Span

from services.worker.engine import Step
from services.worker.runs import End, Run
from toolrail import telemetry
from toolrail.bus import subjects
from toolrail.telemetry import semconv


def begin(span: Span, run: Run) -> None:
    """`run` has a slot; `span` is its span from now on."""
    if not span.is_recording():
        return
    run.span = span
    job, item = run.job, run.item
    span.set_attributes(
        {
            semconv.MESSAGING_SYSTEM: semconv.MESSAGING_SYSTEM_NATS,
            semconv.MESSAGING_OPERATION_NAME: "process",
            semconv.MESSAGING_OPERATION_TYPE: "process",
            semconv.MESSAGING_DESTINATION_NAME: subjects.work(job.model),
            semconv.MESSAGING_DESTINATION_TEMPLATE: "work",
            semconv.MESSAGING_CONSUMER_GROUP_NAME: subjects.model_token(job.model),
            semconv.MESSAGING_MESSAGE_BODY_SIZE: len(item.payload),
            semconv.GEN_AI_REQUEST_MODEL: job.model,
            semconv.GEN_AI_REQUEST_MAX_TOKENS: job.sampling.max_tokens,
            semconv.GEN_AI_REQUEST_TEMPERATURE: job.sampling.temperature,
            semconv.GEN_AI_REQUEST_TOP_P: job.sampling.top_p,
            semconv.REQUEST_ID: job.request_id,
            semconv.CHOICE: job.choice,
            semconv.ATTEMPT: job.attempt,
            semconv.DELIVERIES: item.deliveries,
            semconv.RESUMED_TOKENS: len(job.prefix_token_ids),
        }
    )
    if (tag := job.guidance.structural_tag) is not None:
        span.set_attribute(semconv.TAG_HASH, telemetry.tag_hash(tag))
    telemetry.link(span, job.follows, {semconv.ATTEMPT: job.attempt - 1})
    span.add_event(semconv.TAKEN_EVENT, {semconv.QUEUE_WAIT_S: run.waited_s()})


def first_token(run: Run, step: Step) -> None:
    """Its first ids, those of `step`, are on their way."""
    if not (run.tokens and run.span.is_recording()):
        return
    took_s = run.first_token_s - run.taken_s
    run.span.add_event(semconv.FIRST_TOKEN_EVENT, {semconv.SECONDS: took_s})
    if step.cached_tokens is not None:
        run.span.set_attribute(semconv.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS, step.cached_tokens)


def aborted(run: Run) -> None:
    """This worker ends it."""
    if run.span.is_recording():
        run.span.add_event(semconv.ABORTED_EVENT, {semconv.ENDING: run.ending or ""})


def finish(run: Run, end: End) -> None:
    """It is over."""
    span = run.span
    if not span.is_recording():
        return
    reason = end.step.finish or "error"
    span.set_attribute(semconv.GEN_AI_USAGE_OUTPUT_TOKENS, run.tokens)
    span.set_attribute(semconv.GEN_AI_RESPONSE_FINISH_REASONS, [reason])
    facts: dict[str, str | int] = {semconv.FINISH: reason, semconv.TOKENS: run.tokens}
    if reason == "error":
        code = end.error_code or "engine"
        facts[semconv.CODE] = code
        telemetry.fail(span, code, ours=code != "invalid_request")
    span.add_event(semconv.FINISH_EVENT, facts)


def given_back(run: Run) -> None:
    """It goes to another worker before anything of it was sent."""
    if run.span.is_recording():
        run.span.add_event(semconv.FINISH_EVENT, {semconv.FINISH: "released", semconv.TOKENS: 0})
