"""The alerts of compose/prometheus/alerts.yml as an object for the Prometheus operator.

python compose/kubernetes/prometheus_rule.py | kubectl apply -f -
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

ALERTS = Path(__file__).parents[1] / "prometheus" / "alerts.yml"


def prometheus_rule(namespace: str = "toolrail") -> dict[str, Any]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "toolrail", "namespace": namespace},
        "spec": {"groups": groups},
    }


if __name__ == "__main__":
    yaml.safe_dump(prometheus_rule(*sys.argv[1:]), sys.stdout, sort_keys=False)
