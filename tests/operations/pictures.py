"""Pictures of the dashboards for the docs: `python -m tests.operations.pictures [--minutes 11]`.

Runs the stack with mixed traffic and, one after another, what people on call are called for: a
model that calls badly, an overload, a worker that is killed, engine errors. Then it asks a real
Prometheus for each panel and draws `docs/pictures/*.svg`. Needs Debian's package `prometheus`.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.compose.files import COMPOSE
from tests.operations.drawing import Line, drawn, legend_of
from tests.operations.watched import FREE, POINT, Pace, Watched, load, watched

PICTURES: Final = COMPOSE.parent / "docs" / "pictures"
POINTS: Final = 90
"""Of each series: enough for the eye, and files stay small."""
SETTINGS: Final = {
    "TOOLRAIL_WORKER_WAIT_S": "60",
    "TOOLRAIL_MIGRATION_LIMIT": "10",
    "TOOLRAIL_MAX_WAITING_PER_SLOT": "1",
}
VARIABLES: Final = {"$__rate_interval": "30s", "$model": ".*", "$family": ".*"}

EVERYDAY: Final[Sequence[tuple[str, Mapping[str, Any]]]] = [
    ("call", {"tools": [POINT]}),
    ("call", {"tools": [POINT], "model": "demo-b"}),
    ("call", {"tools": [FREE], "key": "batch"}),
    ("talk", {"key": "batch"}),
    ("talk", {"model": "demo-b"}),
    ("talk", {"tools": [POINT], "tool_choice": "none"}),
    ("cut", {"tools": [FREE]}),
    ("odd", {"tools": [FREE]}),
    ("words", {}),
    ("talk", {"model": "absent", "key": "careless"}),
    ("talk", {"temperature": 9, "key": "careless"}),
]


def everyday(stack: Watched) -> ExitStack:
    """Traffic that is well, with the few mistakes that clients always make."""
    weights = (8, 5, 4, 5, 4, 2, 1, 0.3, 0.5, 1, 1)

    def work(number: int) -> None:
        dice = random.Random(time.monotonic_ns() + number)
        ((text, more),) = dice.choices(EVERYDAY, weights)
        stack.post(text, stream=dice.random() < 0.6, **more)
        time.sleep(dice.uniform(0.2, 0.7))

    made = ExitStack()
    made.enter_context(load(5, work))
    return made


def faults(stack: Watched, minute_s: float) -> None:
    """What goes wrong, one after another, in about ten minutes."""

    def badly(_: int) -> None:
        for text in ("wrong", "wrong", "nothing", "stranger"):
            stack.post(text, model="demo-b", tools=[FREE])
            time.sleep(0.4)

    def slowly(number: int) -> None:
        stack.post("slow", key=("agents", "batch")[number % 2], max_tokens=150)
        time.sleep(0.5)

    def broken(_: int) -> None:
        stack.post("break")
        stack.leave("slow")
        stack.knock()
        time.sleep(0.5)

    time.sleep(2 * minute_s)
    with load(1, badly):
        time.sleep(1.5 * minute_s)
    time.sleep(0.5 * minute_s)
    with load(34, slowly):
        time.sleep(1 * minute_s)
        stack.services["worker"][0].kill()
        time.sleep(1 * minute_s)
    time.sleep(0.5 * minute_s)
    stack.services["worker"][0].start()
    time.sleep(0.5 * minute_s)
    with load(1, broken):
        time.sleep(1.5 * minute_s)
    time.sleep(1.5 * minute_s)


def answered(stack: Watched, panel: Mapping[str, Any], start_s: float, end_s: float) -> list[Line]:
    """What Prometheus says to a panel's queries."""
    lines: list[Line] = []
    for target in panel["targets"]:
        query = target["expr"]
        for name, value in VARIABLES.items():
            query = query.replace(name, value)
        if target["instant"]:
            for each in stack.ask(query):
                legend = legend_of(target["legendFormat"], each["metric"])
                lines.append(Line(legend, [(end_s, float(each["value"][1]))]))
            continue
        for each in stack.ask_range(query, start_s, end_s, (end_s - start_s) / POINTS):
            points = [(float(s), float(v)) for s, v in each["values"]]
            if not all(math.isnan(value) for _, value in points):
                legend = legend_of(target["legendFormat"], each["metric"])
                lines.append(Line(legend, points))
    return lines


def named(stack: Watched, text: str) -> str:
    """`text` with the names of processes, as a deployment has them, for their addresses."""
    for name, some in stack.services.items():
        for number, one in enumerate(some):
            text = text.replace(f"127.0.0.1:{one.port}", f"{name}-{number}")
            text = text.replace(f"{name} {name}-", f"{name}-")
    return text


Asked: TypeAlias = dict[str, dict[str, list[tuple[str, list[tuple[float, float]]]]]]
"""By dashboard and panel: legends and points."""


def dashboards() -> Iterator[tuple[str, dict[str, Any]]]:
    """Those that show metrics: traces and logs are not in Prometheus."""
    for path in sorted((COMPOSE / "grafana" / "dashboards").glob("*.json")):
        dashboard = json.loads(path.read_text("utf-8"))
        if all(panel["datasource"]["type"] == "prometheus" for panel in dashboard["panels"]):
            yield path.stem.removeprefix("toolrail-"), dashboard


def ask_all(stack: Watched, start_s: float, end_s: float) -> Asked:
    """The answers to all panels of all dashboards."""
    return {
        name: {
            panel["title"]: [
                (named(stack, line.legend), list(line.points))
                for line in answered(stack, panel, start_s, end_s)
            ]
            for panel in dashboard["panels"]
        }
        for name, dashboard in dashboards()
    }


def draw(asked: Asked, start_s: float, end_s: float, into: Path) -> None:
    """All dashboards that show metrics."""
    into.mkdir(exist_ok=True)
    for name, dashboard in dashboards():
        answers = {
            title: [Line(legend, [(s, v) for s, v in points]) for legend, points in lines]
            for title, lines in asked[name].items()
        }
        picture = into / f"{name}.svg"
        picture.write_text(drawn(dashboard, answers, start_s, end_s), "utf-8")
        sys.stdout.write(f"{picture}\n")


def run(minutes: float) -> tuple[Asked, float, float]:
    """The answers after a run, and when it began and ended."""
    with (
        tempfile.TemporaryDirectory() as folder,
        watched(Path(folder), Pace(1), settings=SETTINGS) as stack,
    ):
        start_s = time.time()
        with everyday(stack):
            faults(stack, minutes * 60 / 11)
            end_s = time.time()
            return ask_all(stack, start_s, end_s), start_s, end_s


def main() -> None:
    """Run, ask, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=11, help="how long the run is")
    parser.add_argument("--into", type=Path, default=PICTURES)
    parser.add_argument("--answers", type=Path, help="keep the answers here, or draw those kept")
    options = parser.parse_args()
    kept: Path | None = options.answers
    if kept is not None and kept.exists():
        asked, start_s, end_s = json.loads(kept.read_text("utf-8"))
    else:
        asked, start_s, end_s = run(options.minutes)
        if kept is not None:
            kept.write_text(json.dumps((asked, start_s, end_s)), "utf-8")
    draw(asked, start_s, end_s, options.into)


if __name__ == "__main__":
    main()
