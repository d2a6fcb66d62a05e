"""Every subject, stream, bucket and queue group on the bus, and nowhere else.

Served model names hold `/`, `.` and spaces; on the bus a model is its token: a readable slug and a
hash.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

PREFIX: Final = "toolrail.v1"

PREPARE: Final = f"{PREFIX}.prepare"
"""gateway → preprocessor, acknowledged request, queue group PREPROCESSORS."""

STREAM: Final = f"{PREFIX}.stream"
"""preprocessor → postprocessor, acknowledged request, queue group POSTPROCESSORS."""

PREPROCESSORS: Final = "preprocessors"
POSTPROCESSORS: Final = "postprocessors"

WORK_STREAM: Final = "TOOLRAIL_WORK"
"""The JetStream work queue of jobs; one durable pull consumer per model."""

WORK_SUBJECTS: Final = f"{PREFIX}.work.>"

DEAD_STREAM: Final = "TOOLRAIL_DEAD"
"""JetStream: records of jobs that nobody could run, as JSON; bounded, the oldest go first."""

DEAD_SUBJECTS: Final = f"{PREFIX}.dead.>"

MODELS_BUCKET: Final = "toolrail_models"
"""KV: `<model token>.<worker>` → ModelCard, with a TTL that heartbeats renew."""

INSTANCES_BUCKET: Final = "toolrail_instances"
"""KV: `<service>.<instance>` → Instance, with a TTL that heartbeats renew."""

BLOBS_BUCKET: Final = "toolrail_blobs"
"""Object store: tokenizers, templates (by content hash), prompts too large for a message."""

DOCUMENTS_STREAM: Final = "TOOLRAIL_DOCUMENTS"
"""Stored responses: one message a key, each with its own time to live."""

DOCUMENTS: Final = f"{PREFIX}.doc"

AUDIT_STREAM: Final = "TOOLRAIL_AUDIT"
"""JetStream: audit records of the gateways, as JSON; bounded, the oldest go first."""

AUDIT_SUBJECTS: Final = f"{PREFIX}.audit.*"


def model_token(model: str) -> str:
    """A subject-safe token for a served model name: equal names, equal tokens."""
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", model)[:40].strip("-") or "model"
    return f"{slug}-{hashlib.blake2b(model.encode(), digest_size=5).hexdigest()}"


def work(model: str) -> str:
    """Subject of a model's jobs."""
    return f"{PREFIX}.work.{model_token(model)}"


def dead(model: str) -> str:
    """Subject of the records of a model's jobs that nobody could run."""
    return f"{PREFIX}.dead.{model_token(model)}"


def audit(gateway: str) -> str:
    """Subject of the audit records of a gateway instance."""
    return f"{PREFIX}.audit.{gateway}"


def tokens(postprocessor: str) -> str:
    """Subject of the TokenFrames for a postprocessor instance."""
    return f"{PREFIX}.post.{postprocessor}"


def events(gateway: str) -> str:
    """Subject of the EventFrames for a gateway instance."""
    return f"{PREFIX}.out.{gateway}"


def control(instance: str) -> str:
    """Subject of the orders for one instance.

    A postprocessor takes Cancel; a worker takes Resend, as an acknowledged request, and Done.
    """
    return f"{PREFIX}.ctl.{instance}"


def ping(instance: str) -> str:
    """Subject on which one instance answers that it lives, or with its metrics."""
    return f"{PREFIX}.ping.{instance}"


ROOMS: Final = f"{PREFIX}.rooms"
"""All postprocessors tell each other on it what they have of each model's work."""

KEY_USES: Final = f"{PREFIX}.uses"
"""All gateways tell each other on it what API keys used."""


def gateway_of(events_subject: str) -> str:
    """The gateway instance whose `events` subject this is."""
    return events_subject.removeprefix(f"{PREFIX}.out.")


def kind(subject: str) -> str:
    """What spans call a subject: without version, instance and model, of which there are many."""
    return subject.removeprefix(f"{PREFIX}.").split(".", 1)[0]


def cancel(model: str) -> str:
    """Subject on which all workers of a model hear of cancelled requests."""
    return f"{PREFIX}.cancel.{model_token(model)}"
