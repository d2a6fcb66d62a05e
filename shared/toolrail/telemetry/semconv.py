"""Names of spans, attributes and events, pinned here: OpenTelemetry still moves its own.

Not the constants of `opentelemetry-semantic-conventions`: its GenAI names are frozen at an old
state since those conventions moved to a repository of their own.
Sources: semantic conventions 1.38 (messaging, http, error: development or stable as marked there),
semantic-conventions-genai 0.1.0 (development). What they have no name for begins with `toolrail.`;
`docs/operate.md` says which span has what.
"""

from __future__ import annotations

from typing import Final

SERVICE_NAME: Final = "service.name"
SERVICE_INSTANCE_ID: Final = "service.instance.id"
SERVICE_NAMESPACE: Final = "service.namespace"
SERVICE_VERSION: Final = "service.version"

ERROR_TYPE: Final = "error.type"
HTTP_REQUEST_METHOD: Final = "http.request.method"
HTTP_RESPONSE_STATUS_CODE: Final = "http.response.status_code"
HTTP_ROUTE: Final = "http.route"

MESSAGING_SYSTEM: Final = "messaging.system"
MESSAGING_SYSTEM_NATS: Final = "nats"
MESSAGING_OPERATION_NAME: Final = "messaging.operation.name"
MESSAGING_OPERATION_TYPE: Final = "messaging.operation.type"
MESSAGING_DESTINATION_NAME: Final = "messaging.destination.name"
MESSAGING_DESTINATION_TEMPLATE: Final = "messaging.destination.template"
MESSAGING_CONSUMER_GROUP_NAME: Final = "messaging.consumer.group.name"
MESSAGING_MESSAGE_ID: Final = "messaging.message.id"
MESSAGING_MESSAGE_BODY_SIZE: Final = "messaging.message.body.size"
MESSAGING_MESSAGE_CONVERSATION_ID: Final = "messaging.message.conversation_id"

GEN_AI_OPERATION_NAME: Final = "gen_ai.operation.name"
GEN_AI_OPERATION_CHAT: Final = "chat"
GEN_AI_PROVIDER_NAME: Final = "gen_ai.provider.name"
GEN_AI_PROVIDER_TOOLRAIL: Final = "toolrail"
GEN_AI_REQUEST_MODEL: Final = "gen_ai.request.model"
GEN_AI_REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
GEN_AI_REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
GEN_AI_REQUEST_TOP_P: Final = "gen_ai.request.top_p"
GEN_AI_REQUEST_TOP_K: Final = "gen_ai.request.top_k"
GEN_AI_REQUEST_SEED: Final = "gen_ai.request.seed"
GEN_AI_REQUEST_CHOICE_COUNT: Final = "gen_ai.request.choice.count"
GEN_AI_REQUEST_STREAM: Final = "gen_ai.request.stream"
GEN_AI_RESPONSE_ID: Final = "gen_ai.response.id"
GEN_AI_RESPONSE_MODEL: Final = "gen_ai.response.model"
GEN_AI_RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
GEN_AI_USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
GEN_AI_USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
GEN_AI_USAGE_REASONING_OUTPUT_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
GEN_AI_TOOL_NAME: Final = "gen_ai.tool.name"
GEN_AI_INPUT_MESSAGES: Final = "gen_ai.input.messages"
GEN_AI_OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
GEN_AI_TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"

API: Final = "toolrail.api"
ATTEMPT: Final = "toolrail.attempt"
BROKEN: Final = "toolrail.broken"
CACHE_HIT: Final = "toolrail.cache_hit"
CALLS: Final = "toolrail.calls"
CALL_INDEX: Final = "toolrail.call.index"
CALL_OUTCOME: Final = "toolrail.call.outcome"
CALL_BYTES: Final = "toolrail.call.bytes"
CAUSE: Final = "toolrail.cause"
CHECKS: Final = "toolrail.checks"
CHOICE: Final = "toolrail.choice"
CODE: Final = "toolrail.code"
CONTENT_CUT: Final = "toolrail.content_cut"
DELIVERIES: Final = "toolrail.deliveries"
ENDING: Final = "toolrail.ending"
FAMILY: Final = "toolrail.family"
FINISH: Final = "toolrail.finish"
FORMER: Final = "toolrail.former"
HELD_BY: Final = "toolrail.held_by"
LEFT: Final = "toolrail.left"
LINK: Final = "toolrail.link"
MARKER: Final = "toolrail.marker"
MARKERS_IN_TEXT: Final = "toolrail.markers_in_text"
OUTCOME: Final = "toolrail.outcome"
OWNER: Final = "toolrail.owner"
PARAM: Final = "toolrail.param"
REQUEST_ID: Final = "toolrail.request_id"
QUEUE_WAIT_S: Final = "toolrail.queue.wait_s"
RESULT: Final = "toolrail.result"
RESUMED_TOKENS: Final = "toolrail.resumed_tokens"
SECONDS: Final = "toolrail.seconds"
STARTS_IN: Final = "toolrail.starts_in"
STOP: Final = "toolrail.stop"
TAG_BYTES: Final = "toolrail.tag.bytes"
TAG_HASH: Final = "toolrail.tag.hash"
TERM: Final = "toolrail.term"
TOKENS: Final = "toolrail.tokens"
TOOLS: Final = "toolrail.tools"
TOOL_CHOICE: Final = "toolrail.tool_choice"
VERDICT: Final = "toolrail.verdict"
WORKER: Final = "toolrail.worker"

ABORTED_EVENT: Final = "toolrail.aborted"
ACCEPTED_EVENT: Final = "toolrail.accepted"
ANSWER_EVENT: Final = "toolrail.answer"
CALL_EVENT: Final = "toolrail.call"
CHECK_EVENT: Final = "toolrail.check"
COMPILED_EVENT: Final = "toolrail.compiled"
ENFORCEMENT_EVENT: Final = "toolrail.enforcement"
FINISH_EVENT: Final = "toolrail.finish"
FIRST_EVENT_EVENT: Final = "toolrail.first_event"
FIRST_MARKER_EVENT: Final = "toolrail.first_marker"
FIRST_TOKEN_EVENT: Final = "toolrail.first_token"
MIGRATION_EVENT: Final = "toolrail.migration"
PREFLIGHT_EVENT: Final = "toolrail.preflight"
PREPARED_EVENT: Final = "toolrail.prepared"
RELEASED_EVENT: Final = "toolrail.released"
RESUMED_EVENT: Final = "toolrail.resumed"
TAKEN_EVENT: Final = "toolrail.taken"
TAKE_OVER_EVENT: Final = "toolrail.take_over"

TIME_TO_FIRST_TOKEN_BUCKETS_S: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
"""Bucket bounds of `gen_ai.server.time_to_first_token`."""

TIME_PER_OUTPUT_TOKEN_BUCKETS_S: Final = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
)  # fmt: skip
"""Bucket bounds of `gen_ai.server.time_per_output_token`."""
