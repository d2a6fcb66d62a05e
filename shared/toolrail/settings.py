"""Settings: a frozen record per service, from flags over `TOOLRAIL_*` variables over defaults.

Every deadline and bound of the product is a named field here. A flag is the field's name with
dashes; its variable is `TOOLRAIL_` and the field's name in capitals. Unknown flags and bad values
stop the service at start and name the field; `flags.py` reads them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from toolrail.flags import load as load  # noqa: PLC0414 (a re-export)
from toolrail.flags import parse_structural_tag as parse_structural_tag  # noqa: PLC0414
from toolrail.redaction import ContentMode
from toolrail.tools import ArgumentValidation

DEMO_MODELS: Final[dict[str, str]] = {
    "demo": "smollm2-135m-instruct",
    "demo-think": "smollm2-135m-instruct-think",
}
"""Names that stand for a converted model in the cache, and their directories there."""


def cache_directory() -> Path:
    """Where downloads and converted models are kept: `TOOLRAIL_CACHE` or `~/.cache/toolrail`."""
    return Path(os.environ.get("TOOLRAIL_CACHE") or Path.home() / ".cache" / "toolrail")


def model_directory(model: str) -> Path:
    """The directory that a `--model` value means; it need not exist."""
    demo = DEMO_MODELS.get(model)
    return cache_directory() / "models" / demo if demo else Path(model).expanduser()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonSettings:
    """What every service needs.

    Attributes:
        nats_url: comma-separated server URLs; `tls://` asks for TLS.
        nats_nkey_file: file with the seed of this service's NATS user (`toolrail nats users`).
        nats_inbox_prefix: where answers to this process go; empty: `_INBOX`, which any user without
            rights of its own may read.
        nats_tls_ca: certificates that the server's must lead to; empty: the system's.
        nats_tls_cert: this process's own certificate, for a server that asks for one.
        nats_tls_key: the key of that certificate, if it is a file of its own.
        nats_setup: whether this process makes and updates the streams it needs; off where
            `toolrail nats setup` does, and the service's user may not.
        instance: name of this process on the bus; empty: made from service name and random hex.
        log_format: `console` or `json`.
        log_level: name of a logging level.
        otlp_endpoint: base URL of an OTLP/HTTP receiver; empty: tracing is off.
        trace_sample_ratio: share of root traces kept, 0 to 1.
        trace_content: what spans hold of prompts and answers: `none`, `redacted` or `full`.
        max_trace_content_bytes: of one attribute of a span; the oldest is left out first.
        redaction_file: TOML file of what is blacked out where prompts and answers are kept (audit
            records, content of traces) besides or instead of the built-in rules; empty: those.
        heartbeat_s: how often an instance renews its registration.
        registration_ttl_s: how long a registration lives without renewal.
        probe_s: how often a peer with which this process has streams is asked whether it lives.
        gone_s: how long the bus knows nobody under a peer's name before the peer counts as dead.
        drain_s: how long a stopping service waits for its running streams.
        hand_over_timeout_s: how long a hop waits for the next hop's `Accepted`.
        max_queue_jobs: bound of the work queue.
        max_queue_bytes: bound of the work queue.
        job_max_age_s: how long a job may wait in the queue.
        max_document_bytes: bound of stored responses; the oldest go when it is reached.
        max_owner_document_bytes: bound of those of one owner of API keys, whose own oldest go then;
            0: none. An input or answer of more than a quarter of it is not stored.
        max_audit_stream_bytes: bound of audit records on the bus; the oldest go when it is reached.
        audit_stream_max_age_s: how long they are kept there.
        ack_wait_s: silence of a worker after which its unacknowledged job goes to another.
        max_dead_letters: records kept of jobs that nobody could run; the oldest go first.
        dead_letter_max_age_s: how long such a record is kept.
        publish_queue_messages: messages waiting to be sent; more are dropped and counted.
        replicas: copies of JetStream state (1 local, 3 clustered).
        metrics_host: address of the Prometheus endpoint.
        metrics_port: Prometheus endpoint of this process; 0: none (the gateway has `/metrics`).
            `/live` and `/ready` answer there too.
        stuck_s: how long the event loop may be silent before `/live` says that it hangs.
        connect_timeout_s: how long a starting service tries to reach the bus.
    """

    nats_url: str = "nats://127.0.0.1:4222"
    nats_nkey_file: str = ""
    nats_inbox_prefix: str = ""
    nats_tls_ca: str = ""
    nats_tls_cert: str = ""
    nats_tls_key: str = ""
    nats_setup: bool = True
    instance: str = ""
    log_format: Literal["console", "json"] = "console"
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    otlp_endpoint: str = ""
    trace_sample_ratio: float = 1.0
    trace_content: ContentMode = "none"
    max_trace_content_bytes: int = 32 << 10
    redaction_file: str = ""
    heartbeat_s: float = 2.0
    registration_ttl_s: float = 6.0
    probe_s: float = 0.5
    gone_s: float = 1.0
    drain_s: float = 30.0
    hand_over_timeout_s: float = 10.0
    max_queue_jobs: int = 10_000
    max_queue_bytes: int = 1 << 30
    job_max_age_s: float = 600.0
    max_document_bytes: int = 512 << 20
    max_owner_document_bytes: int = 128 << 20
    max_audit_stream_bytes: int = 256 << 20
    audit_stream_max_age_s: float = 604_800.0
    ack_wait_s: float = 5.0
    max_dead_letters: int = 10_000
    dead_letter_max_age_s: float = 604_800.0
    publish_queue_messages: int = 16_384
    replicas: int = 1
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 0
    stuck_s: float = 30.0
    connect_timeout_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings(CommonSettings):
    """The HTTP front.

    Attributes:
        host: address to listen on.
        port: port to listen on.
        tls_cert: certificate chain: clients speak HTTPS; empty: HTTP.
        tls_key: its key, if that is a file of its own.
        tls_client_ca: certificates that a client's own must lead to; empty: clients show none.
        listen_fd: descriptor of an inherited listening socket to use instead; 0: none. Whoever
            holds it lets several gateways share an address and outlive a restart of each.
        max_body_bytes: larger request bodies get 413.
        request_timeout_s: absolute deadline of a request, from its last byte to its last event.
        first_event_timeout_s: how long to wait for the first event after `Accepted`.
        max_streams: concurrent requests of this process; more get 429.
        take_over_timeout_s: how long another postprocessor is looked for when a stream's is gone.
        resend_s: silence of a stream after which its postprocessor is asked what may be missing;
            not more than that of the postprocessors.
        max_take_overs: times that one stream may be handed on; then it fails.
        stream_buffer_events: events buffered for a slow client before its stream is cancelled.
        sse_keep_alive_s: comment line after this much silence.
        reasoning_field: `reasoning_content` or `reasoning`.
        named_choice_finish_reason: finish reason of a chat completion whose call was forced by
            name; OpenAI's own API says `stop`, most clients look for `tool_calls`.
        tool_call_dispatch: streams also have an event with the whole call when a call is complete;
            else only where a request asks for it (header `x-toolrail-dispatch`).
        reasoning_dispatch: likewise for runs of reasoning.
        max_header_bytes: larger request heads get 431.
        header_timeout_s: how long a request head may take to arrive.
        idle_connection_s: how long a connection is kept between two requests.
        client_absence_s: how long a client may acknowledge nothing before its connection is cut.
        body_timeout_s: how long a request body may take to arrive; slower ones get 408.
        held_body_bytes: bytes of request bodies held at once; more requests get 429.
        store_by_default: whether a response is stored whose request does not say `store`.
        stored_response_ttl_s: how long a stored response can be asked for and followed.
        max_stored_response_bytes: input and answer may each have so many; larger ones are answered
            and not stored, and the response says `"store": false`.
        store_timeout_s: how long storing or looking up a response may take.
        max_background: background responses of this process at once; more get 429.
        background_timeout_s: absolute deadline of a background response.
        api_keys_file: TOML or JSON file of the keys that may use the API (`toolrail key new` makes
            them); empty: no key is asked for.
        api_keys_reload_s: how often that file is looked at for changes.
        limits_exchange_s: how often gateways tell each other what keys with limits use, so that a
            limit holds for all of them together; 0: each counts for itself.
        cors_origins: web origins whose pages may use the API, comma-separated, or `*`; empty: none.
        audit: where a record of every request is kept: `off`, `file:PATH`, `jetstream` (the stream
            TOOLRAIL_AUDIT), `otlp` (logs, to --otlp-endpoint) or `otlp:URL`.
        audit_content: what records hold of prompts and answers: `none`, `redacted` or `full`.
        audit_required: requests are refused while their records could not be kept; else records
            that find no room are dropped and counted.
        audit_client_address: whether records hold where a request came from.
        max_audit_content_bytes: of a body, and of an answer; the rest is left out of the record.
        max_audit_queue: records that may wait to be written.
        max_audit_held_bytes: bytes of bodies and answers held for records.
        max_audit_file_bytes: size at which a file of records is given another name and a new one
            begun.
        max_audit_files: such files that are kept, the one in use included.
        audit_timeout_s: how long the bus or the receiver may take for records.
        audit_retry_s: how long records are offered to a sink that does not take them; then they
            are dropped and counted, unless they are required.
        audit_flush_s: how long a stopping gateway waits for its records to be kept.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    tls_cert: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""
    listen_fd: int = 0
    max_header_bytes: int = 64 << 10
    header_timeout_s: float = 20.0
    idle_connection_s: float = 75.0
    max_body_bytes: int = 16 << 20
    client_absence_s: float = 30.0
    body_timeout_s: float = 60.0
    held_body_bytes: int = 256 << 20
    store_by_default: bool = True
    stored_response_ttl_s: float = 86_400.0
    max_stored_response_bytes: int = 16 << 20
    store_timeout_s: float = 5.0
    max_background: int = 64
    background_timeout_s: float = 3600.0
    api_keys_file: str = ""
    api_keys_reload_s: float = 1.0
    limits_exchange_s: float = 0.5
    cors_origins: str = ""
    audit: str = "off"
    audit_content: ContentMode = "redacted"
    audit_required: bool = False
    audit_client_address: bool = False
    max_audit_content_bytes: int = 1 << 20
    max_audit_queue: int = 4096
    max_audit_held_bytes: int = 256 << 20
    max_audit_file_bytes: int = 100 << 20
    max_audit_files: int = 10
    audit_timeout_s: float = 5.0
    audit_retry_s: float = 60.0
    audit_flush_s: float = 5.0
    request_timeout_s: float = 600.0
    first_event_timeout_s: float = 300.0
    max_streams: int = 1024
    take_over_timeout_s: float = 20.0
    resend_s: float = 2.0
    max_take_overs: int = 5
    stream_buffer_events: int = 10_000
    sse_keep_alive_s: float = 15.0
    reasoning_field: Literal["reasoning_content", "reasoning"] = "reasoning_content"
    named_choice_finish_reason: Literal["tool_calls", "stop"] = "tool_calls"
    tool_call_dispatch: bool = False
    reasoning_dispatch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PreprocessorSettings(CommonSettings):
    """The request side.

    Attributes:
        max_in_flight: requests prepared at once; more wait their turn.
        max_waiting: requests that wait for their turn; more are answered `overloaded`.
        compile_workers: processes that compile-check grammars.
        compile_timeout_s: wall budget of one compile check.
        compile_cpu_s: CPU budget of one compile check.
        compile_slice_s: what a check may take before it needs one of the `compile_workers` turns
            for long checks; one more process serves checks shorter than that.
        compile_queue_timeout_s: how long a check waits for its turn.
        compile_start_timeout_s: how long a compile process may take to load the engine.
        compile_memory_bytes: memory budget of one compile check.
        compile_cache_entries: verdicts remembered, by tag hash.
        template_timeout_s: budget of one template rendering.
        turn_grammar: whether families with a grammar of whole turns (beam) are held to it where
            no call is forced.
        hosted_tools: what becomes of tools of Responses that only the hosted API runs (web search
            ...): the request is refused, or they are left out of it.
        control_tokens_in_content: whether texts of a request may spell control tokens of the model
            (`<|im_end|>`), with which whoever wrote the text can forge turns of the conversation.
    """

    max_in_flight: int = 64
    max_waiting: int = 256
    compile_workers: int = 1
    compile_timeout_s: float = 5.0
    compile_cpu_s: float = 2.0
    compile_slice_s: float = 0.5
    compile_queue_timeout_s: float = 5.0
    compile_start_timeout_s: float = 30.0
    compile_memory_bytes: int = 2 << 30
    compile_cache_entries: int = 4096
    template_timeout_s: float = 5.0
    turn_grammar: bool = True
    hosted_tools: Literal["refuse", "ignore"] = "refuse"
    control_tokens_in_content: Literal["allow", "refuse"] = "allow"


@dataclass(frozen=True, slots=True, kw_only=True)
class PostprocessorSettings(CommonSettings):
    """The stream side.

    Attributes:
        max_streams: streams owned at once; more are answered `overloaded`.
        max_waiting_per_slot: streams of one owner (API key) that may wait for a worker, for each
            slot that the model's workers have; more are answered `overloaded`.
        queue_order: `fair`: owners are served in proportion to the weights of their keys, and who
            has waited for nothing goes first; `arrival`: whoever came first.
        ahead_per_slot: jobs that may stand on the work queue when all slots are taken, for each
            slot of the model's workers (two at least); more wait for their turn in fair order.
        idle_timeout_s: silence of a running stream before it is moved to another worker.
        migration_limit: how often a choice may move to another worker after the first token.
        migration_timeout_s: how long such a move may wait for a place in the work queue.
        worker_wait_s: how long streams wait while no worker of their model is registered.
        dead_letter_prompts: whether records of jobs that nobody could run hold their prompt ids.
        resend_s: silence of a running stream, or age of a gap in it, after which its worker is
            asked for what is missing.
        max_resends: such questions about one gap before the stream is failed.
        max_argument_checks: checks of long arguments that may wait; more go unchecked.
        argument_check_timeout_s: what such a check may take; a slower one counts as unchecked.
    """

    max_streams: int = 4096
    max_waiting_per_slot: float = 8.0
    queue_order: Literal["fair", "arrival"] = "fair"
    ahead_per_slot: float = 0.125
    idle_timeout_s: float = 120.0
    migration_limit: int = 3
    migration_timeout_s: float = 30.0
    worker_wait_s: float = 300.0
    dead_letter_prompts: bool = False
    resend_s: float = 2.0
    max_resends: int = 3
    max_argument_checks: int = 256
    argument_check_timeout_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings(CommonSettings):
    """The engine side; model flags live here because the worker announces them.

    Attributes:
        model: model directory (or `demo`).
        served_model_name: name clients use; empty: the directory's name.
        engine: `vllm` or `scripted`.
        tool_call_parser: name of the tool parser, or empty.
        reasoning_parser: name of the reasoning parser, or empty.
        structural_tag: boolean or JSON object (specification: *CLI Flags*).
        custom_jinja_template: template that replaces the model's own: a file, or the name of one
            that ships with us (`gemma4_tool`).
        exclude_tools_when_tool_choice_none: drop tools from the prompt under `none`.
        dyn_parser_version: `auto`, `1` or `2`; validates the pair of parsers.
        argument_validation: what becomes of calls and answers that break what no grammar held:
            `report` counts them, `fail` ends the request with an error, `off` looks at strict
            schemas alone and reports them.
        slots: requests the engine runs at once.
        max_deliveries: how often a job may be delivered; one that was delivered more often is
            answered for, since it ends the workers that try it.
        kept_tokens: ids of running and of unacknowledged streams kept, so that they can be sent
            again (an id costs 4 bytes, a logprob some hundreds); the oldest finished go first.
        max_model_len: context length; 0: the model's own.
        kv_cache_bytes: memory for keys and values; 0: the engine's own choice, 1 GiB on a CPU.
        engine_args: JSON object of further vLLM engine arguments.
        script: JSONL script of the scripted engine.
        obey_tag: the scripted engine walks the structural tag instead of the script.
        scripted_step_ms: pace of the scripted engine's steps; 0: free running.
        scripted_seed: seed of the scripted engine's walks.
    """

    model: str = "demo"
    served_model_name: str = ""
    engine: Literal["vllm", "scripted"] = "vllm"
    tool_call_parser: str = ""
    reasoning_parser: str = ""
    structural_tag: str = "true"
    custom_jinja_template: str = ""
    exclude_tools_when_tool_choice_none: bool = True
    dyn_parser_version: Literal["auto", "1", "2"] = "auto"
    argument_validation: ArgumentValidation = "report"
    slots: int = 8
    max_deliveries: int = 5
    kept_tokens: int = 2_000_000
    max_model_len: int = 0
    kv_cache_bytes: int = 0
    engine_args: str = ""
    script: str = ""
    obey_tag: bool = False
    scripted_step_ms: float = 0.0
    scripted_seed: int = 0


def served_name(settings: WorkerSettings) -> str:
    """The name clients use for the model of a worker with these settings."""
    if settings.served_model_name:
        return settings.served_model_name
    if settings.model in DEMO_MODELS:
        return settings.model
    return Path(settings.model).expanduser().resolve().name
