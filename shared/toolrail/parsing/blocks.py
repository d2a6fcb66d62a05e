"""Readers of tool markup: from just after an opener to the end of what it opened.

`ObjectsBlock` reads calls that are JSON objects; `CallBlock` reads calls spelled in parts (markers,
name, arguments). Both are made from a family's `Syntax`; a family that neither fits writes its own
`Block` and gets the rest of the machine all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, auto
from typing import Final, Literal, Protocol, TypeAlias

from toolrail.arguments.delimited import DelimitedArguments
from toolrail.arguments.elements import ElementArguments
from toolrail.arguments.json_calls import CallObjects
from toolrail.arguments.json_value import JsonValue, Read
from toolrail.arguments.output import Output
from toolrail.arguments.types import ToolTypes
from toolrail.arguments.xml import XmlArguments
from toolrail.parsing.shapes import CallShape, closers
from toolrail.scan import Ahead, Buffer, words
from toolrail.syntax import NotationStyle, Objects, Syntax, XmlStyle

_Arguments: TypeAlias = XmlArguments | DelimitedArguments | ElementArguments


class Block(Protocol):
    """Reads one piece of tool markup, its opener consumed.

    BAD with `begun` false: this was no call after all, nothing was put out. BAD with `begun` true:
    a call broke off. MORE at the end of the stream: it was cut. DONE: over; the buffer stands after
    it. Calls it leaves open are ended incomplete by the machine.
    """

    @property
    def begun(self) -> bool:
        """Whether a call (or a list of calls) certainly began."""
        ...

    def read(self, buffer: Buffer, *, final: bool = False) -> Read:
        """Read on."""
        ...


@dataclass(frozen=True, slots=True)
class Reading:
    """What a block reads with.

    Attributes:
        output: where it puts the calls.
        tools: the offered tools and the types of their parameters.
        careful: only what is certainly a call may begin: a header whose tool is offered or that
            call structure follows (bare calls, calls inside reasoning).
        held: a structural tag holds the output (`ParseSpec.held`).
    """

    output: Output
    tools: ToolTypes
    careful: bool = False
    held: bool = False


class ObjectsBlock:
    """Calls as JSON objects, up to the section's closer."""

    def __init__(self, keys: Objects, syntax: Syntax, output: Output) -> None:
        self._output: Final = output
        self._required: Final = syntax.closer_required
        self._closers: Final = closers(syntax)
        self._calls: Final = CallObjects(
            keys,
            output,
            end_last=not syntax.closer_required,
            in_array=syntax.section is not None and syntax.section.word,
            separators=",;" if self._closers or keys.array else keys.separator.strip(),
        )
        self._closer: Final = Closer([words(closer) for closer in self._closers])
        self._closing = False

    @property
    def begun(self) -> bool:
        """Whether an object (or an array) began."""
        return self._calls.begun

    def read(self, buffer: Buffer, *, final: bool = False) -> Read:
        """Read on."""
        if not self._closing:
            status = self._calls.read(buffer, final=final)
            if status is not Read.DONE:
                return status
            self._closing = True
        return self._read_close(buffer, final=final)

    def _read_close(self, buffer: Buffer, *, final: bool) -> Read:
        if not self._closers:
            self._output.end()
            return Read.DONE
        closed = self._closer.read(buffer, final=final)
        if closed is None:
            return Read.MORE
        self._output.end(complete=closed or not self._required)
        return Read.DONE


class _At(IntEnum):  # hashed for every piece of text, which an Enum does in Python
    SECTION = auto()  # inside a section, between calls
    HEADER = auto()  # from the call's opener to its arguments
    AFTER_NAME = auto()  # the literals between header and arguments
    BELIEVE = auto()  # whether the header is one
    ARGUMENTS = auto()
    CLOSE = auto()


class CallBlock:
    """Calls in parts, with or without the section around them.

    `where` it begins: in a `section`, after a `call`'s own opener, or `resumed` in a section of
    which a call broke off.
    """

    def __init__(
        self,
        shape: CallShape,
        reading: Reading,
        *,
        where: Literal["section", "call", "resumed"],
    ) -> None:
        self._shape: Final = shape
        self._output: Final = reading.output
        self._tools: Final = reading.tools
        self._in_section: Final = where != "call"
        self._careful: Final = reading.careful
        self._held: Final = reading.held
        self._at = _At.HEADER if where == "call" else _At.SECTION
        self._header: list[str] = []
        self._name = ""
        self._id: str | None = None
        self._args: JsonValue | _Arguments | None = None
        self._ahead: Final = Ahead()
        self._closer: Final = Closer([shape.close])
        self._calls = int(where == "resumed")
        self._begun = where == "resumed"

    @property
    def begun(self) -> bool:
        """Whether a call began."""
        return self._begun

    def read(self, buffer: Buffer, *, final: bool = False) -> Read:
        """Read on."""
        steps = {
            _At.SECTION: self._read_section,
            _At.HEADER: self._read_header,
            _At.AFTER_NAME: self._read_after_name,
            _At.BELIEVE: self._read_belief,
            _At.ARGUMENTS: self._read_arguments,
            _At.CLOSE: self._read_close,
        }
        while True:
            status = steps[self._at](buffer, final)
            if status is not None:
                return status

    def _read_section(self, buffer: Buffer, final: bool) -> Read | None:
        shape = self._shape
        self._ahead.skip_space(buffer)
        rest = buffer.peek(shape.between.longest)
        undecided = not rest or shape.between.grows(rest)
        if undecided and not final:
            return Read.MORE
        hit = shape.between.search(rest)
        if hit is None or hit[0] != 0:
            self._ahead.give_back(buffer)
            if not rest and not self._calls:
                return Read.MORE
            return Read.DONE if self._calls else Read.BAD
        self._ahead.settle()
        buffer.take(len(hit[1]))
        if hit[1] in shape.section_ends:
            return Read.DONE
        if hit[1] == shape.opener:
            self._at = _At.HEADER
            self._header = []
        return None

    def _read_header(self, buffer: Buffer, final: bool) -> Read | None:
        if not self._header:
            buffer.skip_space()
        text, terminator = buffer.until(self._shape.terminators, final=final)
        if text:
            self._header.append(text)
        so_far = "".join(self._header)
        breaks_at = self._shape.breaks_at(so_far)
        if breaks_at is not None:
            buffer.give_back(so_far[breaks_at:])
            return Read.BAD
        if terminator is None:
            return Read.BAD if final else Read.MORE
        header = self._shape.header(so_far)
        if header is None:
            return Read.BAD
        self._name, self._id = header
        self._at = _At.AFTER_NAME
        return None

    def _read_after_name(self, buffer: Buffer, final: bool) -> Read | None:
        buffer.skip_space()
        matched = buffer.literal(self._shape.after_name, final=final)
        if matched is None:
            return Read.MORE
        self._at = _At.BELIEVE
        return None if matched else Read.BAD

    def _read_belief(self, buffer: Buffer, final: bool) -> Read | None:
        shape = self._shape
        if self._careful and self._name not in self._tools:
            follows = _comes(buffer, shape.structure, final=final)
            if not follows:
                return Read.BAD if follows is False else Read.MORE
        self._begun = True
        self._output.start(self._name, self._id)
        self._args = None
        self._at = _At.ARGUMENTS
        return None

    def _read_arguments(self, buffer: Buffer, final: bool) -> Read | None:
        if self._args is None and not self._begin_arguments(buffer):
            return Read.MORE
        if self._args is None or isinstance(self._args, JsonValue):
            status = self._read_json(buffer, final)
        else:
            status = self._args.read(buffer, final=final)
        if status is not Read.DONE:
            return status
        if isinstance(self._args, (XmlArguments, ElementArguments)):
            self._args.close()
        self._calls += 1
        if not self._shape.syntax.closer_required:
            self._output.end()
        self._at = _At.CLOSE
        return None

    def _begin_arguments(self, buffer: Buffer) -> bool:
        """Choose the reader by the style (none yet: JSON); False when more text decides."""
        shape, style = self._shape, self._shape.style
        if isinstance(style, NotationStyle) and style.reads == "delimited":
            self._args = DelimitedArguments(style, self._output, (shape.opener, *shape.close))
        elif isinstance(style, NotationStyle):
            ends = (*shape.close, *shape.between.texts)
            types, held = self._tools.of(self._name), self._held
            self._args = ElementArguments(style, types, self._output, ends, held=held)
        if not isinstance(style, XmlStyle):
            return True
        if style.json_body:
            buffer.skip_space()
            if not len(buffer):
                return False
        if not style.json_body or buffer.peek() != "{":
            types, held = self._tools.of(self._name), self._held
            self._args = XmlArguments(style, types, self._output, held=held)
        return True

    def _read_json(self, buffer: Buffer, final: bool) -> Read:
        if self._args is None:
            empty = _comes(buffer, self._shape.close[:1], final=final)
            if empty is None:
                return Read.MORE
            if empty:
                self._output.arguments("{}")
                return Read.DONE
            if buffer.peek() != "{":
                return Read.BAD
            self._args = JsonValue()
        assert isinstance(self._args, JsonValue)
        self._output.arguments(self._args.read(buffer, final=final))
        return self._args.status

    def _read_close(self, buffer: Buffer, final: bool) -> Read | None:
        closed = self._closer.read(buffer, final=final)
        if closed is None:
            return Read.MORE
        if not closed and self._shape.syntax.closer_required:
            return Read.MORE if final and not buffer.text.strip() else Read.BAD
        self._output.end()
        if not self._in_section:
            return Read.DONE
        self._at = _At.SECTION
        return None


class Closer:
    """Reads what may end a body: one of `ends`, each of them words with whitespace between them.

    Whitespace and surplus closing brackets before it are consumed with it: small models often write
    one brace too many; what comes before it is complete all the same.
    """

    __slots__ = ("_ahead", "_ends")

    def __init__(self, ends: Sequence[tuple[str, ...]]) -> None:
        self._ends: Final = ends
        self._ahead: Final = Ahead()

    def read(self, buffer: Buffer, *, final: bool) -> bool | None:
        """Whether an end came. False: something else comes, nothing was consumed; None: more text.

        What the end of the stream left of an end is consumed, but is none.
        """
        while True:
            self._ahead.skip_space(buffer)
            partial = False
            for end in self._ends:
                came = buffer.literal(end)
                if came:
                    self._ahead.settle()
                    return True
                partial = partial or came is None
            # An end may begin with a bracket itself, so it is looked for first.
            if partial or buffer.peek() not in ("}", "]"):
                break
            self._ahead.take(buffer, 1)
        if partial and not final:
            return None
        if partial and len(buffer):
            buffer.take(len(buffer))
            self._ahead.settle()
        self._ahead.give_back(buffer)
        return False


def _comes(buffer: Buffer, markers: tuple[str, ...], *, final: bool) -> bool | None:
    """Whether one of `markers` comes next; whitespace before it is consumed, nothing else."""
    buffer.skip_space()
    ahead = buffer.peek(max(map(len, markers), default=0))
    if ahead.startswith(markers):
        return True
    return None if not final and any(m.startswith(ahead) for m in markers) else False
