"""From an entry to the bytes of its record. Done in a thread: it takes time linear in the text."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from services.gateway import objects
from services.gateway.audit.entry import Choice, Entry
from services.gateway.audit.record import Answered, Asked, Calls, Fault, Record
from toolrail.events import Reasoning, Text, assemble
from toolrail.messages import Failed
from toolrail.redaction import ContentMode, Redactor

_encode: Final = msgspec.json.Encoder().encode
_TAIL: Final = 256
"""Characters left out where we cut an answer: a secret's beginning is found by no rule."""


@dataclass(frozen=True, slots=True)
class Line:
    """A record, and what sinks need to know of it beside its bytes."""

    id: str
    data: bytes
    received_s: float
    trace_id: str
    failed: bool
    record: Record | None = None
    """What else could be written: the record, where there is content in it."""

    def bare(self) -> Line | None:
        """The line without its content, for a sink that refuses it; None where it has none."""
        if self.record is None:
            return None
        data = _encode(_without_content(self.record))
        return dataclasses.replace(self, data=data, record=None)


class Writer:
    """Writes records as the settings say. May be used from any thread."""

    def __init__(
        self,
        instance: str,
        content: ContentMode,
        redactor: Redactor,
        *,
        max_content_bytes: int,
        max_record_bytes: int,
    ) -> None:
        self._instance = instance
        self._content: ContentMode = content
        self._redactor = redactor
        self._max_content = max_content_bytes
        self._max_record = max_record_bytes

    def line(self, entry: Entry) -> Line:
        """The record of an entry; without its content where the sink takes none so large."""
        record = self._record(entry)
        data, failed = _encode(record), record.error is not None
        written: Record | None = record
        if self._content == "none":
            written = None
        elif len(data) > self._max_record:
            data, written = _encode(_without_content(record)), None
        return Line(record.id, data, entry.received_s, entry.trace_id, failed, written)

    def _record(self, entry: Entry) -> Record:
        found = Counter[str]()
        outcome = entry.outcome
        tally = None if outcome is None else outcome.tally
        first = None if outcome is None else outcome.first_event_s
        usage = None if tally is None else tally.usage
        response = self._answered(entry, found)
        return Record(
            id=f"{entry.request_id}-{entry.kind}",
            kind=entry.kind,
            time=_time(entry.received_s),
            duration_ms=round(entry.took_s * 1000, 3),
            first_event_ms=None if first is None else round(first * 1000, 3),
            instance=self._instance,
            request_id=entry.request_id,
            response_id=outcome.response_id if outcome and outcome.model else None,
            trace_id=entry.trace_id or None,
            key=entry.key,
            client=entry.client,
            method=entry.method,
            route=entry.route,
            api=entry.api,
            model=(outcome.model or None) if outcome else None,
            stream=outcome.stream if outcome else False,
            status=entry.status,
            left=(outcome.left or None) if outcome else None,
            error=self._fault(outcome.failed, found) if outcome and outcome.failed else None,
            content=self._content,
            request=self._asked(entry, found),
            enforcement=self._enforcement(entry, found),
            response=response,
            finish_reasons=tally.finish_reasons if tally else (),
            calls=Calls(tally.complete_calls, tally.incomplete_calls) if tally else Calls(0, 0),
            usage=None if usage is None else objects.usage(usage),
            hand_overs=entry.hand_overs,
            redacted=found,
        )

    def _asked(self, entry: Entry, found: Counter[str]) -> Asked:
        size = entry.body_bytes
        if self._content == "none" or not size:
            return Asked(bytes=size, body=None, head=None, cut=False)
        if entry.body is None:
            return Asked(bytes=size, body=None, head=None, cut=True)
        body = self._body(entry.body, found)
        if len(body) <= self._max_content:
            return Asked(bytes=size, body=body, head=None, cut=False)
        head = bytes(body)[: self._max_content].decode(errors="ignore")
        return Asked(bytes=size, body=None, head=head, cut=True)

    def _body(self, body: bytes, found: Counter[str]) -> msgspec.Raw:
        """The body as one line of JSON."""
        if self._content == "redacted":
            return msgspec.Raw(_encode(self._redactor.body(body, found)))
        try:
            msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError):
            return msgspec.Raw(_encode(body.decode(errors="replace")))
        # As it was written but for white space: numbers and repeated keys keep their form.
        return msgspec.Raw(msgspec.json.format(body, indent=-1))

    def _answered(self, entry: Entry, found: Counter[str]) -> Answered | None:
        transcript = entry.transcript
        if transcript is None or not transcript.choices:
            return None
        choices: object = choices_of(transcript.choices)
        if self._content == "redacted":
            cleaned = self._redactor.value({"choices": choices}, found)
            choices = _member(cleaned, "choices")
            if transcript.cut:
                choices = _without_tails(choices)
        return Answered(choices=choices, cut=transcript.cut)

    def _enforcement(self, entry: Entry, found: Counter[str]) -> object:
        if not entry.enforcement:
            return None
        value: dict[str, Any] = msgspec.json.decode(entry.enforcement)
        if self._content == "none":  # names of tools and of what is in them are content
            return {name: value.get(name) for name in ("held_by", "reason")}
        return self._redactor.value(value, found) if self._content == "redacted" else value

    def _fault(self, failed: Failed, found: Counter[str]) -> Fault:
        message: str | None = failed.message
        if self._content == "none":
            message = None
        elif self._content == "redacted":
            message = self._redactor.text(failed.message, found)
        code = failed.error_code or failed.code
        return Fault(code=code, param=failed.param, message=message)


def choices_of(choices: Sequence[Choice]) -> list[dict[str, Any]]:
    """Choices as JSON values: the model's items in its order, calls it did not finish apart."""
    return [_choice(choice) for choice in choices]


def _choice(choice: Choice) -> dict[str, Any]:
    turn = assemble(choice.events)
    items: list[dict[str, Any]] = []
    for item in turn.items:
        match item:
            case Reasoning(text):
                items.append({"type": "reasoning", "text": text})
            case Text(text):
                items.append({"type": "text", "text": text})
            case call:
                kind = "custom_call" if call.custom else "call"
                items.append({"type": kind, "name": call.name, "arguments": call.arguments})
    incomplete = [
        {"type": "call", "name": call.name, "arguments": call.arguments}
        for call in turn.incomplete_calls
    ]
    return {
        "items": items,
        "incomplete_calls": incomplete,
        "finish": choice.finish,
        "migrations": choice.migrations,
    }


def _without_tails(choices: object) -> object:
    """Choices whose last texts end a little before the place where they were cut."""
    assert isinstance(choices, list)
    for choice in choices:
        for items in (choice.get("items"), choice.get("incomplete_calls")):
            for name in ("text", "arguments"):
                if isinstance(items, list) and items and isinstance(items[-1], dict):
                    text = items[-1].get(name)
                    if isinstance(text, str):
                        items[-1][name] = text[:-_TAIL]
    return choices


def _member(value: object, name: str) -> object:
    assert isinstance(value, dict)
    return value.get(name)


def _without_content(record: Record) -> Record:
    request = msgspec.structs.replace(record.request, body=None, head=None, cut=True)
    response = record.response and Answered(choices=None, cut=True)
    return msgspec.structs.replace(record, request=request, response=response, enforcement=None)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
