"""The enforcement report as a response header, for clients that ask for it.

What is enforced without a note is counted only. A header has little room on its way through
proxies: what does not fit is left out, and `truncated` says so; the counts are of all.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

HEADER: Final = "x-toolrail-enforcement"
MAX_BYTES: Final = 2048


class _Keyword(msgspec.Struct):
    status: str


class _Line(msgspec.Struct):
    status: str
    keywords: dict[str, _Keyword] = {}
    reason: str | None = None
    checked: bool = True


class _Report(msgspec.Struct):
    held_by: str
    reason: str | None = None
    tools: dict[str, _Line] = {}
    response_format: _Line | None = None
    notes: list[str] = []


_decoder: Final = msgspec.json.Decoder(_Report)


@dataclass(slots=True)
class _Room:
    """What is still free of the header."""

    left: int
    truncated: bool = False

    def add(self, into: dict[str, Any], key: str, value: object) -> bool:
        """Put an entry into a JSON object, if there is room for it."""
        size = len(_ascii({key: value}))  # its braces are the comma's and more
        if size > self.left:
            self.truncated = True
            return False
        into[key] = value
        self.left -= size
        return True


def wanted(value: str | None) -> bool:
    """Whether a request header of this value asks for it."""
    return value is not None and value.strip().lower() in ("1", "true")


def header_value(report_json: str) -> bytes:
    """The report, at most `MAX_BYTES` of ASCII. O(report)."""
    report = _decoder.decode(report_json)
    lines = list(_lines(report))
    counts = Counter(known.status for _, _, line in lines for known in line.keywords.values())
    shown: dict[str, Any] = {"held_by": report.held_by, "keywords": counts}
    room = _Room(MAX_BYTES - len(_ascii({**shown, "truncated": True, "tools": {}})))
    if report.reason is not None:
        room.add(shown, "reason", report.reason)
    shown["tools"] = {}
    entries = [(line, _entry(shown, section, name, line, room)) for section, name, line in lines]
    for line, entry in entries:
        _add_keywords(entry, line, room)
    if report.notes:
        room.add(shown, "notes", report.notes)
    if room.truncated:
        shown["truncated"] = True
    return _ascii(shown)


def _lines(report: _Report) -> Iterable[tuple[str, str, _Line]]:
    if report.response_format is not None:
        yield "", "response_format", report.response_format
    for name, line in report.tools.items():
        yield "tools", name, line


def _entry(
    shown: dict[str, Any], section: str, name: str, line: _Line, room: _Room
) -> dict[str, Any] | None:
    entry: dict[str, Any] = {"status": line.status}
    if not line.checked:
        entry["checked"] = False
    return entry if room.add(shown[section] if section else shown, name, entry) else None


def _add_keywords(entry: dict[str, Any] | None, line: _Line, room: _Room) -> None:
    weak = {path: k.status for path, k in line.keywords.items() if k.status != "enforced"}
    if entry is None or not weak or not room.add(entry, "keywords", {}):
        return
    for path, status in weak.items():
        if not room.add(entry["keywords"], path, status):
            return


def _ascii(value: object) -> bytes:
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("\x7f", "\\u007f").encode("ascii")  # no control character in a header
