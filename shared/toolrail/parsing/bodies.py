"""Readers of what a message to a tool says, where its header has named the tool."""

from __future__ import annotations

from typing import Final

from toolrail.arguments.json_value import JsonValue, Read
from toolrail.arguments.xml import XmlArguments
from toolrail.parsing.blocks import Reading
from toolrail.scan import Buffer
from toolrail.syntax import ArgumentStyle, XmlStyle


class NoCall:
    """The body of a message to something that is no offered tool: it shows nowhere."""

    @property
    def begun(self) -> bool:
        """Never."""
        return False

    def read(self, buffer: Buffer, *, final: bool = False) -> Read:
        """Nothing of it is read."""
        return Read.BAD


class ArgumentsBlock:
    """The body of a call whose header named it: the arguments and nothing else.

    `ends`: what may follow them. A body without any is a call without arguments.
    """

    def __init__(
        self, name: str, style: ArgumentStyle, ends: tuple[str, ...], reading: Reading
    ) -> None:
        self._name: Final = name
        self._style: Final = style
        self._ends: Final = ends
        self._reading: Final = reading
        self._arguments: JsonValue | XmlArguments | None = None

    @property
    def begun(self) -> bool:
        """Whether the call began."""
        return self._arguments is not None

    def read(self, buffer: Buffer, *, final: bool = False) -> Read:
        """Read on."""
        output = self._reading.output
        if self._arguments is None:
            status = self._read_opening(buffer, final)
            if status is not None:
                return status
        if isinstance(self._arguments, JsonValue):
            output.arguments(self._arguments.read(buffer, final=final))
            status = self._arguments.status
        else:
            assert self._arguments is not None
            status = self._arguments.read(buffer, final=final)
            if status is Read.DONE:
                self._arguments.close()
        if status is Read.DONE:
            output.end()
        return status

    def _read_opening(self, buffer: Buffer, final: bool) -> Read | None:
        """Start the call if its arguments, or its end, come next; else say what is the case."""
        buffer.skip_space()
        output = self._reading.output
        opening = self._style.open if isinstance(self._style, XmlStyle) else "{"
        ahead = buffer.peek(max(map(len, (opening, *self._ends))))
        if ahead.startswith(opening):
            output.start(self._name)
            self._arguments = self._reader()
            return None
        if ahead.startswith(self._ends) or (final and not ahead):
            output.start(self._name)
            output.arguments("{}")
            output.end()
            return Read.DONE
        if not final and any(m.startswith(ahead) for m in (opening, *self._ends)):
            return Read.MORE
        return Read.BAD

    def _reader(self) -> JsonValue | XmlArguments:
        if not isinstance(self._style, XmlStyle):
            return JsonValue()
        reading = self._reading
        types = reading.tools.of(self._name)
        return XmlArguments(self._style, types, reading.output, held=reading.held)
