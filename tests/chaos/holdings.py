"""What a stack holds of the NATS server and of the machine, for tests that none of it stays."""

from __future__ import annotations

import json
import os
import urllib.request
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.footprint import Footprint, footprint
from tests.stack import Stack
from toolrail.bus.embedded import EmbeddedNats


@dataclass(frozen=True)
class Holdings:
    """All of it, at one moment.

    Attributes:
        subscriptions: of the connections to the server, by their names.
        consumers: readers of each stream that the server knows.
        unread: those of them that nobody listens to.
        messages: in each stream, and so the keys of each bucket.
        sockets: of each process.
        footprints: of each process.
    """

    subscriptions: Counter[str]
    consumers: Counter[str]
    unread: Counter[str]
    messages: Counter[str]
    sockets: Counter[str]
    footprints: dict[str, Footprint]


def holdings(stack: Stack, server: EmbeddedNats) -> Holdings:
    """What the services of `stack` hold now."""
    connections = _asked(server, "connz?subs=1&limit=10000")["connections"]
    account = _asked(server, "jsz?streams=1&consumers=1&config=1")["account_details"][0]
    streams: Sequence[Any] = account["stream_detail"]
    readers = {one["name"]: one.get("consumer_detail") or [] for one in streams}
    pids = {one["instance"]: one["pid"] for one in stack.status["processes"]}
    seen = {name: footprint(pid, family=False) for name, pid in pids.items()}
    return Holdings(
        subscriptions=_added((one["name"], one["subscriptions"]) for one in connections),
        consumers=Counter({name: len(found) for name, found in readers.items()}),
        unread=Counter(
            name
            for name, found in readers.items()
            for one in found
            if one["config"].get("deliver_subject") and not one.get("push_bound")
        ),
        messages=Counter({one["name"]: one["state"]["messages"] for one in streams}),
        sockets=Counter({name: _sockets(pid) for name, pid in pids.items()}),
        footprints={name: found for name, found in seen.items() if found is not None},
    )


def _added(counts: Iterable[tuple[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for name, count in counts:
        total[name] += count
    return total


def _asked(server: EmbeddedNats, what: str) -> Any:
    with urllib.request.urlopen(f"{server.monitoring_url}/{what}", timeout=10) as answer:
        return json.load(answer)


def _sockets(pid: int) -> int:
    found = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found += os.readlink(descriptor).startswith("socket:")
        except FileNotFoundError:  # closed meanwhile
            continue
    return found
