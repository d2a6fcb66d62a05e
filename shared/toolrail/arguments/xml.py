r"""Arguments written as one element per parameter, read into JSON text left to right.

`<parameter=city>\nParis\n</parameter>`; a style record holds the spellings. Strings stream as they
come when their type cannot change any more; other values wait for their closer. A marker inside a
value is data: only the value's own closer ends it.
"""

from __future__ import annotations

import json
from enum import IntEnum, auto
from typing import Final

from toolrail.arguments.json_value import JsonProbe, Read
from toolrail.arguments.output import Output
from toolrail.arguments.quoted import CallTags, QuotedCall
from toolrail.arguments.types import (
    ParameterTypes,
    json_kind,
    json_or_text,
    json_string,
    json_text,
    without_raw_controls,
)
from toolrail.scan import Buffer, Markers, marker_set
from toolrail.syntax import XmlStyle

_MAX_KEY: Final = 1_000
"""Longest parameter header that is still taken for one."""
_MAX_LOOKAHEAD: Final = 256
"""Whitespace after a closer through which is looked for what must follow it."""
_MAX_RETURNS: Final = 16
"""Values of a turn that may be read once more from where they may have ended; bounds the work."""


class _At(IntEnum):  # hashed for every piece of text, which an Enum does in Python
    OPEN = auto()
    KEY = auto()
    VALUE_OPEN = auto()
    FRAME = auto()
    VALUE = auto()


class XmlArguments:
    """Reads the parameters of one call.

    DONE: something else than a parameter comes next (whitespace before it consumed); then `close`
    puts out the end of the JSON object. MORE at the end of the stream: a value was cut.
    `held`: a grammar wrote the values, each with its closer and none inside it.
    """

    def __init__(
        self, style: XmlStyle, types: ParameterTypes, output: Output, *, held: bool = False
    ) -> None:
        self._style: Final = style
        self._types: Final = types
        self._output: Final = output
        self._key_end: Final = marker_set(style.key_end)
        self._held: Final = held
        self._quotable: Final = None if held else _quotable(style)
        quotable = self._quotable.all if self._quotable else ()
        missing: tuple[str, ...] = () if held else style.missing_close
        following = (style.open,) if style.next_ends and not held else ()
        self._ends: Final = _ends(style, (style.close, *missing, *following), *quotable)
        self._late_ends: Final = _ends(style, (style.close,), style.open)
        self._at = _At.OPEN
        self._header: list[str] = []
        self._count = 0
        self._key = ""
        self._keys: set[str] = set()
        self._wire: str | None = None  # what the type attribute said: "raw", "json" or nothing
        self._value: list[str] = []
        self._streams = False
        self._probe: JsonProbe | None = None  # whether the value can still be JSON
        self._doubtful: list[str] | None = None  # from a closer that structure did not follow
        self._early: list[str] | None = None  # from a call's closer that may end the value
        self._inner: list[str] | None = None  # from a closer that is of a call in the value
        self._inner_from = 0  # where in it a call began that has not proved whole; 0: none
        self._quoted: QuotedCall | None = None

    def read(self, buffer: Buffer, *, final: bool = False) -> Read:
        """Read on."""
        steps = {
            _At.OPEN: self._read_open,
            _At.KEY: self._read_key,
            _At.VALUE_OPEN: self._read_value_open,
            _At.FRAME: self._read_frame,
            _At.VALUE: self._read_value,
        }
        while True:
            status = steps[self._at](buffer, final)
            if status is not None:
                return status

    def close(self) -> None:
        """Put out the end of the arguments object."""
        self._output.arguments("}" if self._count else "{}")

    def _read_open(self, buffer: Buffer, final: bool) -> Read | None:
        buffer.skip_space()
        opening = buffer.literal((self._style.open,), final=final)
        if opening is None:
            return Read.MORE
        if not opening:
            return Read.DONE
        self._at = _At.KEY
        self._header = []
        return None

    def _read_key(self, buffer: Buffer, final: bool) -> Read | None:
        text, marker = buffer.until(self._key_end, final=final)
        self._header.append(text)
        header = "".join(self._header)
        if len(header) > _MAX_KEY:
            buffer.give_back(header[_MAX_KEY:])
            return Read.BAD
        if marker is None:
            return Read.MORE
        buffer.take(len(marker))
        self._key, self._wire = _split_header(header, self._style)
        self._keys.add(self._key)
        self._at = _At.VALUE_OPEN if self._style.value_open else _At.FRAME
        return None

    def _read_value_open(self, buffer: Buffer, final: bool) -> Read | None:
        buffer.skip_space()
        opening = buffer.literal((self._style.value_open,), final=final)
        if opening is None:
            return Read.MORE
        if not opening:
            return Read.BAD
        self._at = _At.FRAME
        return None

    def _read_frame(self, buffer: Buffer, final: bool) -> Read | None:
        frame = self._style.frame
        if frame:
            ahead = buffer.peek(len(frame))
            if ahead == frame:
                buffer.take(len(frame))
            elif frame.startswith(ahead) and not final:
                return Read.MORE
        self._value = []
        self._doubtful = self._early = self._inner = None
        self._inner_from = 0
        follows = buffer.returns < _MAX_RETURNS
        self._quoted = QuotedCall(self._quotable) if self._quotable and follows else None
        self._probe = None
        self._streams = False
        if self._wire is None and self._style.values == "json_or_text":
            types = self._types.of(self._key)
            if types.text_only:
                self._probe = JsonProbe() if types.kinds is None else JsonProbe('"')
        elif self._wire == "raw" or (self._wire is None and self._types.of(self._key).text_only):
            self._begin_streaming()
        self._at = _At.VALUE
        return None

    def _begin_streaming(self) -> None:
        """The value is a string, whatever comes."""
        self._streams = True
        self._put_key()
        self._output.arguments('"' + _escaped("".join(self._value)))

    def _read_value(self, buffer: Buffer, final: bool) -> Read | None:
        text, marker = buffer.until(self._ends if self._early is None else self._late_ends)
        self._add(text)
        if self._quoted is not None:
            self._quoted.add(text)
            if self._inner_from and self._quoted.over:
                return self._end_inner(buffer)
        if marker is None:
            return self._end_unclosed(buffer, final)
        end = marker.removeprefix(self._style.frame) if self._style.frame else marker
        own = end == self._style.close
        if end == self._style.open and self._early is None:
            return self._at_opener(marker, buffer, final)
        if not own and (end not in self._style.missing_close or self._quotes):
            return self._see(marker, buffer)
        counts = self._counts(buffer, marker, own, final)
        if counts is None:
            return Read.MORE
        inner = own and self._quoted is not None and self._quoted.closes_parameter()
        return self._take_end(buffer.take(len(marker)), own=own, counts=counts, inner=inner)

    @property
    def _quotes(self) -> bool:
        """Whether the value is in the middle of a call that it quotes."""
        return self._quoted is not None and not self._quoted.over

    def _at_opener(self, marker: str, buffer: Buffer, final: bool) -> Read | None:
        """A parameter's opener in a value: data, or what ends a value whose closer is missing."""
        if not self._style.next_ends:
            return self._see(marker, buffer)
        window, start = buffer.window, buffer.pos + len(marker)
        end = window.find(self._style.key_end, start, start + _MAX_KEY)
        if end < 0 and not final and len(window) - start < _MAX_KEY:
            return Read.MORE
        key = _split_header(window[start:end], self._style)[0] if end >= 0 else ""
        if key in self._keys or not self._types.declares(key):
            return self._see(marker, buffer)
        buffer.take(len(marker) - len(self._style.open))
        return self._end_at_closer()

    def _see(self, marker: str, buffer: Buffer) -> Read | None:
        """A marker that is no closer: the next parameter after an early end, or a quoted call's."""
        if self._early is not None:
            return self._end_early(buffer)
        self._add(buffer.take(len(marker)))
        if self._quoted is None:
            return None
        if self._quoted.see(marker):
            self._inner_from = 0
        elif self._inner_from and self._quoted.over:
            return self._end_inner(buffer)
        return None

    def _take_end(self, taken: str, *, own: bool, counts: bool, inner: bool) -> Read | None:
        """What a closer inside a value does: it ends it, it may have ended it, or it is data."""
        if counts and own and not inner:
            return self._end_at_closer()
        if counts and own:
            self._inner = self._inner or []
            self._inner.append(taken)
            self._inner_from = self._inner_from or len(self._inner)
        elif counts and not own:
            self._early = [taken]
        else:
            if own and self._doubtful is None:
                self._doubtful = []
            self._add(taken)
        return None

    def _counts(self, buffer: Buffer, marker: str, own: bool, final: bool) -> bool | None:
        """Whether `marker`, unread in the buffer, may end the value; None: what follows decides."""
        follow = self._style.follow if own else self._style.missing_follow
        if own and (self._held or not follow):
            return True
        window = buffer.window
        start = buffer.pos + len(marker)
        at = start
        while at < len(window) and window[at] in " \t\n\r" and at - start <= _MAX_LOOKAHEAD:
            at += 1
        if at - start > _MAX_LOOKAHEAD:
            return own
        rest = window[at : at + max(map(len, follow), default=0)]
        if rest.startswith(follow):
            return True
        if any(marker.startswith(rest) for marker in follow):
            return None if not final else not rest
        return False

    def _add(self, text: str) -> None:
        if not text:
            return
        if self._early is not None:
            self._early.append(text)
        elif self._inner is not None:
            self._inner.append(text)
        elif self._doubtful is not None:
            self._doubtful.append(text)
        elif self._streams:
            self._output.arguments(_escaped(text))
        else:
            self._value.append(text)
            if self._probe is not None and self._probe.fails(text):
                self._probe = None
                self._begin_streaming()

    def _end_at_closer(self) -> Read | None:
        """The value's own closer came: whatever else looked like an end was data."""
        data = [*(self._doubtful or ()), *(self._inner or ()), *(self._early or ())]
        self._doubtful = self._inner = self._early = None
        self._add("".join(data))
        return self._end_value()

    def _end_unclosed(self, buffer: Buffer, final: bool) -> Read | None:
        """No end in sight: at the end of the stream, the first that could be one was it."""
        if not final or (buffer.cut and not (self._early and self._style.missing_ends)):
            return Read.MORE
        if self._early is not None:
            return self._end_early(buffer)
        return Read.MORE if self._inner is None else self._end_inner(buffer)

    def _end_inner(self, buffer: Buffer) -> Read | None:
        """The value ended at the first closer of what proved to be no quoted call."""
        inner, end = self._inner or [], self._inner_from or 1
        buffer.give_back("".join(inner[end:]))
        self._inner = inner[: end - 1]
        return self._end_at_closer()

    def _end_early(self, buffer: Buffer) -> Read | None:
        """The value's own closer is missing: it ended at the first that could be an end."""
        buffer.give_back("".join(self._early or ()))
        self._doubtful = self._early = None
        return self._end_value() if self._style.missing_ends else Read.BAD

    def _end_value(self) -> Read | None:
        self._at = _At.OPEN
        if self._streams:
            self._output.arguments('"')
            return None
        value = self._typed("".join(self._value))
        if value is None:
            return Read.BAD
        self._put_key()
        self._output.arguments(value)
        return None

    def _typed(self, raw: str) -> str | None:
        attribute = self._style.attribute
        if self._style.values == "json_or_text":
            return json_or_text(raw, self._types.of(self._key))
        if self._wire is None or attribute is None:
            return json_text(raw, self._types.of(self._key), self._style.prefer)
        if json_kind(raw) is not None:
            return without_raw_controls(raw.strip(" \t\n\r"))
        return json_string(raw) if attribute.bad_json == "text" else None

    def _put_key(self) -> None:
        opening = ", " if self._count else "{"
        self._count += 1
        self._output.arguments(f"{opening}{json_string(self._key)}: ")


def _quotable(style: XmlStyle) -> CallTags | None:
    """The markers of a call in the style, where values may quote one."""
    if style.quoted is None:
        return None
    opener, closer = style.quoted
    return CallTags(opener, closer, style.open, style.close)


def _ends(style: XmlStyle, ends: tuple[str, ...], *others: str) -> Markers:
    framed = [style.frame + end for end in ends if style.frame]
    return marker_set(*ends, *framed, *others)


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _split_header(header: str, style: XmlStyle) -> tuple[str, str | None]:
    """Key and what the type attribute says ("raw", "json" or None) of a parameter's header."""
    wire: str | None = None
    attribute = style.attribute
    if attribute is not None:
        key, found, kind = header.partition(attribute.before)
        kind = kind.removesuffix(attribute.after) if attribute.after else kind
        if found and kind.strip() in (attribute.raw, attribute.json):
            header = key
            wire = "raw" if kind.strip() == attribute.raw else "json"
    key = header.strip()
    for quote in style.quotes:
        if key.startswith(quote):
            return key[1:].removesuffix(quote), wire
    return key, wire
