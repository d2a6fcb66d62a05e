"""Calls written as JSON objects: name and arguments found in any key order, arguments verbatim.

`{"name": "get_weather", "arguments": {"city": "Paris"}}`, one or several, with or without the
brackets of an array. Not `json.loads` of the whole: arguments are the model's bytes and stream as
they come.
"""

from __future__ import annotations

import json
from enum import Enum, auto
from typing import Final, Literal, TypeAlias

from toolrail.arguments.json_value import JsonValue, Read
from toolrail.arguments.output import Output
from toolrail.scan import Ahead, Buffer
from toolrail.syntax import Objects

_Role: TypeAlias = Literal["key", "name", "arguments", "id", "other"]


class _At(Enum):
    OPEN = auto()
    FIRST_KEY = auto()
    KEY = auto()
    COLON = auto()
    VALUE = auto()
    COMMA = auto()


class CallObject:
    """Reads one call object and starts its call once the name is known.

    It never ends the call: what ends it is the caller's decision. DONE without an open call is an
    object that names none (BAD if `strict`, as is one without arguments). With an `id` key nothing
    is put out before the object is complete, because ids often come last. Amortised O(characters).
    """

    __slots__ = (
        "_at",
        "_held",
        "_id",
        "_key",
        "_keys",
        "_name",
        "_output",
        "_read_arguments",
        "_role",
        "_strict",
        "_text",
        "_value",
    )

    def __init__(self, keys: Objects, output: Output, *, strict: bool = False) -> None:
        self._keys: Final = keys
        self._output: Final = output
        self._strict: Final = strict
        self._at = _At.OPEN
        self._key = ""
        self._name = ""
        self._id = ""
        self._value: JsonValue | None = None
        self._role: _Role = "other"
        self._text: list[str] = []
        self._held: list[str] = []  # arguments that came before the call could start
        self._read_arguments = False

    def read(self, buffer: Buffer, *, final: bool = False) -> Read:
        """Read on. BAD: not a call object, or its arguments are no object."""
        while True:
            if self._value is not None:
                status = self._read_value(self._value, buffer, final=final)
            else:
                status = self._read_between(buffer)
            if status is not None:
                return status

    def _read_between(self, buffer: Buffer) -> Read | None:
        buffer.skip_space()
        character = buffer.peek()
        if not character:
            return Read.MORE
        match self._at, character:
            case _At.OPEN, "{":
                self._at = _At.FIRST_KEY
            case _At.COLON, ":":
                self._at = _At.VALUE
            case _At.COMMA, ",":
                self._at = _At.KEY
            case ((_At.COMMA | _At.FIRST_KEY), "}"):
                buffer.take(1)
                return self._finish()
            case ((_At.FIRST_KEY | _At.KEY | _At.VALUE), _):
                self._begin_value()
                return None
            case _:
                return Read.BAD
        buffer.take(1)
        return None

    def _begin_value(self) -> None:
        self._value = JsonValue()
        self._text = []
        keys = self._keys
        if self._at is not _At.VALUE:
            self._role = "key"
        elif self._key in keys.arguments and not self._read_arguments:
            self._role = "arguments"
        elif self._key == keys.name and not self._name:
            self._role = "name"
        else:
            self._role = "id" if keys.id and self._key == keys.id else "other"

    def _read_value(self, value: JsonValue, buffer: Buffer, *, final: bool) -> Read | None:
        text = value.read(buffer, final=final)
        if self._role == "arguments":
            if value.first not in ("{", "n", ""):
                return Read.BAD
            if value.first == "{":
                self._put(text)
        elif self._role != "other":
            self._text.append(text)
        if value.status is not Read.DONE:
            return value.status
        self._value = None
        return self._end_value(value.first)

    def _put(self, arguments: str) -> None:
        if self._output.in_call:
            self._output.arguments(arguments)
        else:
            self._held.append(arguments)

    def _end_value(self, first: str) -> Read | None:
        string = json.loads("".join(self._text)) if first == '"' and self._text else ""
        role, self._at = self._role, _At.COMMA
        if role == "key":
            self._key, self._at = string, _At.COLON
            return None if first == '"' else Read.BAD
        if role == "arguments":
            self._read_arguments = first == "{"
        elif role == "id":
            self._id = string
        elif role == "name":
            self._name = string
            if not string:
                return Read.BAD
            if not self._keys.id:
                self._start()
        return None

    def _start(self) -> None:
        self._output.start(self._name, self._id or None)
        for text in self._held:
            self._output.arguments(text)
        self._held.clear()

    def _finish(self) -> Read:
        if self._strict and not (self._name and self._read_arguments):
            return Read.BAD
        if self._name and not self._output.in_call:
            self._start()
        if self._name and not self._read_arguments:
            self._output.arguments("{}")
        return Read.DONE


class CallObjects:
    """Reads a body of call objects up to what can no longer belong to it.

    DONE: the body is over; `ended` says whether its own end was seen: the array's bracket or, for
    bare objects, simply the last object's brace. Whitespace after it is left unread. BAD before any
    object began: `begun` is false, this was no body. Every object that names a call is ended
    complete, the last one only if `end_last`. `strict`: every object must be a whole call.
    `in_array`: the array's bracket was read already. `separators`: the characters that may stand
    between two objects; bare objects need none where both are allowed.
    """

    __slots__ = (
        "_ahead",
        "_array",
        "_end_last",
        "_keys",
        "_object",
        "_opened",
        "_output",
        "_separated",
        "_separators",
        "_strict",
        "begun",
        "ended",
    )

    def __init__(  # noqa: PLR0913 - the ways in which a body may be written
        self,
        keys: Objects,
        output: Output,
        *,
        end_last: bool = True,
        strict: bool = False,
        in_array: bool = False,
        separators: str = ",;",
    ) -> None:
        self._separators: Final = separators
        self._keys: Final = keys
        self._output: Final = output
        self._strict: Final = strict
        self._end_last: Final = end_last
        self._ahead: Final = Ahead()
        self._object: CallObject | None = None
        self._array = in_array
        self._opened = False
        self._separated = False
        self.begun = False
        self.ended = False

    def read(self, buffer: Buffer, *, final: bool = False) -> Read:
        """Read on."""
        while True:
            if self._object is None:
                status = self._read_between(buffer, final=final)
            else:
                status = self._object.read(buffer, final=final)
                if status is Read.DONE:
                    status = None
                    self._object = None
                    self.ended = not self._array
                    if self._end_last:
                        self._output.end()
            if status is not None:
                return status

    def _read_between(self, buffer: Buffer, *, final: bool) -> Read | None:
        if not self._opened:
            return self._read_opening(buffer)
        ahead = self._ahead
        ahead.skip_space(buffer)
        following = buffer.peek()
        if following and following in self._separators and not self._separated:
            ahead.take(buffer, 1)
            self._separated = True
            return None
        if not following and not final:
            return Read.MORE
        separated, self._separated = self._separated, False
        glued = not self._array and len(self._separators) > 1
        if following == "{" and (separated or glued):
            ahead.settle()
            self._output.end()
            self._object = CallObject(self._keys, self._output, strict=self._strict)
            return None
        if self._array and following == "]" and not separated:
            ahead.settle()
            buffer.take(1)
            self._array, self.ended = False, True
            return Read.DONE
        ahead.give_back(buffer)
        return Read.BAD if self._array and not final else Read.DONE

    def _read_opening(self, buffer: Buffer) -> Read | None:
        buffer.skip_space()
        first = buffer.peek()
        if not first:
            return Read.MORE
        if first == "[" and not self._array:
            buffer.take(1)
            self._array = True
            return None
        empty = self._array and first == "]"
        if first != "{" and not empty:
            return Read.BAD
        self.begun = self._opened = True
        if empty:
            buffer.take(1)
            self._array, self.ended = False, True
            return Read.DONE
        self._object = CallObject(self._keys, self._output, strict=self._strict)
        return None
