"""What `toolrail doctor` looks at in the streams that grow: stored responses and audit records.

No I/O here: the command fetches, these judge.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from toolrail.bus import access, subjects
from toolrail.bus.nats_state import StreamState
from toolrail.cli.diagnosis import Finding
from toolrail.settings import CommonSettings

RESPONSES: Final = "stored responses"
RECORDS: Final = "audit records"

_FULL: Final = 0.9
"""From here on a stream counts as full: the oldest go for what is new, or soon will."""
_RECORDS_AT_LEAST: Final = 8
"""Records of the largest size that the stream should hold, or one of them pushes out all others."""
_SET_UP: Final = (
    "`toolrail nats setup`, or a restart of services that may, makes them what the settings say: "
    "give all the same, doctor too"
)


def user_of(settings: CommonSettings) -> str:
    """The user of least rights that these settings connect as; empty where it is none of ours."""
    user = settings.nats_inbox_prefix.removeprefix(access.inbox_prefix(""))
    return user if user in access.USERS else ""


def may_look_at_records(user: str) -> bool:
    """Whether this user has any business with audit records."""
    asks = f"$JS.API.STREAM.INFO.{subjects.AUDIT_STREAM}"
    return not user or asks in access.USERS[user].publish


def of_responses(
    found: StreamState | None, settings: CommonSettings, now: datetime
) -> Iterator[Finding]:
    """Whether stored responses have room, and owners are kept apart."""
    if found is None:
        yield Finding("fail", RESPONSES, f"no stream {subjects.DOCUMENTS_STREAM}", _SET_UP)
        return
    advice = (
        "the oldest go, whoever's they are: raise --max-document-bytes, or lower "
        "--stored-response-ttl-s or --max-owner-document-bytes"
    )
    yield _of_room(RESPONSES, found, now, advice)
    yield from _of_bound(RESPONSES, found, settings.max_document_bytes, "--max-document-bytes")
    owners = settings.max_owner_document_bytes
    if 0 < found.config.max_bytes <= owners:
        text = f"one owner of API keys may fill all of it: their bound is {_size(owners)}"
        yield Finding("warn", RESPONSES, text, "lower --max-owner-document-bytes")


def of_records(
    found: StreamState | None,
    settings: CommonSettings,
    now: datetime,
    *,
    max_payload_bytes: int,
    may_append: bool,
) -> Iterator[Finding]:
    """Whether audit records can be kept on the bus, and for how long."""
    if found is None:
        advice = "gateways with --audit jetstream do not start without it: `toolrail nats setup`"
        yield Finding("warn", RECORDS, f"no stream {subjects.AUDIT_STREAM}", advice)
        return
    if not may_append:
        advice = (
            "with --audit jetstream its gateways keep none: write the server's users anew, "
            "`toolrail nats users`, and have it read them"
        )
        yield Finding("fail", RECORDS, "this user may not append any", advice)
    advice = (
        "the oldest go before their time: raise --max-audit-stream-bytes, or have them read sooner"
    )
    yield _of_room(RECORDS, found, now, advice)
    yield from _of_bound(
        RECORDS, found, settings.max_audit_stream_bytes, "--max-audit-stream-bytes"
    )
    yield from _of_rules(found, settings, max_payload_bytes)


def _of_rules(
    found: StreamState, settings: CommonSettings, max_payload_bytes: int
) -> Iterator[Finding]:
    config = found.config
    if subjects.AUDIT_SUBJECTS not in config.subjects:
        text = f"the stream does not take {subjects.AUDIT_SUBJECTS}: no record gets there"
        yield Finding("fail", RECORDS, text, _SET_UP)
    if config.discard != "old":
        text = "when the stream is full it refuses what is new, and keeps what is old"
        yield Finding("warn", RECORDS, text, _SET_UP)
    if config.max_age_s != settings.audit_stream_max_age_s:
        wanted = _time(settings.audit_stream_max_age_s)
        kept = _time(config.max_age_s) if config.max_age_s else "for ever"
        text = f"kept {kept}, the settings say {wanted} (--audit-stream-max-age-s)"
        yield Finding("warn", RECORDS, text, _SET_UP)
    largest = max_payload_bytes
    if 0 < config.max_msg_size < largest:
        largest = config.max_msg_size
        text = f"the stream takes none over {_size(largest)}: such go without their content"
        yield Finding("warn", RECORDS, text, _SET_UP)
    if 0 < config.max_bytes < _RECORDS_AT_LEAST * largest:
        text = f"a record may have {_size(largest)}, all together {_size(config.max_bytes)}"
        advice = "a few large ones push out all others: raise --max-audit-stream-bytes"
        yield Finding("warn", RECORDS, text, advice)


def _of_room(about: str, found: StreamState, now: datetime, advice: str) -> Finding:
    held, bound = found.state, found.config.max_bytes
    text = f"{_size(held.bytes)} in {held.messages:,} messages"
    if bound > 0:
        text = f"{text}, {held.bytes / bound:.0%} of {_size(bound)}"
    if held.messages and held.first_ts is not None:
        text = f"{text}; the oldest of {_time((now - held.first_ts).total_seconds())} ago"
    if bound > 0 and held.bytes >= _FULL * bound:
        return Finding("warn", about, f"full: {text}", advice)
    return Finding("ok", about, text)


def _of_bound(about: str, found: StreamState, wanted: int, flag: str) -> Iterator[Finding]:
    bound = found.config.max_bytes
    if bound != wanted:
        has = _size(bound) if bound > 0 else "no bound"
        text = f"the stream has {has}, the settings say {_size(wanted)} ({flag})"
        yield Finding("warn", about, text, _SET_UP)


def now() -> datetime:
    """The time, as streams tell it."""
    return datetime.now(UTC)


def _size(count: int) -> str:
    for unit, length in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= length:
            return f"{count / length:.4g} {unit}"
    return f"{count} bytes"


def _time(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"
