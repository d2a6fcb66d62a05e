"""Arguments as elements that nest, each tag behind a namespace marker, typed by the schema.

`]<]minimax[>[<city>Paris]<]minimax[>[</city>`: children make an object, under an array schema an
array, and so does a name that comes again. A tag without the marker is data. What a broken element
took down is lost, what came before it is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, auto
from typing import Final

from toolrail.arguments.json_value import Read
from toolrail.arguments.nested_types import NestedTypes
from toolrail.arguments.output import Output
from toolrail.arguments.types import ParameterTypes, json_string, json_text
from toolrail.scan import Buffer, Markers, marker_set
from toolrail.syntax import NotationStyle

MAX_DEPTH: Final = 128
"""Elements inside each other; deeper ones are broken."""
MIXED_TEXT: Final = "$text"
"""The key of text that stands beside child elements."""
_MAX_NAME: Final = 1_000
"""Longest tag that is still taken for one."""


@dataclass(slots=True)
class _Element:
    name: str
    text: list[str] = field(default_factory=list[str])
    children: list[_Element] = field(default_factory=list["_Element"])


class _At(IntEnum):  # hashed for every piece of text, which an Enum does in Python
    BETWEEN = auto()  # between parameters
    INSIDE = auto()  # in an element
    LOST = auto()  # after something broken


class ElementArguments:
    """Reads the parameters of one call; what ends the call is left unread.

    `ends`: markers that end the call or begin another, wherever they stand. `held`: a grammar wrote
    the elements, so each parameter is put out as it comes; else all of them at the end, because a
    name that comes again makes a list of what came before. Amortised O(characters).
    """

    def __init__(
        self,
        style: NotationStyle,
        types: ParameterTypes,
        output: Output,
        ends: tuple[str, ...],
        *,
        held: bool = False,
    ) -> None:
        self._output: Final = output
        self._held: Final = held
        self._types: Final = NestedTypes(types, (types.root,))
        self._marker: Final = style.values.guard
        self._markers: Final = marker_set(self._marker)
        self._ends: Final = Markers(ends)
        self._at = _At.BETWEEN
        self._open: list[_Element] = []
        self._read: list[_Element] = []
        self._streams = False
        self._count = 0

    def read(self, buffer: Buffer, *, final: bool = False) -> Read:
        """Read on. DONE: something that ends the call comes next."""
        steps = {
            _At.BETWEEN: self._read_between,
            _At.INSIDE: self._read_inside,
            _At.LOST: self._read_lost,
        }
        while True:
            status = steps[self._at](buffer)
            if status is not None:
                return status

    def close(self) -> None:
        """Put out what is left of the arguments object."""
        for name, value in _merged(self._read, self._types):
            self._put(name, value)
        self._output.arguments("}" if self._count else "{}")

    def _read_between(self, buffer: Buffer) -> Read | None:
        buffer.skip_space()
        ahead = buffer.peek(len(self._marker))
        if ahead != self._marker:
            if self._marker.startswith(ahead):
                return Read.MORE
            self._at = _At.LOST
            return None
        return self._read_tag(buffer)

    def _read_inside(self, buffer: Buffer) -> Read | None:
        text, marker = buffer.until(self._markers)
        if self._streams:
            self._output.arguments(json_string(text)[1:-1])
        elif text:
            self._open[-1].text.append(text)
        return self._read_tag(buffer) if marker is not None else Read.MORE

    def _read_lost(self, buffer: Buffer) -> Read | None:
        _, end = buffer.until(self._ends)
        return Read.MORE if end is None else Read.DONE

    def _read_tag(self, buffer: Buffer) -> Read | None:
        """The tag behind the marker that comes next."""
        window, start = buffer.window, buffer.pos
        ahead = window[start : start + self._ends.longest]
        if self._ends.grows(ahead):
            return Read.MORE
        found = self._ends.search(ahead)
        if found is not None and found[0] == 0:
            return self._end(buffer)
        opening = start + len(self._marker)
        if opening == len(window):
            return Read.MORE
        end = window.find(">", opening, opening + _MAX_NAME)
        if window[opening] == "<" and end < 0 and len(window) - opening < _MAX_NAME:
            return Read.MORE
        name = window[opening + 1 : end] if window[opening] == "<" and end > 0 else ""
        if not self._take(name):
            self._break()
            return None
        buffer.take(end + 1 - start)
        return None

    def _take(self, tag: str) -> bool:
        """Open or close an element; False when that cannot be."""
        if tag.startswith("/"):
            return bool(self._open) and self._open[-1].name == tag[1:] and self._close_element()
        if not tag.strip() or len(self._open) == MAX_DEPTH or self._streams:
            return False
        self._open.append(_Element(tag))
        self._at = _At.INSIDE
        if self._held and len(self._open) == 1:
            types = self._types.member(tag).types
            self._streams = types.text_only and types.kinds is not None
        if self._streams:
            self._put(tag, '"')
        return True

    def _close_element(self) -> bool:
        element = self._open.pop()
        if self._streams:
            self._output.arguments('"')
            self._streams = False
        elif self._open:
            self._open[-1].children.append(element)
        elif self._held:
            self._put(element.name, _json(element, self._types.member(element.name)))
        else:
            self._read.append(element)
        if not self._open:
            self._at = _At.BETWEEN
        return True

    def _end(self, buffer: Buffer) -> Read:
        """The end of the call; an element that is open then is broken."""
        self._break()
        return Read.DONE

    def _break(self) -> None:
        if self._streams:
            self._output.arguments('"')
        self._streams = False
        self._open = []
        self._at = _At.LOST

    def _put(self, name: str, value: str) -> None:
        opening = ", " if self._count else "{"
        self._count += 1
        self._output.arguments(f"{opening}{json_string(name)}: {value}")


def _json(element: _Element, types: NestedTypes) -> str:
    """An element as JSON text. Recursion is as deep as elements may be."""
    text = "".join(element.text)
    if not element.children:
        return _leaf(text, types)
    kinds = types.types.kinds or frozenset()
    items = all(child.name == "item" for child in element.children)
    if "array" in kinds and ("object" not in kinds or items) and not text.strip():
        inner = (_json(child, types.items()) for child in element.children)
        return f"[{', '.join(inner)}]"
    members = _merged(element.children, types)
    if text.strip():
        key = MIXED_TEXT
        while any(name == key for name, _ in members):
            key = "$" + key
        members.append((key, json_string(text)))
    return "{" + ", ".join(f"{json_string(name)}: {value}" for name, value in members) + "}"


def _leaf(text: str, types: NestedTypes) -> str:
    kinds = types.types.kinds or frozenset()
    if not text.strip() and "string" not in kinds and kinds & {"array", "object"}:
        return "[]" if "array" in kinds else "{}"
    return json_text(text, types.types)


def _merged(elements: list[_Element], types: NestedTypes) -> list[tuple[str, str]]:
    """Members by name in order of first appearance; a name that comes again is a list."""
    found: dict[str, list[str]] = {}
    for element in elements:
        value = _json(element, types.member(element.name))
        found.setdefault(element.name, []).append(value)
    return [
        (name, values[0] if len(values) == 1 else f"[{', '.join(values)}]")
        for name, values in found.items()
    ]
