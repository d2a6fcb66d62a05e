"""What the gateway sees of the others, as series: models that can be served, live instances."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from toolrail.directory import Directory

_SERVICES: Final = ("gateway", "preprocessor", "postprocessor", "worker")


class ServedCollector(Collector):
    """Read from the directory when scraped."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def collect(self) -> Iterable[Metric]:
        """The counts now."""
        directory = self._directory
        yield GaugeMetricFamily(
            "toolrail_servable_models",
            "Models that can be served end to end, as this gateway sees it.",
            sum(directory.servable(card.name) for card in directory.cards()),
        )
        live = GaugeMetricFamily(
            "toolrail_live_instances",
            "Processes that are registered on the bus, as this gateway sees it.",
            labels=["peer", "state"],
        )
        for service in _SERVICES:
            instances = directory.instances(service)
            draining = sum(instance.draining for instance in instances)
            live.add_metric([service, "draining"], draining)
            live.add_metric([service, "ready"], len(instances) - draining)
        yield live
