"""Who may say and hear what on the bus: one NATS user for each service, with its rights.

Each service gets what its code does and nothing else: it cannot read another's inbox, take
another's jobs, answer for another or change a stream. Streams are made by a user of their own
(`setup`), so that the services run with `nats_setup` off.

What NATS cannot separate: whoever may make a reader of a stream (all that read a bucket or the
blobs) chooses the subject it delivers to, and instances of one service share a user.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from toolrail.bus import subjects

SETUP: Final = "setup"
"""The user that makes streams and buckets, for `toolrail nats setup`."""
AUDITOR: Final = "auditor"
"""The user that reads audit records, and nothing else; no service of ours is it."""

_P: Final = subjects.PREFIX
_MODELS: Final = f"KV_{subjects.MODELS_BUCKET}"
_INSTANCES: Final = f"KV_{subjects.INSTANCES_BUCKET}"
_BLOBS: Final = f"OBJ_{subjects.BLOBS_BUCKET}"


@dataclass(frozen=True, slots=True)
class Rights:
    """Subjects that a user may publish and subscribe to; it may also answer what it is asked."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def inbox_prefix(user: str) -> str:
    """Where answers to a user go, and what its readers deliver; nobody else may listen there."""
    return f"_INBOX_{user}"


def _reads(stream: str) -> tuple[str, ...]:
    """Make a reader of the stream, or get one message of it."""
    return (
        f"$JS.API.STREAM.INFO.{stream}",
        f"$JS.API.CONSUMER.CREATE.{stream}.>",
        f"$JS.API.CONSUMER.CREATE.{stream}",
        f"$JS.API.DIRECT.GET.{stream}",
        f"$JS.API.DIRECT.GET.{stream}.>",
        f"$JS.API.STREAM.MSG.GET.{stream}",
    )


def _registers(service: str) -> tuple[str, ...]:
    return (f"$KV.{subjects.INSTANCES_BUCKET}.{service}.>",)


def _blobs(*, writes: bool) -> tuple[str, ...]:
    reads = _reads(_BLOBS)
    if not writes:
        return reads
    return (*reads, f"$O.{subjects.BLOBS_BUCKET}.>", f"$JS.API.STREAM.PURGE.{_BLOBS}")


_DIRECTORY: Final = (
    "$JS.API.INFO",
    f"$JS.API.STREAM.INFO.{subjects.DOCUMENTS_STREAM}",
    *_reads(_MODELS),
    *_reads(_INSTANCES),
    f"{_P}.ping.*",
)
"""What every service does: see that all is set up, follow models and instances, ask whether a peer
lives."""

_PUBLISH: Final[Mapping[str, tuple[str, ...]]] = {
    "gateway": (
        *_DIRECTORY,
        *_registers("gateway"),
        *_blobs(writes=True),
        *_reads(subjects.DOCUMENTS_STREAM),
        subjects.PREPARE,
        subjects.STREAM,
        f"{_P}.ctl.*",
        subjects.KEY_USES,
        f"{subjects.DOCUMENTS}.>",
        f"$JS.API.STREAM.PURGE.{subjects.DOCUMENTS_STREAM}",
        f"$JS.API.STREAM.INFO.{subjects.AUDIT_STREAM}",
        subjects.AUDIT_SUBJECTS,
    ),
    "preprocessor": (
        *_DIRECTORY,
        *_registers("preprocessor"),
        *_blobs(writes=True),
        *_reads(subjects.DOCUMENTS_STREAM),
        subjects.STREAM,
    ),
    "postprocessor": (
        *_DIRECTORY,
        *_registers("postprocessor"),
        *_blobs(writes=True),
        subjects.WORK_SUBJECTS,
        subjects.DEAD_SUBJECTS,
        f"$JS.API.STREAM.MSG.DELETE.{subjects.WORK_STREAM}",
        f"$JS.API.STREAM.INFO.{subjects.WORK_STREAM}",
        f"$JS.API.CONSUMER.INFO.{subjects.WORK_STREAM}.>",
        f"{_P}.out.*",
        f"{_P}.cancel.*",
        f"{_P}.ctl.*",
        subjects.ROOMS,
    ),
    "worker": (
        *_DIRECTORY,
        *_registers("worker"),
        f"$KV.{subjects.MODELS_BUCKET}.>",
        *_blobs(writes=True),
        f"$JS.API.CONSUMER.CREATE.{subjects.WORK_STREAM}.>",
        f"$JS.API.CONSUMER.DURABLE.CREATE.{subjects.WORK_STREAM}.>",
        f"$JS.API.CONSUMER.MSG.NEXT.{subjects.WORK_STREAM}.>",
        f"$JS.ACK.{subjects.WORK_STREAM}.>",
        subjects.DEAD_SUBJECTS,
        f"{_P}.post.*",
    ),
    SETUP: (
        "$JS.API.INFO",
        "$JS.API.STREAM.CREATE.*",
        "$JS.API.STREAM.UPDATE.*",
        "$JS.API.STREAM.INFO.*",
    ),
    AUDITOR: (
        "$JS.API.INFO",
        *_reads(subjects.AUDIT_STREAM),
        f"$JS.API.CONSUMER.DURABLE.CREATE.{subjects.AUDIT_STREAM}.>",
        f"$JS.API.CONSUMER.INFO.{subjects.AUDIT_STREAM}.>",
        f"$JS.API.CONSUMER.MSG.NEXT.{subjects.AUDIT_STREAM}.>",
        f"$JS.ACK.{subjects.AUDIT_STREAM}.>",
    ),
}
_SUBSCRIBE: Final[Mapping[str, tuple[str, ...]]] = {
    "gateway": (f"{_P}.out.*", f"{_P}.ctl.*", f"{_P}.ping.*", subjects.KEY_USES),
    "preprocessor": (subjects.PREPARE, f"{_P}.ping.*"),
    "postprocessor": (
        subjects.STREAM,
        f"{_P}.post.*",
        f"{_P}.ctl.*",
        f"{_P}.ping.*",
        subjects.ROOMS,
    ),
    "worker": (f"{_P}.cancel.*", f"{_P}.ctl.*", f"{_P}.ping.*"),
    SETUP: (),
    AUDITOR: (),
}

USERS: Final[Mapping[str, Rights]] = {
    user: Rights(_PUBLISH[user], (*_SUBSCRIBE[user], f"{inbox_prefix(user)}.>"))
    for user in _PUBLISH
}
"""All users and their rights."""

_ANSWERS: Final = '{ max: 2, ttl: "1m" }'
"""Of what was asked: how often, and how much later at most."""


def server_configuration(public_keys: Mapping[str, str]) -> str:
    """The `authorization` of a NATS server, for `include`; `public_keys`: nkey of each user."""
    users = "\n".join(_user(user, public_keys[user], rights) for user, rights in USERS.items())
    return f"authorization {{\n  users: [\n{users}\n  ]\n}}\n"


def _user(user: str, public_key: str, rights: Rights) -> str:
    def listed(names: tuple[str, ...]) -> str:
        return ", ".join(f'"{name}"' for name in dict.fromkeys(names))

    return (
        f"    # {user}\n"
        f"    {{ nkey: {public_key}, permissions: {{\n"
        f"      publish: [{listed(rights.publish)}]\n"
        f"      subscribe: [{listed(rights.subscribe)}]\n"
        f"      allow_responses: {_ANSWERS}\n"
        "    } }"
    )
