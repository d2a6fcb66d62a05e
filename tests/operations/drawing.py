"""Draws a dashboard as SVG: its JSON, and what Prometheus answers to its queries.

Not Grafana: what of a panel tells something (title, series, axis, unit, legend, thresholds), in the
place that the dashboard gives it, as text that can be searched. No package draws this without a
browser or many megabytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from typing import Any, Final, TypeAlias

Points: TypeAlias = Sequence[tuple[float, float]]
"""Seconds since 1970 and values, in order; NaN where there is none."""

CELL_W: Final = 50
CELL_H: Final = 27
GAP: Final = 5
HEAD: Final = 44
COLORS: Final = {
    "green": "#3f9c50",
    "yellow": "#d9a514",
    "red": "#d0403b",
    "orange": "#e0752d",
    "purple": "#8f5bb5",
}
PALETTE: Final = (
    "#3274d9", "#56a64b", "#e0752d", "#a352cc", "#1f9aa8", "#c4a000", "#d0508f", "#7a8a2a",
    "#5c6bc0", "#8d6e63", "#00897b", "#b0413e",
)  # fmt: skip
STYLE: Final = (
    "text{font-family:Inter,Segoe UI,Helvetica,Arial,sans-serif;fill:#24292e;font-size:11px}"
    ".title{font-size:12px;font-weight:600}.small{font-size:10px;fill:#5a6169}"
    ".big{font-size:30px;font-weight:600}.head{font-size:18px;font-weight:600}"
    ".grid{stroke:#e4e7ea;stroke-width:1}.card{fill:#fff;stroke:#d5d9dd}"
)
_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_MAX_LEGEND: Final = 12


@dataclass(frozen=True)
class Line:
    """One series of a panel."""

    legend: str
    points: Points


Answers: TypeAlias = Mapping[str, Sequence[Line]]
"""What was answered to each panel, by its title."""


def legend_of(template: str, labels: Mapping[str, str]) -> str:
    """The legend as Grafana fills it."""
    filled = re.sub(r"\{\{(\w+)\}\}", lambda m: labels.get(m[1], ""), template)
    return " ".join(filled.split())


# Numbers.


def _trimmed(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _scaled(value: float, units: Sequence[tuple[float, str]]) -> str:
    for factor, name in units:
        if abs(value) >= factor:
            shown = value / factor
            return f"{_trimmed(shown, 0 if abs(shown) >= 100 else 2)}{name}"
    return f"{_trimmed(value, 3)}{units[-1][1]}"


_SHORT: Final = ((1e9, " B"), (1e6, " M"), (1e3, " K"), (1.0, ""))
_BYTES: Final = ((2**30, " GiB"), (2**20, " MiB"), (2**10, " KiB"), (1.0, " B"))
_SECONDS: Final = ((60.0, " min"), (1.0, " s"), (1e-3, " ms"), (1e-6, " µs"))
_UNITS: Final[Mapping[str, Callable[[float], str]]] = {
    "s": lambda v: "0 s" if not v else _scaled(v, _SECONDS),
    "percentunit": lambda v: f"{_trimmed(v * 100, 0 if abs(v) >= 10 else 2)} %",
    "bytes": lambda v: _scaled(v, _BYTES),
    "Bps": lambda v: _scaled(v, _BYTES) + "/s",
    "reqps": lambda v: _scaled(v, _SHORT) + " req/s",
    "cps": lambda v: _scaled(v, _SHORT) + "/s",
    "pps": lambda v: _scaled(v, _SHORT) + " msg/s",
}


def shown(value: float, unit: str) -> str:
    """A value in its unit."""
    return _UNITS.get(unit, lambda v: _scaled(v, _SHORT))(value)


def ticks(low: float, high: float, about: int, unit: str = "short") -> list[float]:
    """Round numbers, round in the unit, from at most `low` to at least `high`."""
    factor = 1.0
    if unit in ("bytes", "Bps"):
        factor = 1024.0 ** math.floor(math.log(max(high, 1.0), 1024))
    span = max((high - low) / factor, 1e-9)
    magnitude = 10.0 ** math.floor(math.log10(span / about))
    step = next(s * magnitude for s in _STEPS if s * magnitude * about >= span) * factor
    first = math.floor(low / step)
    last = math.ceil(high / step - 1e-9)
    return [n * step for n in range(first, max(last, first + 1) + 1)]


# Drawing.


def drawn(dashboard: Mapping[str, Any], answers: Answers, start_s: float, end_s: float) -> str:
    """The dashboard as an SVG document, of this span of time."""
    panels = dashboard["panels"]
    width = 24 * CELL_W + 2 * GAP
    height = HEAD + max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in panels) * CELL_H + GAP
    span = f"{_clock(start_s)} to {_clock(end_s)} UTC"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}"><style>{STYLE}</style>',
        f'<rect width="{width}" height="{height}" fill="#f4f5f5"/>',
        f'<text class="head" x="{GAP + 8}" y="28">{escape(dashboard["title"])}</text>',
        f'<text class="small" x="{width - GAP - 8}" y="28" text-anchor="end">{span}</text>',
    ]
    for panel in panels:
        parts += _panel(panel, answers.get(panel["title"], ()), start_s, end_s)
    return "\n".join([*parts, "</svg>", ""])


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S")


@dataclass(frozen=True)
class _Box:
    x: float
    y: float
    w: float
    h: float


def _panel(
    panel: Mapping[str, Any], lines: Sequence[Line], start_s: float, end_s: float
) -> Iterable[str]:
    at = panel["gridPos"]
    box = _Box(
        GAP + at["x"] * CELL_W + GAP / 2,
        HEAD + at["y"] * CELL_H + GAP / 2,
        at["w"] * CELL_W - GAP,
        at["h"] * CELL_H - GAP,
    )
    defaults = panel["fieldConfig"]["defaults"]
    yield f"<g><title>{escape(panel['description'])}</title>"
    yield f'<rect class="card" x="{box.x}" y="{box.y}" width="{box.w}" height="{box.h}" rx="3"/>'
    title = _cut(panel["title"], box.w - 16, 6.8)
    yield f'<text class="title" x="{box.x + 8}" y="{box.y + 16}">{escape(title)}</text>'
    if not lines:
        middle = box.y + box.h / 2 + 6
        yield (
            f'<text class="small" x="{box.x + box.w / 2}" y="{middle}" text-anchor="middle">'
            f"{escape(defaults['noValue'])}</text>"
        )
    elif panel["type"] == "stat":
        yield from _stat(defaults, lines, box)
    elif panel["type"] == "table":
        yield from _table(lines, box)
    elif panel["type"] == "timeseries":
        yield from _timeseries(panel, lines, box, start_s, end_s)
    else:
        raise ValueError(f"no way to draw a panel of type {panel['type']}")
    yield "</g>"


def _cut(text: str, width: float, of_one: float) -> str:
    room = max(int(width / of_one), 4)
    return text if len(text) <= room else text[: room - 1] + "…"


def _stat(defaults: Mapping[str, Any], lines: Sequence[Line], box: _Box) -> Iterable[str]:
    value = lines[0].points[-1][1]
    color = "#24292e"
    for step in defaults.get("thresholds", {}).get("steps", ()):
        if step["value"] is None or value >= step["value"]:
            color = COLORS[step["color"]]
    text = "none" if math.isnan(value) else shown(value, defaults["unit"])
    yield (
        f'<text class="big" x="{box.x + box.w / 2}" y="{box.y + box.h / 2 + 20}" '
        f'text-anchor="middle" style="fill:{color}">{escape(text)}</text>'
    )


def _table(lines: Sequence[Line], box: _Box) -> Iterable[str]:
    rows = max(int((box.h - 26) / 14), 1)
    columns = 3
    for index, line in enumerate(lines[: rows * columns]):
        x = box.x + 10 + (index // rows) * (box.w - 20) / columns
        y = box.y + 34 + (index % rows) * 14
        text = _cut(line.legend, (box.w - 20) / columns - 16, 5.6)
        yield f'<circle cx="{x + 3}" cy="{y - 4}" r="3.5" fill="{COLORS["red"]}"/>'
        yield f'<text x="{x + 11}" y="{y}">{escape(text)}</text>'
    if (left := len(lines) - rows * columns) > 0:
        yield (
            f'<text class="small" x="{box.x + box.w - 10}" y="{box.y + 16}" '
            f'text-anchor="end">and {left} more</text>'
        )


def _timeseries(
    panel: Mapping[str, Any], lines: Sequence[Line], box: _Box, start_s: float, end_s: float
) -> Iterable[str]:
    defaults = panel["fieldConfig"]["defaults"]
    unit, is_stacked = defaults["unit"], "stacking" in defaults["custom"]
    rows = _legend_rows(lines, box.w - 20)
    plot = _Box(box.x + 62, box.y + 26, box.w - 74, box.h - 26 - 18 - 13 * len(rows) - 6)
    layers = _stacked(lines) if is_stacked else [line.points for line in lines]
    values = [v for points in layers for _, v in points if not math.isnan(v)] or [0.0]
    marks = ticks(min(0.0, *values), max(values) or 1.0, 4, unit)
    low, high = marks[0], marks[-1]

    def x_of(seconds: float) -> float:
        return plot.x + (seconds - start_s) / (end_s - start_s) * plot.w

    def y_of(value: float) -> float:
        return plot.y + plot.h - (value - low) / (high - low) * plot.h

    for mark in marks:
        y = f"{y_of(mark):.1f}"
        yield f'<path class="grid" d="M{plot.x} {y}h{plot.w}"/>'
        yield (
            f'<text class="small" x="{plot.x - 5}" y="{y_of(mark) + 3.5:.1f}" '
            f'text-anchor="end">{escape(shown(mark, unit))}</text>'
        )
    for seconds in _times(start_s, end_s, plot.w):
        label = _clock(seconds)[:5]
        yield (
            f'<text class="small" x="{x_of(seconds):.1f}" y="{plot.y + plot.h + 13:.1f}" '
            f'text-anchor="middle">{label}</text>'
        )
    colors = _colors(panel, lines)
    below: Points = [(seconds, 0.0) for seconds, _ in layers[0]] if is_stacked else ()
    for points, color in zip(layers, colors, strict=True):
        if is_stacked:
            yield _area(points, below, color, x_of, y_of)
            below = points
        yield from _curve(points, color, x_of, y_of)
    yield from _legend(rows, colors, box)


def _stacked(lines: Sequence[Line]) -> list[Points]:
    """The lines one upon the other, at the times of all of them."""
    times = sorted({seconds for line in lines for seconds, _ in line.points})
    sums = dict.fromkeys(times, 0.0)
    layers: list[Points] = []
    for line in lines:
        for seconds, value in line.points:
            sums[seconds] += 0.0 if math.isnan(value) else value
        layers.append([(seconds, sums[seconds]) for seconds in times])
    return layers


def _times(start_s: float, end_s: float, width: float) -> list[float]:
    about = max(int(width / 70), 2)
    choices = (60, 120, 300, 600, 900, 1800, 3600)
    step = next((s for s in choices if (end_s - start_s) / s <= about), 7200)
    return [float(t) for t in range(math.ceil(start_s / step) * step, int(end_s) + 1, step)]


def _colors(panel: Mapping[str, Any], lines: Sequence[Line]) -> list[str]:
    free = iter(PALETTE * (len(lines) // len(PALETTE) + 1))
    used: dict[str, int] = {}
    found: list[str] = []
    for line in lines:
        color = ""
        for override in panel["fieldConfig"]["overrides"]:
            if re.search(override["matcher"]["options"], line.legend):
                color = COLORS[override["properties"][0]["value"]["fixedColor"]]
                break
        color = color or next(free)
        used[color] = used.get(color, 0) + 1
        found.append(_lighter(color, used[color] - 1))
    return found


def _lighter(color: str, times: int) -> str:
    """The same colour, told apart from those before."""
    share = 1 - 0.72**times
    parts = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * share * 0.8):02x}" for part in parts)


def _path(points: Points, x_of: Callable[[float], float], y_of: Callable[[float], float]) -> str:
    return "L".join(f"{x_of(s):.0f} {y_of(v):.1f}" for s, v in points)


def _runs(points: Points) -> Iterable[Points]:
    """The points without their gaps: where a value is missing for more than two steps."""
    there = [(s, v) for s, v in points if not math.isnan(v)]
    if not there:
        return
    step = min((b[0] - a[0] for a, b in pairwise(points)), default=1.0)
    begin = 0
    for index in range(1, len(there) + 1):
        if index == len(there) or there[index][0] - there[index - 1][0] > 2.5 * step:
            yield there[begin:index]
            begin = index


def _curve(
    points: Points, color: str, x_of: Callable[[float], float], y_of: Callable[[float], float]
) -> Iterable[str]:
    for run in _runs(points):
        if len(run) == 1:
            ((seconds, value),) = run
            at = f'cx="{x_of(seconds):.0f}" cy="{y_of(value):.1f}"'
            yield f'<circle {at} r="1.5" fill="{color}"/>'
        else:
            line = f'fill="none" stroke="{color}" stroke-width="1.4"'
            yield f'<path d="M{_path(run, x_of, y_of)}" {line}/>'


def _area(
    points: Points,
    below: Points,
    color: str,
    x_of: Callable[[float], float],
    y_of: Callable[[float], float],
) -> str:
    outline = f"M{_path(points, x_of, y_of)}L{_path(list(reversed(below)), x_of, y_of)}Z"
    return f'<path d="{outline}" fill="{color}" fill-opacity="0.35"/>'


Rows: TypeAlias = list[list[tuple[int, str, float]]]
"""Of the legend: index of a line, its text, and where in the row it begins."""


def _legend_rows(lines: Sequence[Line], width: float) -> Rows:
    rows: Rows = [[]]
    x = 0.0
    for index, line in enumerate(lines[:_MAX_LEGEND]):
        text = _cut(line.legend, width / 2 - 20, 5.9)
        wide = 5.9 * len(text) + 26
        if x + wide > width and rows[-1]:
            rows.append([])
            x = 0.0
        rows[-1].append((index, text, x))
        x += wide
    return rows[:3]


def _legend(rows: Rows, colors: Sequence[str], box: _Box) -> Iterable[str]:
    top = box.y + box.h - 13 * len(rows) + 3
    for number, row in enumerate(rows):
        y = top + 13 * number
        for index, text, at in row:
            x = box.x + 10 + at
            yield (
                f'<rect x="{x:.0f}" y="{y - 1:.0f}" width="10" height="3" fill="{colors[index]}"/>'
                f'<text class="small" x="{x + 14:.0f}" y="{y + 4:.0f}">{escape(text)}</text>'
            )
