"""Writes the dashboards: `python compose/grafana/make_dashboards.py`. A test holds them to it.

A panel is a title, what it shows, its queries and a unit; the layout follows from the order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent / "dashboards"
WIDTH: Final = 24
HEIGHT: Final = 8


@dataclass(frozen=True)
class Panel:
    """`queries`: legend → PromQL, or for traces and logs one query in their own language."""

    title: str
    says: str
    queries: Mapping[str, str]
    unit: str = "short"
    width: int = 8
    kind: str = "timeseries"
    source: str = "prometheus"
    stacked: bool = False


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


def rate(metric: str, by: str, where: str = "") -> dict[str, str]:
    return {f"{{{{{by}}}}}": f"sum by ({by}) (rate({metric}{{{where}}}[$__rate_interval]))"}


MODEL: Final = 'model=~"$model"'
FAMILY: Final = 'family=~"$family"'
API: Final = 'route=~"/v1/.*"'
REQUESTS: Final = "toolrail_http_requests_total"

OVERVIEW: Final = Dashboard(
    "toolrail-overview",
    "Toolrail: overview",
    [
        Panel(
            "Availability, 1 h",
            "Requests that did not fail by our fault; 4xx are the client's.",
            {
                "ok": f'1 - (sum(rate({REQUESTS}{{{API},status=~"5.."}}[1h])) or vector(0))'
                f' / sum(rate({REQUESTS}{{{API},status!~"4.."}}[1h]))'
            },
            "percentunit",
            6,
            "stat",
        ),
        Panel(
            "Complete calls, 1 h",
            "Complete calls among all that were begun.",
            {
                "ok": 'sum(rate(toolrail_tool_calls_total{outcome="complete"}[1h]))'
                " / sum(rate(toolrail_tool_calls_total[1h]))"
            },
            "percentunit",
            6,
            "stat",
        ),
        Panel(
            "Models served",
            "Models that can be served end to end, as the gateways see it.",
            {"models": "max(toolrail_servable_models)"},
            "none",
            6,
            "stat",
        ),
        Panel(
            "Requests in flight",
            "Being answered now.",
            {"all": f"sum(toolrail_http_requests_in_flight{{{API}}})"},
            "none",
            6,
            "stat",
        ),
        Panel(
            "Requests by status",
            "499: the client left before its answer was whole.",
            rate("toolrail_http_requests_total", "status", API),
            "reqps",
            stacked=True,
        ),
        Panel(
            "First event",
            "From the last byte of a request to its first event.",
            quantiles("toolrail_time_to_first_event_seconds", where=MODEL),
            "s",
        ),
        Panel(
            "Between chunks",
            "Between two writes of one stream.",
            quantiles("toolrail_inter_chunk_seconds", where=MODEL),
            "s",
        ),
        Panel(
            "Whole requests",
            "From the first byte of a request to the last of its answer.",
            quantiles("toolrail_http_request_duration_seconds", where=API),
            "s",
        ),
        Panel(
            "Tokens",
            "Of finished requests; prompt includes cached, completion includes reasoning.",
            rate("toolrail_tokens_total", "kind", MODEL),
            "short",
        ),
        Panel(
            "Failures by code",
            "invalid_request and not_found are clients; engine, lost, internal are ours.",
            rate("toolrail_errors_total", "code"),
            "reqps",
            stacked=True,
        ),
        Panel(
            "Processes",
            "Registered on the bus, as the gateways see it.",
            {"{{service}} {{state}}": "max by (service, state) (toolrail_live_instances)"},
            "none",
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
            "As the parser of the family saw them end.",
            rate("toolrail_postprocessor_calls_total", "outcome", FAMILY),
            "cps",
            stacked=True,
        ),
        Panel(
            "Calls by family",
            "All outcomes together.",
            rate("toolrail_postprocessor_calls_total", "family", FAMILY),
            "cps",
        ),
        Panel(
            "Finish reasons",
            "As clients saw them.",
            rate("toolrail_choices_finished_total", "reason"),
            "cps",
            stacked=True,
        ),
        Panel(
            "What holds the output",
            "A tag, a schema, a ban, or nothing.",
            rate("toolrail_preprocessor_held_by_total", "kind"),
            "reqps",
            stacked=True,
        ),
        Panel(
            "Schema keywords",
            "enforced by the grammar, relaxed, dropped, or checked after generation.",
            rate("toolrail_preprocessor_keywords_total", "status", FAMILY),
            "short",
            stacked=True,
        ),
        Panel(
            "Checks after generation",
            "Arguments and answers that no grammar held, against their declared schema.",
            rate("toolrail_postprocessor_checks_total", "result", FAMILY),
            "cps",
            stacked=True,
        ),
        Panel(
            "Schemas that no grammar holds",
            "Tools whose arguments are free text to the engine.",
            {"schemas": "sum(rate(toolrail_preprocessor_relaxed_schemas_total[$__rate_interval]))"},
            "short",
        ),
        Panel(
            "Markers in visible text",
            "Quoted by the model, or leaked by a parser.",
            rate("toolrail_postprocessor_markers_in_text_total", "family", FAMILY),
            "cps",
        ),
        Panel(
            "Parser bugs",
            "Exceptions while reading output. Each failed one stream.",
            rate("toolrail_postprocessor_parse_errors_total", "family", FAMILY),
            "cps",
        ),
    ],
    {"family": "label_values(toolrail_postprocessor_calls_total, family)"},
)

HOPS: Final = Dashboard(
    "toolrail-hops",
    "Toolrail: latency by hop",
    [
        Panel(
            "Preparing, p95 by stage",
            "Parse, render, tokenize, constrain (tag and compile check), hand over.",
            {
                "{{stage}}": "histogram_quantile(0.95, sum by (le, stage) "
                "(rate(toolrail_preprocessor_stage_seconds_bucket[$__rate_interval])))"
            },
            "s",
            12,
        ),
        Panel(
            "Compile checks",
            "hits cost nothing; joined waited for the same tag; refused is the client's schema.",
            rate("toolrail_preprocessor_compile_checks_total", "answer"),
            "cps",
            12,
            stacked=True,
        ),
        Panel(
            "Engine: time to first token",
            "From the job's arrival at a worker to its first token.",
            quantiles("toolrail_worker_time_to_first_token_seconds"),
            "s",
        ),
        Panel(
            "Engine: time per output token",
            "Mean of a run.",
            quantiles("toolrail_worker_time_per_output_token_seconds"),
            "s",
        ),
        Panel(
            "Event loops",
            "How late what is due runs, by process.",
            {"{{service}} {{instance}}": "toolrail_event_loop_lag_seconds"},
            "s",
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
            {
                "{{service}} {{direction}}": "sum by (service, direction) "
                "(rate(toolrail_bus_messages_total[$__rate_interval]))"
            },
            "pps",
        ),
        Panel(
            "Payload",
            "Bytes of these messages.",
            {
                "{{service}} {{direction}}": "sum by (service, direction) "
                "(rate(toolrail_bus_payload_bytes_total[$__rate_interval]))"
            },
            "Bps",
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
            "short",
        ),
        Panel(
            "Jobs waiting",
            "Pending in the work queue, not yet pulled by a worker.",
            {"{{consumer_name}}": "sum by (consumer_name) (jetstream_consumer_num_pending)"},
            "short",
        ),
        Panel(
            "Redeliveries",
            "Jobs delivered again since their worker went silent.",
            {"{{consumer_name}}": "sum by (consumer_name) (jetstream_consumer_num_redelivered)"},
            "short",
        ),
        Panel(
            "Slow consumers",
            "Connections that the NATS server cut because they did not read.",
            {"{{server_id}}": "gnatsd_varz_slow_consumers"},
            "short",
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
            "Dead letters",
            "Requests that nobody could run, by why.",
            rate("toolrail_postprocessor_dead_letters_total", "reason"),
            "cps",
        ),
        Panel(
            "Spans lost",
            "Traces that could not be sent.",
            {
                "{{service}}": "sum by (service) "
                "(rate(toolrail_trace_spans_dropped_total[$__rate_interval]))"
            },
            "cps",
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
            "short",
        ),
        Panel(
            "Output",
            "Tokens a second of each worker.",
            {
                "{{instance}}": "sum by (instance) "
                "(rate(toolrail_worker_output_tokens_total[$__rate_interval]))"
            },
            "short",
        ),
        Panel(
            "Runs by how they ended",
            "abort: cancelled; error: the engine failed it.",
            rate("toolrail_worker_runs_total", "outcome"),
            "cps",
            stacked=True,
        ),
        Panel(
            "Streams moved to another worker",
            "By why they left theirs.",
            rate("toolrail_postprocessor_migrations_total", "cause"),
            "cps",
        ),
        Panel(
            "Without a worker",
            "From the last token of the worker that was lost to the first of the next.",
            quantiles("toolrail_postprocessor_migration_seconds"),
            "s",
        ),
        Panel(
            "Streams owned",
            "By each postprocessor.",
            {"{{instance}}": "toolrail_postprocessor_open_streams"},
            "short",
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
            width=24,
            kind="traces",
            source="tempo",
        ),
        Panel(
            "Log lines",
            "Of all services, with this trace id.",
            {"logs": '{service_name=~".+"} | trace_id = "$trace_id"'},
            width=24,
            kind="logs",
            source="loki",
        ),
    ],
)

DASHBOARDS: Final = (OVERVIEW, QUALITY, HOPS, BUS, WORKERS, REQUEST)


def rendered(dashboard: Dashboard) -> str:
    """The JSON text that Grafana provisions."""
    variables = [
        {
            "name": name,
            "type": "query",
            "query": query,
            "datasource": {"type": "prometheus", "uid": "prometheus"},
            "includeAll": True,
            "multi": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
            "refresh": 2,
        }
        for name, query in dashboard.variables.items()
    ]
    if dashboard is REQUEST:
        variables = [{"name": "trace_id", "type": "textbox", "query": "", "label": "Trace id"}]
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


def _laid_out(panels: Sequence[Panel]) -> Iterator[dict[str, Any]]:
    x = y = 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > WIDTH:
            x, y = 0, y + HEIGHT
        height = HEIGHT if panel.kind != "traces" else 2 * HEIGHT
        yield _panel(number, panel, {"x": x, "y": y, "w": panel.width, "h": height})
        x += panel.width


def _panel(number: int, panel: Panel, at: Mapping[str, int]) -> dict[str, Any]:
    source = {"type": panel.source, "uid": panel.source}
    targets: list[dict[str, Any]] = []
    for index, (legend, query) in enumerate(panel.queries.items()):
        target: dict[str, Any] = {"refId": chr(ord("A") + index), "datasource": source}
        if panel.source == "tempo":
            target |= {"queryType": "traceql", "query": query}
        else:
            target |= {"expr": query, "legendFormat": legend}
        if panel.source == "prometheus":
            target |= {"exemplar": panel.unit == "s", "instant": panel.kind == "stat"}
        targets.append(target)
    stacking = {"stacking": {"mode": "normal"}, "fillOpacity": 30} if panel.stacked else {}
    return {
        "id": number,
        "title": panel.title,
        "description": panel.says,
        "type": panel.kind,
        "datasource": source,
        "gridPos": dict(at),
        "fieldConfig": {"defaults": {"unit": panel.unit, "custom": stacking}, "overrides": []},
        "targets": targets,
    }


def main() -> None:
    """Write all of them."""
    FOLDER.mkdir(exist_ok=True)
    for dashboard in DASHBOARDS:
        path = FOLDER / f"{dashboard.uid}.json"
        path.write_text(rendered(dashboard), encoding="utf-8")
        print(path.name)


if __name__ == "__main__":
    main()
