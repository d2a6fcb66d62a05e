"""Writes docs/metrics.md: `python -m tests.compose.metrics_table`. A test holds it to the code.

Made from the registries of running services, so that no series can be forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
from prometheus_client import CollectorRegistry

from tests import pipeline
from toolrail.bus.memory import MemoryBroker
from toolrail.service.metrics import measure_bus, measure_lag

PAGE: Final = Path(__file__).parents[2] / "docs" / "metrics.md"
HEAD: Final = """# Metrics

Made by `python -m tests.compose.metrics_table`. Every service answers `GET /metrics` on
`--metrics-port`, the gateway also on its own port; Prometheus adds `service` and `instance`.
Counting happens per request, per call or per engine step, never per token.

**Labels are bounded**: models are those that are served, families those that we have, keys those of
the key file, everything else a closed set. Nothing that a caller writes becomes a label.

A *run* is one attempt of a choice on a worker, a *frame* one message per engine step and
destination. vLLM's own series (`vllm:…`) come from the worker as they are, those of the bus' server
from NATS' exporter (`jetstream_…`, `gnatsd_…`). Questions to ask of them are in the
[runbooks](runbooks/).
"""


@dataclass(frozen=True, order=True)
class Row:
    """One line of the table."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


def made(registry: CollectorRegistry) -> Iterator[Row]:
    """What is in `registry`, whether it has happened or not.

    The client library says nowhere in public which labels a series without a sample will have.
    """
    for collector in list(registry._collector_to_names):
        found: Any = collector
        own = getattr(found, "_labelnames", None)
        for family in found.collect():
            if family.name.startswith("vllm:"):
                continue  # the engine's, and another test's engine may have left some here
            labels = own if own is not None else getattr(family, "_labelnames", ())
            suffix = "_total" if family.type == "counter" else ""
            yield Row(family.name + suffix, family.type, tuple(labels), family.documentation)


async def measured() -> set[Row]:
    """What a process of its own measures besides."""
    registry = CollectorRegistry()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(measure_lag, registry)
        tasks.start_soon(measure_bus, registry, MemoryBroker().connect(), "nobody")
        await anyio.wait_all_tasks_blocked()
        found = set(made(registry))
        tasks.cancel_scope.cancel()
    return found


def rows(metrics: Mapping[str, CollectorRegistry]) -> dict[str, list[Row]]:
    """The rows of each service, by its registry; those of all come first."""
    found = {name: set(made(registry)) for name, registry in metrics.items()}
    shared = set.intersection(*found.values())
    order = ("gateway", "preprocessor", "postprocessor", "worker")
    return {
        "every service": sorted(shared.union(anyio.run(measured))),
        **{name: sorted(found[name] - shared) for name in order},
    }


def page(metrics: Mapping[str, CollectorRegistry]) -> str:
    """The text of the page."""
    parts = [HEAD]
    for service, found in rows(metrics).items():
        parts.append(f"\n## {service.capitalize()}\n\n| series | type | labels | meaning |\n")
        parts.append("|---|---|---|---|\n")
        for row in found:
            labels = ", ".join(f"`{label}`" for label in row.labels)
            text = row.help.replace("|", "\\|")
            parts.append(f"| `{row.name}` | {row.kind} | {labels} | {text} |\n")
    return "".join(parts)


if __name__ == "__main__":
    with pipeline.running() as running:
        PAGE.write_text(page(running.metrics), encoding="utf-8")
