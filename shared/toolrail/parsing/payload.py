"""A forced call that the engine was made to write as bare JSON: finding it, reading it.

A named choice is the arguments object alone; `required` is one call object or an array of them. All
or nothing: a payload of which one element is no call dispatches nothing and is shown as text.
Native calls around it are markup and drop out. What stands around both is the business of the
machines, `parsing.guided` and `parsing.channels_guided`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from toolrail.arguments.json_calls import CallObjects
from toolrail.arguments.json_value import JsonValue, Read
from toolrail.arguments.output import Output
from toolrail.arguments.types import ToolTypes
from toolrail.parsing import ParseSpec
from toolrail.parsing.blocks import Block, Reading
from toolrail.parsing.prose import Prose
from toolrail.scan import Ahead, Buffer, Markers
from toolrail.syntax import Objects

STARTS: Final = ("{", "[")
"""With what a payload may begin."""
Native: TypeAlias = Callable[[Reading], Block]
"""Makes the reader of a native call."""
Found: TypeAlias = Literal["payload", "marker", "other"]

_MAX_TRIALS: Final = 16
"""Places of a turn where a native call is looked for; bounds the work."""


class Lookahead:
    """Tells what comes next, whitespace aside: a payload, a marker or something else.

    `strays`: markup that may stand before a payload. What was passed before it the caller has to
    `settle` or to `give_back`. Amortised O(what is passed).
    """

    def __init__(self, named: str | None, strays: Markers, markers: Markers) -> None:
        self._named: Final = named
        self._strays: Final = strays
        self._markers: Final = markers
        self._longest: Final = max(strays.longest, markers.longest, 1)
        self._before: Final = Ahead()
        self._bracket: Final = Ahead()
        self._in_bracket = False

    def read(self, buffer: Buffer, *, final: bool) -> Found | None:
        """What comes next; None: more text decides."""
        if not self._in_bracket:
            found = self._read_before(buffer, final)
            if not self._in_bracket:
                return found
        self._bracket.skip_space(buffer)
        following = buffer.peek()
        if not following and not final:
            return None
        self._bracket.give_back(buffer)
        self._in_bracket = False
        return "payload" if following and following in "{]" else "other"

    def _read_before(self, buffer: Buffer, final: bool) -> Found | None:
        ahead, stray = "", True
        while stray:
            self._before.skip_space(buffer)
            ahead = buffer.peek(self._longest)
            stray = _first(self._strays, ahead)
            self._before.take(buffer, len(stray))
        if ahead[:1] == "{":
            return "payload"
        if ahead[:1] == "[" and self._named is None:
            self._bracket.take(buffer, 1)
            self._in_bracket = True
            return None
        if _first(self._markers, ahead):
            return "marker"
        grows = not ahead or self._strays.grows(ahead) or self._markers.grows(ahead)
        return None if grows and not final else "other"

    def settle(self) -> None:
        """What was passed is consumed for good."""
        self._before.settle()

    def give_back(self, buffer: Buffer) -> None:
        """What was passed is unread again."""
        self._before.give_back(buffer)


def _first(markers: Markers, text: str) -> str:
    """The marker with which `text` begins, or nothing."""
    found = markers.search(text)
    return found[1] if found is not None and found[0] == 0 else ""


class Payload:
    """The payload of one turn, and the native calls around it.

    `seen`: whether it began; there is one a turn. `named`: the tool of a named choice.
    """

    def __init__(self, prose: Prose, spec: ParseSpec) -> None:
        self._prose: Final = prose
        self._tools: Final = ToolTypes(spec.tools)
        named = spec.tool_choice == "named" and spec.tools
        self.named: Final = spec.tools[0].name if named else None
        self.seen = False
        self._value: JsonValue | None = None
        self._body: Native | None = None
        self._native: Block | None = None
        self._discarded = Output()
        self._trials = 0
        self._written_at_marker = -1
        prose.holds_space = True

    def eat(self, length: int) -> None:
        """Consume markup."""
        self._prose.buffer.take(length)
        self._written_at_marker = self._prose.written

    def begin(self, body: Native | None = None) -> None:
        """The payload comes next. `body`: of what native call it may be the body."""
        self.seen = True
        if not self._prose.blank:
            self._prose.flush_space()
        self._value = JsonValue()
        self._body = body
        self._prose.buffer.keep()

    def try_native(self, native: Native) -> bool:
        """A native call may come next: whether it is looked for."""
        self._trials += 1
        if self._trials > _MAX_TRIALS:
            return False
        self._prose.buffer.keep()
        self._discarded = Output()
        self._native = native(Reading(self._discarded, self._tools))
        return True

    def read(self, *, final: bool) -> bool:
        """Read on in what was begun; False when it needs more text."""
        if self._native is not None:
            return self._read_native(self._native, final)
        assert self._value is not None
        return self._read_value(self._value, final)

    def _read_native(self, native: Block, final: bool) -> bool:
        buffer = self._prose.buffer
        status = native.read(buffer, final=final)
        if status is Read.MORE and not final:
            return False
        self._native = None
        if self._discarded.complete_calls:
            buffer.forget()
            self._written_at_marker = self._prose.written
        else:
            buffer.rewind()
        return True

    def _read_value(self, value: JsonValue, final: bool) -> bool:
        buffer, prose = self._prose.buffer, self._prose
        value.read(buffer, final=final)
        if value.status is Read.MORE and not final:
            return False
        self._value = None
        payload = buffer.kept
        buffer.forget()
        space = prose.take_space()
        calls = value.status is Read.DONE and dispatch(payload, self.named, prose.output)
        if not calls and not self._is_native(payload):
            prose.put(space + payload)
        return True

    def _is_native(self, payload: str) -> bool:
        """Whether the JSON is the body of a native call, whose header came before it."""
        if self._body is None:
            return False
        buffer, discarded = Buffer(), Output()
        buffer.push(payload)
        self._body(Reading(discarded, self._tools)).read(buffer, final=True)
        return bool(discarded.complete_calls)

    def finish(self) -> None:
        """Put out the whitespace that ends the turn.

        Where it ends in an eaten marker, or is all there is after a call, it is framing.
        """
        after_marker = self._written_at_marker == self._prose.written
        if not self.seen or not (after_marker or self._prose.blank):
            self._prose.flush_space()


def dispatch(payload: str, named: str | None, output: Output) -> bool:
    """Put out the payload's calls; False, and nothing put out, when it is not calls alone."""
    buffer = Buffer()
    buffer.push(payload)
    if named is not None:
        output.start(named)
        output.arguments(JsonValue().read(buffer, final=True))
        output.end()
        return True
    output.hold()
    calls = CallObjects(Objects(), output, strict=True)
    status = calls.read(buffer, final=True)
    if status is Read.DONE and calls.ended and not buffer.text.strip():
        output.release()
        return True
    output.discard()
    return False
