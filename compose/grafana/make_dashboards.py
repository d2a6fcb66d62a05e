"""Writes the dashboards: `python compose/grafana/make_dashboards.py`. A test holds them to it.

A panel is a title, what it shows, its queries and a unit; the layout follows from the order. Where
a panel tells of a fault it links to the runbook that says what to do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent / "dashboards"
WIDTH: Final = 24
HEIGHT: Final = 8
LOW: Final = 4
"""Height of panels that show one number."""

SOURCES: Final[Mapping[str, str]] = {
    "prometheus": "metrics",
    "tempo": "traces",
    "loki": "logs",
}
"""Kinds of data sources, each with the variable that chooses one: no dashboard names its own."""

COLORS: Final[Mapping[str, str]] = {
    "^(2..|valid|complete|ready|enforced|hits|accepted|stop|tool_calls).*": "green",
    "^(4..|client|truncated|incomplete|length|relaxed|unchecked|draining).*": "yellow",
    "^(5..|invalid|malformed|internal|toolrail|engine|error|refused|unknown_tool).*": "red",
    "^(empty|missing|capacity|overloaded|checked_after|joined).*": "orange",
    "^(model|model_output|dropped|infrastructure|lost|unavailable).*": "purple",
}
"""One colour means one thing on all dashboards: what is good, whose fault, what is ours."""


@dataclass(frozen=True)
class Panel:
    """`queries`: legend → PromQL, or for traces and logs one query in their own language.

    `empty`: what it shows where there is nothing. `steps`: from which value on which colour.
    """

    title: str
    says: str
    queries: Mapping[str, str]
    unit: str = "short"
    width: int = 8
    kind: str = "timeseries"
    source: str = "prometheus"
    stacked: bool = False
    runbook: str = ""
    empty: str = "none"
    steps: Mapping[float, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Dashboard:
    """`variables`: name → the query of its values."""

    uid: str
    title: str
    panels: Sequence[Panel]
    variables: Mapping[str, str] = field(default_factory=dict)


def quantiles(metric: str, by: str = "", where: str = "") -> dict[str, str]:
    keys = f"le, {by}" if by else "le"
    legend = f" {{{{{by}}}}}" if by else ""
    return {
        f"p{round(q * 100)}{legend}": f"histogram_quantile({q}, sum by ({keys}) "
        f"(rate({metric}_bucket{{{where}}}[$__rate_interval])))"
        for q in (0.5, 0.95, 0.99)
    }


def mean(metric: str, where: str = "") -> str:
    return (
        f"sum(rate({metric}_sum{{{where}}}[$__rate_interval]))"
        f" / sum(rate({metric}_count{{{where}}}[$__rate_interval]))"
    )


def rate(metric: str, by: str, where: str = "") -> dict[str, str]:
    legend = " ".join(f"{{{{{name}}}}}" for name in by.split(", "))
    return {legend: f"sum by ({by}) (rate({metric}{{{where}}}[$__rate_interval]))"}


def share(good: str, all_: str, window: str, by: str = "") -> str:
    """Of the events of one series, those of another."""
    keys = f" by ({by}) " if by else ""
    return f"sum{keys}(rate({good}[{window}])) / sum{keys}(rate({all_}[{window}]))"


def budget(bad: str, all_: str, share_allowed: float) -> str:
    """What is left of 30 days' budget: 1 at first, 0 when it is spent, then below."""
    spent = f"(sum(increase({bad}[30d])) or vector(0))"
    return f"1 - {spent} / ({share_allowed} * sum(increase({all_}[30d])))"


# A share that an objective is about, six to a row.
goal = partial(Panel, unit="percentunit", width=4, kind="stat")


MODEL: Final = 'model=~"$model"'
FAMILY: Final = 'family=~"$family"'
OF_BOTH: Final = f"{MODEL},{FAMILY}"
API: Final = 'route=~"/v1/.*"'
REQUESTS: Final = "toolrail_http_requests_total"
FAILED: Final = 'toolrail_errors_total{fault!="client",code!="overloaded"}'
"""Answered with a 5xx, or with an error in the middle of a stream whose status was 200."""

COUNTED: Final = f'{REQUESTS}{{{API},status!~"4.."}}'
FIRST: Final = "toolrail_time_to_first_event_seconds"
CALLS: Final = "toolrail_postprocessor_calls_total"
BAD: Final = 'outcome=~"invalid|malformed|empty|unknown_tool|missing"'
JUDGED: Final = 'outcome!~"truncated|unchecked"'

OBJECTIVE_999: Final = {0.0: "red", 0.99: "yellow", 0.999: "green"}
OBJECTIVE_99: Final = {0.0: "red", 0.9: "yellow", 0.99: "green"}
LEFT: Final = {-1e9: "red", 0.0: "orange", 0.25: "green"}

OVERVIEW: Final = Dashboard(
    "toolrail-overview",
    "Toolrail: overview",
    [
        goal(
            "Available, 1 h",
            "Requests that did not fail by our fault; 4xx are the client's. Objective: 99.9 %.",
            {"ok": f"1 - (sum(rate({FAILED}[1h])) or vector(0)) / sum(rate({COUNTED}[1h]))"},
            runbook="errors.md",
            empty="no requests",
            steps=OBJECTIVE_999,
        ),
        goal(
            "Begun within 5 s, 1 h",
            "Answers whose first event came within 5 s. Objective: 99 %.",
            {"ok": share(f'{FIRST}_bucket{{le="5.0"}}', f"{FIRST}_count", "1h")},
            runbook="slow.md",
            empty="no answers",
            steps=OBJECTIVE_99,
        ),
        goal(
            "Valid calls, 1 h",
            "Tool calls that hold to their schema, among those that were not cut. Objective: 99 %.",
            {"ok": share(f'{CALLS}{{outcome="valid"}}', f"{CALLS}{{{JUDGED}}}", "1h")},
            runbook="calls.md",
            empty="no calls",
            steps=OBJECTIVE_99,
        ),
        goal(
            "Budget left: availability",
            "Of what may fail in 30 days (0.1 %), as far back as Prometheus remembers.",
            {"left": budget(FAILED, COUNTED, 0.001)},
            runbook="errors.md",
            empty="no requests",
            steps=LEFT,
        ),
        goal(
            "Budget left: first event",
            "Of the answers that may begin late in 30 days (1 %).",
            {
                "left": f'1 - (1 - sum(increase({FIRST}_bucket{{le="5.0"}}[30d]))'
                f" / sum(increase({FIRST}_count[30d]))) / 0.01"
            },
            runbook="slow.md",
            empty="no answers",
            steps=LEFT,
        ),
        goal(
            "Budget left: valid calls",
            "Of the calls that may be invalid in 30 days (1 %).",
            {"left": budget(f"{CALLS}{{{BAD}}}", f"{CALLS}{{{JUDGED}}}", 0.01)},
            runbook="calls.md",
            empty="no calls",
            steps=LEFT,
        ),
        Panel(
            "Alerts",
            "What fires now; each has a runbook of the same name in its annotations.",
            {
                "{{alertname}} {{service}} {{model}} {{family}} {{instance}}": "sum by (alertname,"
                " severity, service, model, family, instance) "
                '(ALERTS{alertstate="firing",alertname=~"Toolrail.*"})'
            },
            "none",
            16,
            "table",
            runbook="errors.md",
            empty="nothing fires",
        ),
        Panel(
            "Models served",
            "Models that can be served end to end, as the gateways see it.",
            {"models": "max(toolrail_servable_models)"},
            "none",
            4,
            "stat",
            runbook="no-model.md",
            empty="no gateway",
            steps={0.0: "red", 1.0: "green"},
        ),
        Panel(
            "In flight",
            "Requests being answered now.",
            {"all": f"sum(toolrail_http_requests_in_flight{{{API}}})"},
            "none",
            4,
            "stat",
            empty="no gateway",
        ),
        Panel(
            "Requests by status",
            "499: the client left before its answer was whole.",
            rate(REQUESTS, "status", API),
            "reqps",
            stacked=True,
            runbook="errors.md",
        ),
        Panel(
            "Failures by whose fault",
            "client, capacity (full queues, deadlines), infrastructure (nobody there, streams "
            "lost), engine, model (broke its schema), toolrail (our bugs).",
            rate("toolrail_errors_total", "fault", 'model=~"$model|"'),
            "reqps",
            stacked=True,
            runbook="errors.md",
        ),
        Panel(
            "Failures by model and code",
            "Without a model: they failed before one was found, or took the request.",
            {
                legend: f"{query} > 0"
                for legend, query in rate(
                    "toolrail_errors_total", "model, code", 'model=~"$model|",fault!="client"'
                ).items()
            },
            "reqps",
            empty="no failures",
            runbook="errors.md",
        ),
        Panel(
            "First event",
            "From the last byte of a request to its first event.",
            quantiles(FIRST, where=MODEL),
            "s",
            runbook="slow.md",
        ),
        Panel(
            "First event by model, p95",
            "One slow model, or all of them: then it is not the engine.",
            {
                "{{model}}": "histogram_quantile(0.95, sum by (le, model) "
                f"(rate({FIRST}_bucket{{{MODEL}}}[$__rate_interval])))"
            },
            "s",
            runbook="slow.md",
        ),
        Panel(
            "Between chunks",
            "Between two writes of one stream.",
            quantiles("toolrail_inter_chunk_seconds", where=MODEL),
            "s",
            runbook="slow.md",
        ),
        Panel(
            "Whole requests",
            "From the first byte of a request to the last of its answer.",
            quantiles("toolrail_http_request_duration_seconds", where=API),
            "s",
        ),
        Panel(
            "Tokens a second",
            "Of finished requests; prompt includes cached, completion includes reasoning.",
            rate("toolrail_tokens_total", "kind", MODEL),
            "short",
        ),
        Panel(
            "Clients that are refused or fail",
            "The ten API keys with most answers of 4xx and 5xx. Empty where no keys are in use.",
            {
                "{{key}} {{status}}": "topk(10, sum by (key, status) "
                '(rate(toolrail_key_answers_total{status=~"4xx|5xx"}[$__rate_interval])))'
            },
            "reqps",
            runbook="errors.md",
            empty="no keys, or no failures",
        ),
        Panel(
            "Refused at the door",
            "For their API key: missing, unknown, expired, forbidden, or over one of its limits.",
            rate("toolrail_refusals_total", "reason"),
            "reqps",
        ),
        Panel(
            "Processes",
            "Registered on the bus, as the gateways see it.",
            {"{{peer}} {{state}}": "max by (peer, state) (toolrail_live_instances)"},
            "none",
            runbook="no-data.md",
        ),
        Panel(
            "Restarts in 15 min",
            "Of each service; a process that starts again and again does not get far.",
            {"{{service}}": "sum by (service) (changes(process_start_time_seconds[15m]))"},
            "none",
            runbook="no-data.md",
        ),
    ],
    {"model": "label_values(toolrail_tokens_total, model)"},
)

QUALITY: Final = Dashboard(
    "toolrail-calls",
    "Toolrail: tool-call quality",
    [
        Panel(
            "Calls by what became of them",
            "valid; invalid: breaks its schema; unchecked: nobody looked; truncated: by a limit; "
            "malformed: no call; empty: lacks all arguments; unknown_tool; missing: was due.",
            rate(CALLS, "outcome", OF_BOTH),
            "cps",
            stacked=True,
            runbook="calls.md",
        ),
        Panel(
            "Valid calls by model",
            "Share of those that were not cut. One model low: its template, parser or weights.",
            {
                "{{model}}": share(
                    f'{CALLS}{{outcome="valid",{OF_BOTH}}}',
                    f"{CALLS}{{{JUDGED},{OF_BOTH}}}",
                    "$__rate_interval",
                    "model",
                )
            },
            "percentunit",
            runbook="calls.md",
            empty="no calls",
        ),
        Panel(
            "Bad calls by model, parser and kind",
            "Whose calls go wrong, and how. Only those that there are.",
            {
                "{{model}} {{family}} {{outcome}}": "sum by (model, family, outcome) "
                f"(rate({CALLS}{{{BAD},{OF_BOTH}}}[$__rate_interval])) > 0"
            },
            "cps",
            runbook="calls.md",
        ),
        Panel(
            "Truncated calls",
            "Share of the calls of each model that a limit cut: `max_tokens` is too small, or a "
            "schema has no bounds.",
            {
                "{{model}}": share(
                    f'{CALLS}{{outcome="truncated",{OF_BOTH}}}',
                    f"{CALLS}{{{OF_BOTH}}}",
                    "$__rate_interval",
                    "model",
                )
            },
            "percentunit",
            runbook="calls.md",
            empty="no calls",
        ),
        Panel(
            "Calls by family",
            "All outcomes together.",
            rate(CALLS, "family", OF_BOTH),
            "cps",
        ),
        Panel(
            "Finish reasons",
            "As clients saw them.",
            rate("toolrail_choices_finished_total", "reason", MODEL),
            "cps",
            stacked=True,
        ),
        Panel(
            "What holds the output",
            "A structural tag, a bare schema, a guided field, or nothing.",
            rate("toolrail_preprocessor_held_by_total", "kind", FAMILY),
            "reqps",
            stacked=True,
            runbook="calls.md",
        ),
        Panel(
            "Tool choice",
            "Of accepted requests.",
            rate("toolrail_preprocessor_held_by_total", "tool_choice", FAMILY),
            "reqps",
            stacked=True,
        ),
        Panel(
            "Tools under `none`",
            "Whether the prompt keeps them (the prefix stays in the cache), and whether calls are "
            "banned by the grammar.",
            rate("toolrail_preprocessor_calls_forbidden_total", "tools, calls", FAMILY),
            "reqps",
            stacked=True,
        ),
        Panel(
            "Schema keywords",
            "enforced by the grammar, relaxed, dropped, or checked after generation.",
            rate("toolrail_preprocessor_keywords_total", "status", FAMILY),
            "cps",
            stacked=True,
            runbook="schemas.md",
        ),
        Panel(
            "Checks after generation",
            "Arguments and answers that no grammar held, against their declared schema.",
            rate("toolrail_postprocessor_checks_total", "result", FAMILY),
            "cps",
            stacked=True,
            runbook="calls.md",
        ),
        Panel(
            "Schemas that no grammar holds",
            "Tools whose arguments are free text to the engine.",
            {"schemas": "sum(rate(toolrail_preprocessor_relaxed_schemas_total[$__rate_interval]))"},
            "cps",
            runbook="schemas.md",
        ),
        Panel(
            "Markers in visible text",
            "Quoted by the model, or leaked by a parser; under `none` also calls that no ban held.",
            rate("toolrail_postprocessor_markers_in_text_total", "family, tool_choice", FAMILY),
            "cps",
            runbook="calls.md",
        ),
        Panel(
            "Recoveries of parsers",
            "closed_by_end: calls without a closing marker (usual for families that have none); "
            "went_on: read on behind what was no call.",
            rate("toolrail_postprocessor_parser_recoveries_total", "family, kind", FAMILY),
            "cps",
            runbook="calls.md",
        ),
        Panel(
            "Parser bugs",
            "Exceptions while reading output. Each failed one stream.",
            rate("toolrail_postprocessor_parse_errors_total", "family", FAMILY),
            "cps",
            runbook="calls.md",
        ),
    ],
    {
        "model": f"label_values({CALLS}, model)",
        "family": f"label_values({CALLS}, family)",
    },
)

HOPS: Final = Dashboard(
    "toolrail-hops",
    "Toolrail: latency by hop",
    [
        Panel(
            "Where the time to the first event goes",
            "Means, one upon the other: preparing, the line, the engine's first token. What is "
            "missing to the first event is the bus and event loops.",
            {
                "prepare": "sum(rate(toolrail_preprocessor_stage_seconds_sum[$__rate_interval])) / "
                'sum(rate(toolrail_preprocessor_requests_total{outcome="accepted"}'
                "[$__rate_interval]))",
                "queue": mean("toolrail_worker_queue_wait_seconds"),
                "engine": mean("toolrail_worker_time_to_first_token_seconds"),
            },
            "s",
            16,
            stacked=True,
            runbook="slow.md",
        ),
        Panel(
            "First event, mean",
            "As the gateways see it: what the parts beside should add up to.",
            {"first event": mean(FIRST)},
            "s",
            runbook="slow.md",
        ),
        Panel(
            "Preparing, p95 by stage",
            "Parse, render, tokenize, constrain (tag and compile check), hand over.",
            {
                "{{stage}}": "histogram_quantile(0.95, sum by (le, stage) "
                "(rate(toolrail_preprocessor_stage_seconds_bucket[$__rate_interval])))"
            },
            "s",
            runbook="slow.md",
        ),
        Panel(
            "Compile checks",
            "hits cost nothing; joined waited for the same tag; refused is the client's schema.",
            rate("toolrail_preprocessor_compile_checks_total", "answer"),
            "cps",
            stacked=True,
            runbook="schemas.md",
        ),
        Panel(
            "Queue: wait for a worker",
            "Of a job: for its turn among others and in the queue, until a worker has it.",
            quantiles("toolrail_worker_queue_wait_seconds"),
            "s",
            runbook="slow.md",
        ),
        Panel(
            "Engine: time to first token",
            "From the job's arrival at a worker to its first token.",
            quantiles("toolrail_worker_time_to_first_token_seconds"),
            "s",
            runbook="slow.md",
        ),
        Panel(
            "Engine: time per output token",
            "Mean of a run.",
            quantiles("toolrail_worker_time_per_output_token_seconds"),
            "s",
            runbook="slow.md",
        ),
        Panel(
            "Event loops",
            "How late what is due runs: the worst of 15 s, by process.",
            {"{{service}} {{instance}}": "toolrail_event_loop_lag_seconds"},
            "s",
            runbook="slow.md",
            empty="no process",
        ),
        Panel(
            "Bus: round trip",
            "A message's way to the server and back, by process.",
            {"{{service}} {{instance}}": "toolrail_bus_round_trip_seconds"},
            "s",
            runbook="bus.md",
            empty="no process",
        ),
    ],
)

BUS: Final = Dashboard(
    "toolrail-bus",
    "Toolrail: bus",
    [
        Panel(
            "Messages",
            "Sent and received by our processes.",
            rate("toolrail_bus_messages_total", "service, direction"),
            "pps",
            runbook="bus.md",
        ),
        Panel(
            "Payload",
            "Bytes of these messages.",
            rate("toolrail_bus_payload_bytes_total", "service, direction"),
            "Bps",
        ),
        Panel(
            "Lag",
            "A message's way to the server and back, the slowest process of each service.",
            {"{{service}}": "max by (service) (toolrail_bus_round_trip_seconds)"},
            "s",
            runbook="bus.md",
            empty="no process",
        ),
        Panel(
            "Waiting for a worker",
            "Streams of which no worker has begun anything, by model.",
            {"{{model}}": "sum by (model) (toolrail_postprocessor_waiting_streams)"},
            "none",
            runbook="slow.md",
        ),
        Panel(
            "Longest wait",
            "Of these, the one that came first.",
            {"{{model}}": "max by (model) (toolrail_postprocessor_oldest_waiting_seconds)"},
            "s",
            runbook="slow.md",
        ),
        Panel(
            "Jobs pending on the server",
            "In the work queue, not yet pulled by a worker.",
            {"{{consumer_name}}": "sum by (consumer_name) (jetstream_consumer_num_pending)"},
            "none",
            runbook="slow.md",
            empty="no exporter",
        ),
        Panel(
            "Redeliveries",
            "Jobs delivered again since their worker went silent.",
            {"jobs": "sum(rate(toolrail_worker_redeliveries_total[$__rate_interval]))"},
            "cps",
            runbook="bus.md",
        ),
        Panel(
            "Dead letters",
            "Requests that nobody could run, by why.",
            {
                "{{reason}}": "sum by (reason) (rate(toolrail_postprocessor_dead_letters_total"
                "[$__rate_interval]) or rate(toolrail_worker_dead_letters_total[$__rate_interval]))"
            },
            "cps",
            runbook="bus.md",
        ),
        Panel(
            "Lost and reconnected",
            "Messages lost in our processes (full queue, slow handler); connections made anew.",
            {
                "dropped {{service}}": "sum by (service) "
                "(increase(toolrail_bus_dropped_total[$__rate_interval]))",
                "reconnects {{service}}": "sum by (service) "
                "(increase(toolrail_bus_reconnects_total[$__rate_interval]))",
            },
            "none",
            runbook="bus.md",
        ),
        Panel(
            "Waiting to leave",
            "Messages in the queues of our processes.",
            {"{{service}}": "max by (service) (toolrail_bus_unsent)"},
            "none",
            runbook="bus.md",
        ),
        Panel(
            "Slow consumers",
            "Connections that the NATS server cut because they did not read.",
            {"{{server_id}}": "gnatsd_varz_slow_consumers"},
            "none",
            runbook="bus.md",
            empty="no exporter",
        ),
        Panel(
            "Frames",
            "From workers and to gateways: one for each engine step and destination.",
            {
                way: f"sum(rate(toolrail_postprocessor_frames_{way}_total[$__rate_interval]))"
                for way in ("in", "out")
            },
            "pps",
        ),
        Panel(
            "Deltas asked for again, and dropped",
            "resent: a worker was asked for what is missing; the others by why they were not used.",
            {
                "resent": "sum(rate(toolrail_postprocessor_resends_total[$__rate_interval]))",
                "{{reason}}": "sum by (reason) "
                "(rate(toolrail_postprocessor_deltas_dropped_total[$__rate_interval]))",
            },
            "cps",
            runbook="bus.md",
        ),
        Panel(
            "Streams that changed owners",
            "Taken over from another postprocessor, which ended or died.",
            rate("toolrail_take_overs_total", "outcome"),
            "cps",
            runbook="bus.md",
        ),
        Panel(
            "Spans lost",
            "Traces that could not be sent.",
            rate("toolrail_trace_spans_dropped_total", "service"),
            "cps",
            runbook="no-data.md",
        ),
    ],
)

WORKERS: Final = Dashboard(
    "toolrail-workers",
    "Toolrail: workers",
    [
        Panel(
            "Slots in use",
            "Runs of each worker against what it takes at once.",
            {
                "{{instance}} running": "toolrail_worker_running",
                "{{instance}} slots": "toolrail_worker_slots",
            },
            "none",
            runbook="slow.md",
            empty="no worker",
        ),
        Panel(
            "Tokens a second",
            "Of each worker.",
            rate("toolrail_worker_output_tokens_total", "instance"),
            "short",
        ),
        Panel(
            "Runs by how they ended",
            "stop and length are good; engine: the engine failed it; released: given back.",
            rate("toolrail_worker_runs_total", "outcome"),
            "cps",
            stacked=True,
            runbook="workers.md",
        ),
        Panel(
            "Failed runs by worker",
            "One worker alone: its GPU or process; all of them: the model or a request.",
            rate("toolrail_worker_runs_total", "instance", 'outcome=~"engine|error|lost|internal"'),
            "cps",
            runbook="workers.md",
        ),
        Panel(
            "KV cache in use",
            "Of vLLM's blocks; full: requests wait or are preempted.",
            {"{{instance}}": "max by (instance) (vllm:kv_cache_usage_perc)"},
            "percentunit",
            runbook="workers.md",
            empty="no vLLM",
        ),
        Panel(
            "Prefix cache hits",
            "Of prompt tokens: vLLM's own count, and what clients were told.",
            {
                "vLLM {{instance}}": "sum by (instance) (rate(vllm:prefix_cache_hits_total"
                "[$__rate_interval])) / sum by (instance) "
                "(rate(vllm:prefix_cache_queries_total[$__rate_interval]))",
                "told {{model}}": 'sum by (model) (rate(toolrail_tokens_total{kind="cached"}'
                "[$__rate_interval])) / sum by (model) "
                '(rate(toolrail_tokens_total{kind="prompt"}[$__rate_interval]))',
            },
            "percentunit",
            runbook="slow.md",
            empty="no prompts",
        ),
        Panel(
            "Streams moved to another worker",
            "By why they left theirs.",
            rate("toolrail_postprocessor_migrations_total", "cause"),
            "cps",
            runbook="workers.md",
        ),
        Panel(
            "Without a worker",
            "From the last token of the worker that was lost to the first of the next.",
            quantiles("toolrail_postprocessor_migration_seconds"),
            "s",
            runbook="workers.md",
        ),
        Panel(
            "Streams owned",
            "By each postprocessor.",
            {"{{instance}}": "toolrail_postprocessor_open_streams"},
            "none",
            empty="no postprocessor",
        ),
        Panel(
            "CPU",
            "Cores in use by each process. Gateways and postprocessors have one each to use.",
            {
                "{{service}} {{instance}}": "sum by (service, instance) "
                "(rate(process_cpu_seconds_total[$__rate_interval]))"
            },
            "short",
            runbook="slow.md",
            empty="no process",
        ),
        Panel(
            "Memory",
            "Resident, by process.",
            {"{{service}} {{instance}}": "process_resident_memory_bytes"},
            "bytes",
            runbook="workers.md",
            empty="no process",
        ),
        Panel(
            "Versions",
            "Processes of each release: more than one during a roll-out.",
            {"{{service}} {{version}}": "count by (service, version) (toolrail_build_info)"},
            "none",
            empty="no process",
        ),
    ],
)

REQUEST: Final = Dashboard(
    "toolrail-request",
    "Toolrail: one request",
    [
        Panel(
            "Trace",
            "All four services; the id is in every log line and in the error of a 5xx.",
            {"trace": "$trace_id"},
            unit="none",
            width=24,
            kind="traces",
            source="tempo",
        ),
        Panel(
            "Log lines",
            "Of all services, with this trace id.",
            {"logs": '{service_name=~".+"} | trace_id = "$trace_id"'},
            unit="none",
            width=24,
            kind="logs",
            source="loki",
        ),
    ],
)

DASHBOARDS: Final = (OVERVIEW, QUALITY, HOPS, BUS, WORKERS, REQUEST)


def rendered(dashboard: Dashboard) -> str:
    """The JSON text that Grafana provisions."""
    used = dict.fromkeys(panel.source for panel in dashboard.panels)
    variables: list[dict[str, Any]] = [
        {"name": SOURCES[kind], "type": "datasource", "query": kind, "label": SOURCES[kind]}
        for kind in used
    ]
    variables += [
        {
            "name": name,
            "label": name,
            "type": "query",
            "query": query,
            "datasource": {"type": "prometheus", "uid": "${metrics}"},
            "includeAll": True,
            "multi": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
            "refresh": 2,
        }
        for name, query in dashboard.variables.items()
    ]
    if any(panel.runbook for panel in dashboard.panels):
        # Where the runbooks are read is the deployment's to say: a path or an address.
        variables.append(
            {
                "name": "runbooks",
                "label": "runbooks at",
                "type": "textbox",
                "query": "docs/runbooks",
                "current": {"text": "docs/runbooks", "value": "docs/runbooks"},
            }
        )
    if dashboard is REQUEST:
        variables.append({"name": "trace_id", "type": "textbox", "query": "", "label": "trace id"})
    body = {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["toolrail"],
        "schemaVersion": 41,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "links": [
            {"type": "dashboards", "title": "Toolrail", "tags": ["toolrail"], "asDropdown": True}
        ],
        "templating": {"list": variables},
        "panels": list(_laid_out(dashboard.panels)),
    }
    return json.dumps(body, indent=1, ensure_ascii=False) + "\n"


def _height(panel: Panel) -> int:
    if panel.kind == "traces":
        return 2 * HEIGHT
    return LOW if panel.kind in ("stat", "table") else HEIGHT


def _laid_out(panels: Sequence[Panel]) -> Iterator[dict[str, Any]]:
    x = y = tallest = 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > WIDTH:
            x, y, tallest = 0, y + tallest, 0
        height = _height(panel)
        yield _panel(number, panel, {"x": x, "y": y, "w": panel.width, "h": height})
        x += panel.width
        tallest = max(tallest, height)


def _panel(number: int, panel: Panel, at: Mapping[str, int]) -> dict[str, Any]:
    source = {"type": panel.source, "uid": f"${{{SOURCES[panel.source]}}}"}
    targets: list[dict[str, Any]] = []
    for index, (legend, query) in enumerate(panel.queries.items()):
        target: dict[str, Any] = {"refId": chr(ord("A") + index), "datasource": source}
        if panel.source == "tempo":
            target |= {"queryType": "traceql", "query": query}
        else:
            target |= {"expr": query, "legendFormat": legend}
        if panel.source == "prometheus":
            instant = panel.kind != "timeseries"
            target |= {"exemplar": panel.unit == "s" and not instant, "instant": instant}
        targets.append(target)
    shown: dict[str, Any] = {
        "id": number,
        "title": panel.title,
        "description": panel.says,
        "type": panel.kind,
        "datasource": source,
        "gridPos": dict(at),
        "fieldConfig": {"defaults": _defaults(panel), "overrides": _overrides(panel)},
        "targets": targets,
    }
    if panel.kind == "timeseries":
        shown["options"] = {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    if panel.runbook:
        shown["links"] = [{"title": "runbook", "url": f"${{runbooks}}/{panel.runbook}"}]
    return shown


def _defaults(panel: Panel) -> dict[str, Any]:
    custom: dict[str, Any] = {"spanNulls": False, "fillOpacity": 10, "lineWidth": 1}
    if panel.stacked:
        custom |= {"stacking": {"mode": "normal"}, "fillOpacity": 40}
    found: dict[str, Any] = {"unit": panel.unit, "noValue": panel.empty, "min": 0, "custom": custom}
    if panel.title.startswith("Budget"):
        del found["min"]
    if panel.steps:
        (lowest, *_), colors = panel.steps, panel.steps.values()
        starts = [None if start == lowest else start for start in panel.steps]
        steps = [{"value": v, "color": c} for v, c in zip(starts, colors, strict=True)]
        found["thresholds"] = {"mode": "absolute", "steps": steps}
    return found


def _overrides(panel: Panel) -> list[dict[str, Any]]:
    if not panel.stacked:
        return []
    return [
        {
            "matcher": {"id": "byRegexp", "options": pattern},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": color}}],
        }
        for pattern, color in COLORS.items()
    ]


def main() -> None:
    """Write all of them."""
    FOLDER.mkdir(exist_ok=True)
    for dashboard in DASHBOARDS:
        path = FOLDER / f"{dashboard.uid}.json"
        path.write_text(rendered(dashboard), encoding="utf-8")
        print(path.name)


if __name__ == "__main__":
    main()
