"""Pictures of the dashboards: every kind of panel can be drawn, those in the docs are current."""

from __future__ import annotations

import math
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.compose.files import COMPOSE
from tests.compose.test_dashboards import dashboards
from tests.operations.drawing import Line, drawn, legend_of, shown, ticks

PICTURES = COMPOSE.parent / "docs" / "pictures"
TRACES = "toolrail-request"
START_S, END_S = 1_000_000.0, 1_000_600.0


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [each.text or "" for each in root.iter("{http://www.w3.org/2000/svg}text")]


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return dashboard["panels"]


@pytest.mark.parametrize("name", sorted(set(dashboards()) - {TRACES}))
def test_every_panel_is_drawn_with_data_and_without(name: str) -> None:
    dashboard = dashboards()[name]
    nothing = texts(drawn(dashboard, {}, START_S, END_S))
    points = [(START_S + n * 10, math.nan if n == 7 else n * 1.5) for n in range(60)]
    some = {panel["title"]: [Line("one & only", points)] for panel in panels(dashboard)}
    full = texts(drawn(dashboard, some, START_S, END_S))
    for panel in panels(dashboard):
        assert panel["title"] in nothing
        assert panel["title"] in full
        assert panel["fieldConfig"]["defaults"]["noValue"] in nothing
    assert full.count("one & only") == sum(panel["type"] != "stat" for panel in panels(dashboard))


def test_a_panel_that_nobody_can_draw_is_told() -> None:
    lines = {
        panel["title"]: [Line("x", [(START_S, 1.0)])] for panel in panels(dashboards()[TRACES])
    }
    with pytest.raises(ValueError, match="traces"):
        drawn(dashboards()[TRACES], lines, START_S, END_S)


def test_numbers_are_shown_in_their_unit() -> None:
    assert [shown(v, "s") for v in (0.0, 0.0025, 1.5, 90.0)] == [
        "0 s",
        "2.5 ms",
        "1.5 s",
        "1.5 min",
    ]
    assert [shown(v, "percentunit") for v in (0.9991, -3.5)] == ["99.91 %", "-350 %"]
    assert [shown(v, "bytes") for v in (512.0, 3 * 2**20)] == ["512 B", "3 MiB"]
    assert shown(1500.0, "reqps") == "1.5 K req/s"
    assert ticks(0.0, 7.3, 4) == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert ticks(0.0, 130 * 2.0**20, 4, "bytes")[1] == 50 * 2.0**20


def test_a_legend_is_filled_as_in_grafana() -> None:
    assert legend_of("{{model}} {{gone}} p95", {"model": "demo"}) == "demo p95"


def test_the_pictures_in_the_docs_are_of_these_dashboards_and_small() -> None:
    page = (COMPOSE.parent / "docs" / "operate.md").read_text("utf-8")
    for name, dashboard in dashboards().items():
        if name == TRACES:
            continue
        picture = PICTURES / f"{name.removeprefix('toolrail-')}.svg"
        assert f"](pictures/{picture.name})" in page
        text = picture.read_text("utf-8")
        assert len(text) < 200_000, name
        assert {panel["title"] for panel in panels(dashboard)} <= set(texts(text)), name
