"""Every message that crosses the bus, its encoders and its decoders.

Hand-overs are keyed structs: they evolve by new fields with defaults. Frames are `array_like`:
they are the hot path, one message per engine step and destination, never one per token. Every
message carries the schema version; hand-overs carry an absolute deadline in unix milliseconds.
Trace context travels in headers and is the bus's business.

A field's type never changes and fields of an `array_like` struct are only ever appended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from toolrail.errors import DecodeError
from toolrail.events import Event
from toolrail.parsing import ParseSpec
from toolrail.structural_tag import TagOptions
from toolrail.tools import ArgumentValidation, JsonSchema

SCHEMA_VERSION: Final = 1

FailureCode: TypeAlias = Literal[
    "invalid_request",  # 4xx: the caller's fault, `status` and `param` say more
    "not_found",  # 404: no such model
    "unavailable",  # 503: nobody there to take it
    "overloaded",  # 429: a bounded queue was full
    "deadline",  # 504
    "model_output",  # 502: what the model wrote breaks its schema, and the deployment says fail
    "engine",  # 500: the engine failed it (finish_reason "error", bad grammar, dead engine)
    "lost",  # 502: a gap in a numbered stream, a peer that died
    "cancelled",  # 499: the client left or asked for it
    "internal",  # 500: a bug of ours
]
STATUS: Final[Mapping[FailureCode, int]] = {
    "invalid_request": 400,
    "not_found": 404,
    "unavailable": 503,
    "overloaded": 429,
    "deadline": 504,
    "model_output": 502,
    "engine": 500,
    "lost": 502,
    "cancelled": 499,
    "internal": 500,
}
"""The HTTP status of a failure that says no other."""
Api: TypeAlias = Literal["chat", "responses", "messages"]
"""Which of the APIs a request came through."""
TERM_STEP: Final = 16
"""Terms that a gateway gives are multiples of this; a preprocessor that must hand a stream over
once more, since who took it died, uses those between."""

OWNER_STOPPING: Final = "owner_stopping"
"""`error_code` of the Failed with which a postprocessor that ends lets go of a stream: its runs go
on, for whoever takes the stream over."""

FinishReason: TypeAlias = Literal["stop", "length", "abort", "error"]
"""How the engine ended a choice. What a client sees also depends on the calls made."""


class Handoff(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of the hand-overs: schema version, request, deadline (0: none)."""

    version: int = SCHEMA_VERSION
    request_id: str
    deadline_ms: int = 0


class Prepare(Handoff, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """gateway → preprocessor: a raw HTTP body to validate, render and hand on.

    `reply_subject` is where EventFrames must go; `received_ms` when the body was complete.
    `models`: names the caller may ask for, with `*` and `?`; None: all. `count_only`: answer with
    `Accepted.prompt_tokens` and hand nothing on. `owner`: whom it acts for, whose stored responses
    it may refer to. `weight`: see Stream.
    `body_blob`: object-store name of a body too large for one message (then `body` is empty); the
    gateway deletes it when it has its answer. `term`: see Stream; above 0 when the gateway asks
    again, since whom it asked first has died.
    """

    api: Api = "chat"
    body: bytes
    body_blob: str | None = None
    reply_subject: str
    received_ms: int = 0
    models: tuple[str, ...] | None = None
    count_only: bool = False
    term: int = 0
    owner: str = ""
    weight: int = 1


class Sampling(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the engine is asked for, resolved: every default filled, `max_tokens` capped."""

    max_tokens: int
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    logit_bias: dict[int, float] | None = None
    logprobs: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    bad_words: tuple[str, ...] = ()
    ignore_eos: bool = False


class Guidance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """At most one constraint, as the engine takes it (JSON text for tag and schema)."""

    structural_tag: str | None = None
    json_schema: str | None = None
    regex: str | None = None
    choice: tuple[str, ...] | None = None
    grammar: str | None = None
    reasoning_ended: bool = True


class Checks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is checked when it is complete.

    `tools`: names of the functions whose arguments are, against their schemas in the ParseSpec;
    `answer`: the schema of an answer that is. `fails`: a violation, and a call of a function that
    is not offered, ends the request; else it is reported alone. `open_tools`: functions of whose
    arguments something is neither held by the grammar nor checked.
    """

    tools: tuple[str, ...] = ()
    answer: JsonSchema | None = None
    fails: bool = False
    open_tools: tuple[str, ...] = ()


class Output(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the postprocessor makes of the ids, beyond the ParseSpec.

    `stop` strings match visible text only. `max_calls`: calls past it end the choice (None: no
    bound). `top_logprobs` None: no logprobs asked for.
    """

    stop: tuple[str, ...] = ()
    include_stop: bool = False
    top_logprobs: int | None = None
    max_calls: int | None = None
    checks: Checks = Checks()


class Stream(Handoff, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """preprocessor → postprocessor: own this stream; put its jobs on the work queue.

    `model` is the served name, `card` the hash of the model card it was prepared for. Choice i of a
    seeded request is sampled with `seed + i`. `prompt_blob`: object-store name of the ids when they
    are too many for one message (then `prompt_token_ids` is empty and `prompt_tokens` counts them).

    `term` numbers the owners of a stream: each hand-over of it to another postprocessor raises it,
    and what an owner of an older term says counts no more. `started`: this hand-over is a take-over
    (gateway → postprocessor) of a stream whose jobs are in the queue or with workers; the choices
    of which the gateway has had output. None: the jobs are still to be queued. `owner`: whom the
    request acts for, "" where that is not known; the owners share the line for the workers,
    each in proportion to the `weight` of its requests.
    """

    model: str
    card: str
    prompt_token_ids: tuple[int, ...] = ()
    prompt_blob: str | None = None
    prompt_tokens: int = 0
    num_choices: int = 1
    sampling: Sampling
    guidance: Guidance = Guidance()
    parse: ParseSpec = ParseSpec()
    output: Output = Output()
    reply_subject: str
    term: int = 0
    started: tuple[int, ...] | None = None
    owner: str = ""
    weight: int = 1


class Accepted(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The hand-over was taken; no HTTP status follows from it yet.

    `control_subject` of the postprocessor takes `Cancel`. From the preprocessor it also tells the
    gateway what the response objects need; `handed`, the encoded Stream as it was handed on, lets
    it hand the stream to another postprocessor. `echo`: a JSON object of the request's fields that
    the response objects of its API repeat (Responses: instructions, tools ...), empty where there
    are none. `namespaces`: the names under which models know the members of namespaces, each with
    its namespace and its name there. `chain`: the stored responses that it follows, oldest first.
    `forced_call`: the call that the request's tool choice forces.
    """

    version: int = SCHEMA_VERSION
    request_id: str
    instance: str
    control_subject: str = ""
    model: str = ""
    prompt_tokens: int = 0
    num_choices: int = 1
    stream: bool = False
    include_usage: bool = False
    parse: ParseSpec = ParseSpec()
    prompt_token_ids: tuple[int, ...] = ()
    prompt_blob: str | None = None
    enforcement: str | None = None
    echo: bytes = b""
    forced_call: Literal["", "required", "named"] = ""
    namespaces: dict[str, tuple[str, str]] = {}
    chain: tuple[str, ...] = ()
    handed: bytes | None = None


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A failure as a message. `status` is the HTTP status the client gets before any output.

    `unqueued`: with `OWNER_STOPPING`, none of the stream's jobs was put on the work queue.
    """

    version: int = SCHEMA_VERSION
    request_id: str
    code: FailureCode
    message: str
    status: int = 500
    error_type: str = "server_error"
    error_code: str | None = None
    param: str | None = None
    retryable: bool = False
    retry_after_s: int | None = None
    unqueued: bool = False


class Job(Handoff, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """postprocessor → worker, through the work queue: generate one choice.

    `attempt` rises with each resubmission; the worker's frames carry it as `epoch` so that an older
    run's frames can be told apart. `prefix_token_ids`: ids already delivered (a resumed job).
    `follows`: trace context (`traceparent`) of the run of the attempt before, "" where there was
    none or it is not traced. `waited_s`: how long it waited for its turn before it was queued.
    """

    choice: int = 0
    attempt: int = 0
    model: str
    prompt_token_ids: tuple[int, ...] = ()
    prompt_blob: str | None = None
    prefix_token_ids: tuple[int, ...] = ()
    sampling: Sampling
    guidance: Guidance = Guidance()
    reply_subject: str
    follows: str = ""
    waited_s: float = 0.0


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Stop a request (or one choice of it) wherever it is. Idempotent, best effort.

    `term`: of the owner that says so; workers that know of a later one pay no heed. `attempt`: only
    attempts up to this one are meant, the run goes on elsewhere. `worker`: only that one is meant.
    `complete`: the answer has all that it is to have; what was sent of it is still kept.
    """

    version: int = SCHEMA_VERSION
    request_id: str
    choice: int | None = None
    reason: str = ""
    term: int = 0
    attempt: int | None = None
    worker: str = ""
    complete: bool = False


class Want(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a postprocessor lacks of one choice: its deltas from `from_seq` on.

    `from_seq` -1: all of it, with what earlier attempts had written. `term`: see Stream. `attempt`:
    the one that this worker was writing; should it not know of it any more, it says so by a delta
    that fails with `lost`. -1: any of the workers may have it, and who has not is silent.
    """

    request_id: str
    choice: int
    from_seq: int
    term: int = 0
    attempt: int = -1


class Resend(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """postprocessor → one worker: send these to `reply_subject`, and what follows them.

    Answered by `Held`. A want of a newer term makes `reply_subject` the address of the run from now
    on, also of one that is not there yet: a job that is still queued is re-addressed when it comes.
    """

    version: int = SCHEMA_VERSION
    reply_subject: str
    wants: tuple[Want, ...]


class Held(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """worker → postprocessor: which of the wants (by position) it holds, running or finished."""

    version: int = SCHEMA_VERSION
    wants: tuple[int, ...] = ()


class Done(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """postprocessor → worker: these requests are answered, nobody will want them again.

    Not said at once: their gateways may still find that they missed the end. `reply_subject`: of
    the postprocessor that says so. What has another owner by now is kept.
    """

    version: int = SCHEMA_VERSION
    reply_subject: str
    request_ids: tuple[str, ...]


class Position(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How far a gateway heard a stream: of the owner of `term`, all entries before `next_seq`."""

    request_id: str
    next_seq: int
    term: int = 0


class Positions(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """gateway → postprocessor: nothing has come of these streams for a while.

    Of one that is heard to its last entry there is nothing to say. Otherwise `reply_subject` is
    sent an entry that shows what is missing: one with a later number, or with how the stream ended.
    """

    version: int = SCHEMA_VERSION
    reply_subject: str
    streams: tuple[Position, ...]


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of a request, or of one job, that could not be run. As JSON, for people.

    `tokens`: ids it had got, by choice; `attempts`: the last one of each choice; `workers`: who had
    it last; `deliveries`: of a job that its workers did not survive. `prompt_token_ids` only where
    a setting wants them.
    """

    version: int = SCHEMA_VERSION
    reason: str
    message: str
    request_id: str
    model: str
    failed_ms: int
    deadline_ms: int = 0
    prompt_tokens: int = 0
    tokens: tuple[int, ...] = ()
    attempts: tuple[int, ...] = ()
    workers: tuple[str, ...] = ()
    deliveries: int = 0
    prompt_token_ids: tuple[int, ...] = ()


class TopLogprob(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One alternative at a position: token id and natural-log probability."""

    token_id: int
    logprob: float


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The chosen token's logprob and its alternatives, best first."""

    token_id: int
    logprob: float
    top: tuple[TopLogprob, ...] = ()


class TokenDelta(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """New ids of one choice. `seq` counts the deltas of (request, choice, epoch) from 0.

    `finish` ends the choice; `error` says why when it is "error", `error_code` whose fault it was
    (None: the engine's), `error_param` the field of the request that it refused, if that is known.
    `logprobs`, when present, has one entry per id. `cached_tokens`: prompt
    tokens read from the prefix cache, on the first delta; `trace`, likewise: the trace context
    (`traceparent`) of the run, where it is traced. `outranked`: nothing is said of the run; whoever
    asked owns the stream no more, this is the term of the one that does.
    """

    request_id: str
    choice: int
    epoch: int
    seq: int
    token_ids: tuple[int, ...] = ()
    finish: FinishReason | None = None
    stop_token_id: int | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    cached_tokens: int | None = None
    error: str | None = None
    error_code: FailureCode | None = None
    error_param: str | None = None
    trace: str | None = None
    outranked: int = 0


class TokenFrame(msgspec.Struct, frozen=True, array_like=True):
    """worker → postprocessor: all new ids of one engine step for this destination."""

    version: int
    worker: str
    step: int
    deltas: tuple[TokenDelta, ...]


class VisibleLogprob(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Logprob of one output token with its text, as clients see it; `top` best first."""

    token: str
    logprob: float
    data: bytes
    top: tuple[tuple[str, float, bytes], ...] = ()


class Usage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Tokens of a whole request, all choices together."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0


class ChoiceEnd(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A choice is over. `stop`: the stop string or token id that ended it, if one did.

    `migrations`: how often its run had to begin again on another worker, or in the queue.
    """

    finish: FinishReason
    stop: str | int | None = None
    migrations: int = 0


class EventDelta(msgspec.Struct, frozen=True, array_like=True):
    """New events of one choice. `seq` counts the entries of a request from 0, all choices together.

    `end` closes the choice. `usage` comes with the entry that closes the last choice and ends the
    stream; `failed` ends it instead. `term`: of the owner that sends it.
    """

    request_id: str
    seq: int
    choice: int
    events: tuple[Event, ...] = ()
    logprobs: tuple[VisibleLogprob, ...] | None = None
    end: ChoiceEnd | None = None
    usage: Usage | None = None
    failed: Failed | None = None
    term: int = 0


class EventFrame(msgspec.Struct, frozen=True, array_like=True):
    """postprocessor → gateway: all new events of one step for this gateway."""

    version: int
    postprocessor: str
    deltas: tuple[EventDelta, ...]


class Room(msgspec.Struct, frozen=True, array_like=True):
    """What one postprocessor has of a model's work.

    `out`: jobs on the work queue or with workers; `waiting`: those it still holds back; `spent`:
    what owners that wait were given since the last report, each divided by its weight.
    """

    model: str
    out: int
    waiting: int
    spent: dict[str, float] = {}


class Rooms(msgspec.Struct, frozen=True, array_like=True):
    """postprocessor → all postprocessors, a few times a second while work waits."""

    version: int
    postprocessor: str
    rooms: tuple[Room, ...]


class KeyUse(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What an API key used at one gateway since its last report, and its requests that run now."""

    key: str
    requests: int
    tokens: int
    running: int


class KeyUses(msgspec.Struct, frozen=True, array_like=True):
    """gateway → all gateways, a few times a second while keys with limits are in use."""

    version: int
    gateway: str
    uses: tuple[KeyUse, ...]


class ModelCard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker announces of its model; everything others need to serve it.

    `tokenizer` and `chat_template` are object-store names (content hashes). `special_tokens` maps
    the text of every special token to its id. `markers_checked`: see `toolrail doctor`.
    """

    version: int = SCHEMA_VERSION
    name: str
    worker: str
    engine: Literal["vllm", "scripted"]
    context_length: int
    slots: int
    vocab_size: int
    tokenizer: str
    chat_template: str
    eos_token_ids: tuple[int, ...] = ()
    bos_token: str | None = None
    eos_token: str | None = None
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    structural_tag: TagOptions | None = TagOptions()
    exclude_tools_when_tool_choice_none: bool = True
    parser_version: Literal["auto", "1", "2"] = "auto"
    argument_validation: ArgumentValidation = "report"
    default_sampling: dict[str, float] = {}
    created_s: int = 0


class Instance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A live process, renewed by heartbeat in the instances bucket under `<service>.<instance>`."""

    version: int = SCHEMA_VERSION
    service: str
    instance: str
    pid: int
    ready: bool = True
    draining: bool = False
    started_ms: int = 0


Reply: TypeAlias = Accepted | Failed
"""The answer to every hand-over."""

WorkerOrder: TypeAlias = Resend | Done
"""What a worker takes on its control subject."""

OwnerOrder: TypeAlias = Cancel | Positions
"""What a postprocessor takes on its control subject."""

Handover: TypeAlias = (
    Prepare | Stream | Job | Cancel | Accepted | Failed | Resend | Held | Done | Positions
)

Report: TypeAlias = Rooms | KeyUses
"""What instances of one service tell each other; nothing is lost but accuracy where one is."""

_encoder = msgspec.msgpack.Encoder()
_prepare = msgspec.msgpack.Decoder(Prepare)
_stream = msgspec.msgpack.Decoder(Stream)
_job = msgspec.msgpack.Decoder(Job)
_cancel = msgspec.msgpack.Decoder(Cancel)
_reply = msgspec.msgpack.Decoder(Reply)
_order = msgspec.msgpack.Decoder(WorkerOrder)
_owner_order = msgspec.msgpack.Decoder(OwnerOrder)
_held = msgspec.msgpack.Decoder(Held)
_token_frame = msgspec.msgpack.Decoder(TokenFrame)
_event_frame = msgspec.msgpack.Decoder(EventFrame)
_rooms = msgspec.msgpack.Decoder(Rooms)
_key_uses = msgspec.msgpack.Decoder(KeyUses)
_card = msgspec.msgpack.Decoder(ModelCard)
_instance = msgspec.msgpack.Decoder(Instance)
_token_ids = msgspec.msgpack.Decoder(tuple[int, ...])


def error_type(status: int) -> str:
    """The `type` of an error object with this HTTP status."""
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"


def encode(message: Handover | TokenFrame | EventFrame | Report | ModelCard | Instance) -> bytes:
    """The message as msgpack."""
    return _encoder.encode(message)


def decode_prepare(data: bytes) -> Prepare:
    """A Prepare. Raises DecodeError."""
    return _decode(_prepare, data)


def decode_stream(data: bytes) -> Stream:
    """A Stream. Raises DecodeError."""
    return _decode(_stream, data)


def decode_job(data: bytes) -> Job:
    """A Job. Raises DecodeError."""
    return _decode(_job, data)


def decode_cancel(data: bytes) -> Cancel:
    """A Cancel. Raises DecodeError."""
    return _decode(_cancel, data)


def decode_reply(data: bytes) -> Reply:
    """Accepted or Failed. Raises DecodeError."""
    return _decode(_reply, data)


def decode_worker_order(data: bytes) -> WorkerOrder:
    """Resend or Done. Raises DecodeError."""
    return _decode(_order, data)


def decode_owner_order(data: bytes) -> OwnerOrder:
    """Cancel or Positions. Raises DecodeError."""
    return _decode(_owner_order, data)


def decode_held(data: bytes) -> Held:
    """A Held. Raises DecodeError."""
    return _decode(_held, data)


def decode_token_frame(data: bytes) -> TokenFrame:
    """A TokenFrame. Raises DecodeError."""
    return _decode(_token_frame, data)


def decode_event_frame(data: bytes) -> EventFrame:
    """An EventFrame. Raises DecodeError."""
    return _decode(_event_frame, data)


def decode_rooms(data: bytes) -> Rooms:
    """A Rooms. Raises DecodeError."""
    return _decode(_rooms, data)


def decode_key_uses(data: bytes) -> KeyUses:
    """A KeyUses. Raises DecodeError."""
    return _decode(_key_uses, data)


def decode_model_card(data: bytes) -> ModelCard:
    """A ModelCard. Raises DecodeError."""
    return _decode(_card, data)


def decode_instance(data: bytes) -> Instance:
    """An Instance. Raises DecodeError."""
    return _decode(_instance, data)


def encode_dead_letter(letter: DeadLetter) -> bytes:
    """The record as JSON."""
    return msgspec.json.encode(letter)


def encode_token_ids(token_ids: Sequence[int]) -> bytes:
    """The content of a `prompt_blob`."""
    return _encoder.encode(token_ids)


def decode_token_ids(data: bytes) -> tuple[int, ...]:
    """The ids in a `prompt_blob`. Raises DecodeError."""
    try:
        return _token_ids.decode(data)
    except msgspec.MsgspecError as error:
        raise DecodeError(f"undecodable token ids: {error}") from error


class _Versioned(Protocol):
    @property
    def version(self) -> int: ...


_M = TypeVar("_M", bound=_Versioned)


def _decode(decoder: msgspec.msgpack.Decoder[_M], data: bytes) -> _M:
    try:
        message = decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise DecodeError(f"undecodable message: {error}") from error
    if message.version > SCHEMA_VERSION:
        raise DecodeError(
            f"message schema {message.version}, this build knows up to {SCHEMA_VERSION}"
        )
    return message
