"""The memory of processes over time as an SVG document, small enough to keep with the docs."""

from __future__ import annotations

import colorsys
from collections.abc import Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

from benchmarks.footprint import Footprint

_WIDTH: Final = 960
_HEIGHT: Final = 480
_MARGIN: Final = 60
_LABEL_HEIGHT: Final = 13
_POINTS: Final = 240


def plot(seconds: Sequence[float], held: Mapping[str, Sequence[Footprint]], warm_up: float) -> str:
    """One line a process, labelled with what it held at the end; the warm-up in grey."""
    series = {name: [one.resident_bytes / 2**20 for one in values] for name, values in held.items()}
    top = max((max(values) for values in series.values()), default=1.0) * 1.1
    end_s = max(seconds[-1], 1.0)
    step = max(1, len(seconds) // _POINTS)
    lines: list[str] = []
    below = _HEIGHT + 4.0
    for number, (name, values) in enumerate(sorted(series.items(), key=lambda item: item[1][-1])):
        color = _color(number, len(series))
        points = " ".join(
            f"{_MARGIN + second / end_s * _WIDTH:.0f},{_HEIGHT * (1 - value / top):.1f}"
            for second, value in zip(seconds[::step], values[::step], strict=True)
        )
        lines.append(f'<polyline fill="none" stroke="{color}" points="{points}"/>')
        below = min(_HEIGHT * (1 - values[-1] / top) + 4, below - _LABEL_HEIGHT)
        label = escape(f"{name}: {values[0]:.0f} → {values[-1]:.0f} MiB")
        x = _WIDTH + _MARGIN + 6
        lines.append(f'<text x="{x}" y="{below:.0f}" fill="{color}">{label}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH + 5 * _MARGIN}"'
        f' height="{_HEIGHT + 30}" font-family="sans-serif" font-size="11">'
        f'<rect width="100%" height="100%" fill="#fff"/>'
        f'<rect x="{_MARGIN}" width="{_WIDTH * warm_up:.0f}" height="{_HEIGHT}" fill="#eee"/>'
        f"{_axes(top, end_s)}{''.join(lines)}</svg>\n"
    )


def _axes(top: float, end_s: float) -> str:
    marks = [
        f'<text x="4" y="{_HEIGHT * (1 - part):.0f}" dy="11">{top * part:.0f} MiB</text>'
        for part in (0.25, 0.5, 0.75, 1.0)
    ]
    times = [
        f'<text x="{_MARGIN + _WIDTH * part:.0f}" y="{_HEIGHT + 16}" text-anchor="middle">'
        f"{end_s * part / 60:.1f} min</text>"
        for part in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    frame = f'<path d="M{_MARGIN} 0V{_HEIGHT}H{_WIDTH + _MARGIN}" fill="none" stroke="#888"/>'
    return "".join([*marks, *times, frame])


def _color(number: int, of: int) -> str:
    parts = colorsys.hls_to_rgb(number / max(1, of), 0.4, 0.7)
    return "#" + "".join(f"{round(part * 255):02x}" for part in parts)
