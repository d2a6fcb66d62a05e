"""XTML, the channels of Kimi K3: their spellings, and the reader of a tools channel.

`<|open|>call tool="f" index="1"<|sep|>…<|close|>call<|sep|>`. Three special tokens carry the
structure; names and attributes between them are plain text, names with or without a space on each
side. See `toolrail.families.kimi_k3` for the format as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum, auto
from typing import Final, TypeAlias

from toolrail.arguments.json_value import JsonValue, Read
from toolrail.arguments.types import json_kind, json_string, without_raw_controls
from toolrail.parsing.blocks import Reading
from toolrail.scan import Ahead, Buffer, Markers

OPEN: Final = "<|open|>"
CLOSE: Final = "<|close|>"
SEP: Final = "<|sep|>"
END_OF_MESSAGE: Final = "<|end_of_msg|>"


def spellings(bracket: str, name: str) -> tuple[str, ...]:
    """Every spelling of a channel's opener or closer, the canonical one first."""
    spaces = (("", ""), (" ", " "), (" ", ""), ("", " "))
    return tuple(f"{bracket}{left}{name}{right}{SEP}" for left, right in spaces)


THINK: Final = spellings(OPEN, "think")
THINK_END: Final = spellings(CLOSE, "think")
RESPONSE: Final = spellings(OPEN, "response")
RESPONSE_END: Final = spellings(CLOSE, "response")
TOOLS: Final = spellings(OPEN, "tools")
TOOLS_END: Final = spellings(CLOSE, "tools")
MESSAGE_END: Final = spellings(CLOSE, "message")
CALLS: Final = (f"{OPEN}call ", f"{OPEN} call ")
"""How a call's opener begins; its attributes follow."""
ENTITIES: Final = (("&", "&amp;"), ('"', "&quot;"))
"""What characters of an attribute are written as, in the order of writing."""
CALL_END: Final = f"{CLOSE}call{SEP}"
ARGUMENT: Final = f'{OPEN}argument key="'
ARGUMENT_END: Final = f"{CLOSE}argument{SEP}"
JSON_END: Final = f"{CLOSE}json{SEP}"
_MAX_ATTRIBUTES: Final = 1_000
"""Longest text between a name and `<|sep|>` that is still taken for attributes."""
_ATTRIBUTE: Final = re.compile(r'(\w+)="([^"]*)"')
_CONTROLS: Final = Markers([OPEN, CLOSE, SEP])
_CLOSES: Final = Markers([CLOSE])
_JSON_TYPES: Final = frozenset({"number", "integer", "boolean", "null", "object", "array"})
_Words: TypeAlias = tuple[str, ...]
_NOTHING: Final[_Words] = ()
_CALL: Final[_Words] = (OPEN, "call")
_ARGUMENT: Final[_Words] = (OPEN, "argument")
_JSON: Final[_Words] = (OPEN, "json")
_CALL_CLOSED: Final[_Words] = (CLOSE, "call", SEP)
_TOOLS_CLOSED: Final[_Words] = (CLOSE, "tools", SEP)
_ARGUMENT_CLOSED: Final[_Words] = (CLOSE, "argument", SEP)
_JSON_CLOSED: Final[_Words] = (CLOSE, "json", SEP)


class _At(IntEnum):  # hashed for every piece of text, which an Enum does in Python
    BETWEEN = auto()  # in the tools channel, between calls
    ATTRIBUTES = auto()  # of a call
    BELIEVE = auto()  # whether the call is one
    BODY = auto()
    ARGUMENT = auto()  # its attributes
    VALUE = auto()
    JSON_ATTRIBUTES = auto()
    JSON = auto()
    JSON_END = auto()


class CallsBlock:
    """The calls of a tools channel, or one call without it. See `parsing.blocks.Block`."""

    def __init__(self, reading: Reading, *, in_channel: bool, resumed: bool = False) -> None:
        self._output: Final = reading.output
        self._tools: Final = reading.tools
        self._in_channel: Final = in_channel
        self._careful: Final = reading.careful or not in_channel
        self._at = _At.BETWEEN if in_channel else _At.ATTRIBUTES
        self._skips = resumed  # whether what is left of a broken call may come
        self._begun = resumed
        self._ahead: Final = Ahead()
        self._attributes: list[str] = []
        self._name = ""
        self._keys: set[str] = set()
        self._type = ""
        self._raw: list[str] = []
        self._closer = _ARGUMENT_CLOSED  # spaced only where the opener was: else such text is data
        self._json = JsonValue()

    @property
    def begun(self) -> bool:
        """Whether a call began."""
        return self._begun

    def read(self, buffer: Buffer, *, final: bool = False) -> Read:
        """Read on."""
        steps = {
            _At.BETWEEN: self._read_between,
            _At.ATTRIBUTES: self._read_call,
            _At.BELIEVE: self._read_belief,
            _At.BODY: self._read_body,
            _At.ARGUMENT: self._read_argument,
            _At.VALUE: self._read_value,
            _At.JSON_ATTRIBUTES: self._read_json_attributes,
            _At.JSON: self._read_json,
            _At.JSON_END: self._read_json_end,
        }
        while True:
            status = steps[self._at](buffer, final)
            if status is not None:
                return status

    def _read_between(self, buffer: Buffer, final: bool) -> Read | None:
        self._ahead.skip_space(buffer)
        found = _next(buffer, (_CALL, _TOOLS_CLOSED, _CALL_CLOSED), final=final)
        if found is None:
            return Read.MORE
        if found == _NOTHING and not self._skips:
            self._ahead.give_back(buffer)
        self._ahead.settle()
        if found is _CALL:
            self._at, self._attributes, self._skips = _At.ATTRIBUTES, [], False
        elif found is _TOOLS_CLOSED:
            return Read.DONE
        elif found == _NOTHING and not self._skips:
            return Read.DONE if self._begun else Read.BAD
        elif found == _NOTHING:
            return self._skip(buffer, final)
        return None

    def _skip(self, buffer: Buffer, final: bool) -> Read | None:
        """Drop what is left of a broken call, up to the next control token that is not its own."""
        _, control = buffer.until(_CONTROLS, final=final)
        if control is None:
            return Read.DONE if final else Read.MORE
        inside = (_ARGUMENT, _JSON, _ARGUMENT_CLOSED, _JSON_CLOSED, (SEP,))
        found = _next(buffer, (_CALL, _CALL_CLOSED, _TOOLS_CLOSED), final=final, take=False)
        if found is _NOTHING:
            found = _next(buffer, inside, final=final)
        if found is None:
            return Read.MORE
        return Read.DONE if found is _NOTHING else None

    def _read_attributes(self, buffer: Buffer, final: bool) -> dict[str, str] | Read:
        """The attributes up to `<|sep|>`; BAD when something else comes."""
        text, control = buffer.until(_CONTROLS, final=final)
        self._attributes.append(text)
        written = "".join(self._attributes)
        if len(written) > _MAX_ATTRIBUTES:
            buffer.untake(written[_MAX_ATTRIBUTES:])
            return Read.BAD
        if control in (OPEN, CLOSE) or (final and not control):
            return Read.BAD
        if control is None:
            return Read.MORE
        buffer.take(len(SEP))
        self._attributes = []
        return {key: unescaped(value) for key, value in _ATTRIBUTE.findall(written)}

    def _read_call(self, buffer: Buffer, final: bool) -> Read | None:
        attributes = self._read_attributes(buffer, final)
        if isinstance(attributes, Read):
            return attributes
        self._name = attributes.get("tool", "")
        self._at = _At.BELIEVE
        return None if self._name else Read.BAD

    def _read_belief(self, buffer: Buffer, final: bool) -> Read | None:
        if self._careful and self._name not in self._tools:
            buffer.skip_space()
            body = (_ARGUMENT, _JSON, _CALL_CLOSED)
            found = _next(buffer, body, final=final, take=False)
            if found is None or found is _NOTHING:
                return Read.MORE if found is None else Read.BAD
        self._begun = True
        self._keys = set()
        self._output.start(self._name)
        self._at = _At.BODY
        return None

    def _read_body(self, buffer: Buffer, final: bool) -> Read | None:
        buffer.skip_space()
        spaced = buffer.peek(len(OPEN) + 1)[-1:].isspace()
        found = _next(buffer, (_ARGUMENT, _JSON, _CALL_CLOSED), final=final)
        if found is None:
            return Read.MORE
        if found is _ARGUMENT:
            self._closer = _ARGUMENT_CLOSED if spaced else (ARGUMENT_END,)
            self._at = _At.ARGUMENT
        elif found is _JSON and not self._keys:
            self._at = _At.JSON_ATTRIBUTES
        elif found is _CALL_CLOSED:
            self._output.arguments("}" if self._keys else "{}")
            return self._end_call()
        elif found is _NOTHING:
            return self._end_unclosed(buffer, final)
        else:
            return Read.BAD
        return None

    def _end_unclosed(self, buffer: Buffer, final: bool) -> Read | None:
        """The call's own closer is missing: it is complete if what comes says that it is over."""
        found = _next(buffer, (_CALL, _TOOLS_CLOSED), final=final, take=False)
        if found is None:
            return Read.MORE
        ended = final and bool(self._keys) and _begins(CALL_END, buffer.text)
        if found is _NOTHING and not ended:
            return Read.MORE if final and not buffer.text.strip() else Read.BAD
        if ended:
            buffer.take(len(buffer))
        self._output.arguments("}" if self._keys else "{}")
        return self._end_call()

    def _end_call(self) -> Read | None:
        self._output.end()
        self._at = _At.BETWEEN
        return None if self._in_channel else Read.DONE

    def _read_argument(self, buffer: Buffer, final: bool) -> Read | None:
        attributes = self._read_attributes(buffer, final)
        if isinstance(attributes, Read):
            return attributes
        key = attributes.get("key")
        if key is None:
            return Read.BAD
        self._output.arguments(f"{', ' if self._keys else '{'}{json_string(key)}: ")
        self._keys.add(key)
        self._type = attributes.get("type", "string")
        self._raw = []
        if self._type == "string":
            self._output.arguments('"')
        self._at = _At.VALUE
        return None

    def _read_value(self, buffer: Buffer, final: bool) -> Read | None:
        text, control = buffer.until(_CLOSES)
        self._add(text)
        if control is None:
            return Read.MORE
        closed = buffer.literal(self._closer, final=final)
        if closed is None:
            return Read.MORE
        if not closed:
            self._add(buffer.take(len(CLOSE)))
            return None
        return self._end_value()

    def _add(self, text: str) -> None:
        if self._type == "string":
            self._output.arguments(json_string(text)[1:-1])
        else:
            self._raw.append(text)

    def _end_value(self) -> Read | None:
        self._at = _At.BODY
        if self._type == "string":
            self._output.arguments('"')
            return None
        raw = "".join(self._raw)
        if json_kind(raw) is not None:
            self._output.arguments(without_raw_controls(raw.strip(" \t\n\r")))
        elif self._type in _JSON_TYPES:
            return Read.BAD
        else:
            self._output.arguments(json_string(raw))
        return None

    def _read_json_attributes(self, buffer: Buffer, final: bool) -> Read | None:
        attributes = self._read_attributes(buffer, final)
        if isinstance(attributes, Read):
            return attributes
        self._json = JsonValue()
        self._at = _At.JSON
        return None

    def _read_json(self, buffer: Buffer, final: bool) -> Read | None:
        if not self._json.first:
            buffer.skip_space()
        text = self._json.read(buffer, final=final)
        if self._json.first not in ("{", ""):
            return Read.BAD
        self._output.arguments(text)
        if self._json.status is Read.DONE:
            self._at = _At.JSON_END
            return None
        return self._json.status

    def _read_json_end(self, buffer: Buffer, final: bool) -> Read | None:
        """What follows a whole object: its closer and the call's, each of which may be missing."""
        buffer.skip_space()
        found = _next(buffer, (_JSON_CLOSED, _CALL_CLOSED), final=final)
        if found is None:
            return Read.MORE
        if found is _JSON_CLOSED:
            return None
        if found is _NOTHING:
            over = _next(buffer, (_CALL, _TOOLS_CLOSED), final=final, take=False)
            if over is None:
                return Read.MORE
            cut = final and (_begins(CALL_END, buffer.text) or _begins(JSON_END, buffer.text))
            if over is _NOTHING and not cut:
                return Read.BAD
            if cut:
                buffer.take(len(buffer))
        return self._end_call()


def _next(
    buffer: Buffer, options: Sequence[_Words], *, final: bool, take: bool = True
) -> _Words | None:
    """Which of `options` comes next, consumed if `take`; `_NOTHING` of them; None: more decides."""
    undecided = False
    for words in options:
        pos = buffer.pos
        came = buffer.literal(words, final=final)
        if came:
            if not take:
                buffer.untake(buffer.window[pos : buffer.pos])
            return words
        undecided = undecided or came is None
    return None if undecided else _NOTHING


def _begins(closer: str, text: str) -> bool:
    """Whether `text`, spaces aside, is the beginning of `closer`."""
    return closer.startswith("".join(text.split()))


def escaped(attribute: str) -> str:
    """An attribute as it is written."""
    for character, entity in ENTITIES:
        attribute = attribute.replace(character, entity)
    return attribute


def unescaped(attribute: str) -> str:
    """An attribute as it was before it was written."""
    for character, entity in reversed(ENTITIES):
        attribute = attribute.replace(entity, character)
    return attribute
