"""What must exist on the server: work and its consumers, records, two buckets, blobs, documents.

Every process makes sure of it when it connects; that is idempotent, and changed settings are
applied to what is there.
"""

from __future__ import annotations

import asyncio
from typing import Final

from nats.errors import TimeoutError as NatsTimeoutError
from nats.js import api
from nats.js.errors import APIError, NoStreamResponseError

from toolrail.bus import subjects
from toolrail.bus.connection import Connection

KV_PREFIX: Final = "$KV"
BLOB_PREFIX: Final = "$O"

_DUPLICATE_WINDOW_S: Final = 120.0
_MAX_WAITING_PULLS: Final = 8192
_NAME_IN_USE: Final = 10058
_RETRY_S: Final = 0.1
_TRY_S: Final = 2.0
_ENSURE_S: Final = 0.5
_AWAY: Final = 503
MESSAGE_ID: Final = "Nats-Msg-Id"
_MAX_DEAD_BYTES: Final = 256 << 20


async def ensure(connection: Connection) -> None:
    """Make all streams, or bring them up to the settings. Raises what nats-py raises.

    Without `nats_setup` they must be there: NotFoundError says which is not.
    """
    settings = connection.settings
    if not settings.nats_setup:
        await _ensure_present(connection)
        return
    await _ensure_stream(
        connection,
        api.StreamConfig(
            name=subjects.WORK_STREAM,
            subjects=[subjects.WORK_SUBJECTS],
            retention=api.RetentionPolicy.WORK_QUEUE,
            discard=api.DiscardPolicy.NEW,
            max_msgs=settings.max_queue_jobs,
            max_bytes=settings.max_queue_bytes,
            max_age=settings.job_max_age_s,
            duplicate_window=min(_DUPLICATE_WINDOW_S, settings.job_max_age_s),
            num_replicas=settings.replicas,
            storage=api.StorageType.FILE,
            allow_msg_ttl=True,
            allow_direct=True,
        ),
    )
    await _ensure_stream(
        connection,
        api.StreamConfig(
            name=subjects.DEAD_STREAM,
            subjects=[subjects.DEAD_SUBJECTS],
            max_msgs=settings.max_dead_letters,
            max_bytes=_MAX_DEAD_BYTES,
            max_age=settings.dead_letter_max_age_s,
            num_replicas=settings.replicas,
            storage=api.StorageType.FILE,
            allow_direct=True,
        ),
    )
    await _ensure_stream(
        connection,
        api.StreamConfig(
            name=subjects.AUDIT_STREAM,
            subjects=[subjects.AUDIT_SUBJECTS],
            max_bytes=settings.max_audit_stream_bytes,
            max_age=settings.audit_stream_max_age_s,
            duplicate_window=min(_DUPLICATE_WINDOW_S, settings.audit_stream_max_age_s),
            num_replicas=settings.replicas,
            storage=api.StorageType.FILE,
        ),
    )
    for bucket in (subjects.MODELS_BUCKET, subjects.INSTANCES_BUCKET):
        await _ensure_stream(connection, _bucket(bucket, settings.registration_ttl_s, connection))
    await _ensure_stream(
        connection,
        api.StreamConfig(
            name=f"OBJ_{subjects.BLOBS_BUCKET}",
            subjects=[
                f"{BLOB_PREFIX}.{subjects.BLOBS_BUCKET}.C.>",
                f"{BLOB_PREFIX}.{subjects.BLOBS_BUCKET}.M.>",
            ],
            discard=api.DiscardPolicy.NEW,
            num_replicas=settings.replicas,
            storage=api.StorageType.FILE,
            allow_rollup_hdrs=True,
            allow_msg_ttl=True,
            allow_direct=True,
        ),
    )
    await _ensure_stream(
        connection,
        api.StreamConfig(
            name=subjects.DOCUMENTS_STREAM,
            subjects=[f"{subjects.DOCUMENTS}.>"],
            max_msgs_per_subject=1,
            max_bytes=settings.max_document_bytes,
            discard=api.DiscardPolicy.OLD,
            num_replicas=settings.replicas,
            storage=api.StorageType.FILE,
            allow_msg_ttl=True,
            allow_direct=True,
        ),
    )


async def _ensure_present(connection: Connection) -> None:
    """All streams are there. Only one is asked for: they are made together, that one last."""
    await connection.jetstream.stream_info(subjects.DOCUMENTS_STREAM)


async def ensure_consumer(connection: Connection, model: str) -> None:
    """Make the durable consumer of one model's jobs. Raises what nats-py raises.

    No bound on deliveries: the server would then keep the job and say nothing. The worker sees
    `deliveries` and can answer for a job that kills its workers.
    """
    name = subjects.model_token(model)
    config = api.ConsumerConfig(
        durable_name=name,
        filter_subject=subjects.work(model),
        ack_policy=api.AckPolicy.EXPLICIT,
        ack_wait=connection.settings.ack_wait_s,
        max_ack_pending=-1,
        max_waiting=_MAX_WAITING_PULLS,
    )
    try:
        await connection.jetstream.add_consumer(subjects.WORK_STREAM, config)
    except APIError as error:
        if error.code != 404:
            raise
        await ensure(connection)  # the server came back without its state
        await connection.jetstream.add_consumer(subjects.WORK_STREAM, config)


async def publish(
    connection: Connection,
    subject: str,
    payload: bytes,
    *,
    headers: dict[str, str],
    timeout_s: float,
) -> int:
    """Put a message into the stream of `subject`: its number there. Raises what nats-py raises.

    When no stream takes it, it is made anew if the server came back without its state; a new one
    may not be known in all of a cluster yet, and one that changes its leader takes nothing for a
    moment. A message with an id is sent again when its acknowledgement does not come, since a
    connection may have taken either with it.
    """
    try_s = min(timeout_s, _TRY_S) if MESSAGE_ID in headers else timeout_s
    async with asyncio.timeout(timeout_s):
        while True:
            try:
                acknowledged = await connection.jetstream.publish(
                    subject, payload, try_s, headers=headers
                )
            except NoStreamResponseError:
                await _ensure_soon(connection)
                await asyncio.sleep(_RETRY_S)
            except NatsTimeoutError:
                if try_s == timeout_s:
                    raise
            else:
                return acknowledged.seq


async def _ensure_soon(connection: Connection) -> None:
    """Like `ensure`, but not for long: a cluster without a leader answers nothing of this.

    A call that it has lost would be waited for while the stream has long been there again. Whoever
    finds that another is at it leaves it to that one.
    """
    if connection.ensuring.locked():
        return
    async with connection.ensuring:
        await _ensure_in_time(connection)


async def _ensure_in_time(connection: Connection) -> None:
    try:
        async with asyncio.timeout(_ENSURE_S):
            await ensure(connection)
    except (NatsTimeoutError, TimeoutError):
        return
    except APIError as error:
        if error.code != _AWAY:
            raise


def _bucket(bucket: str, ttl_s: float, connection: Connection) -> api.StreamConfig:
    """A key-value bucket whose watchers are told of expired keys (by a marker, ADR-48 of NATS)."""
    return api.StreamConfig(
        name=f"KV_{bucket}",
        subjects=[f"{KV_PREFIX}.{bucket}.>"],
        max_msgs_per_subject=1,
        max_age=ttl_s,
        subject_delete_marker_ttl=max(1.0, ttl_s),
        duplicate_window=min(_DUPLICATE_WINDOW_S, ttl_s),
        discard=api.DiscardPolicy.NEW,
        num_replicas=connection.settings.replicas,
        storage=api.StorageType.FILE,  # a stream in memory does not outlive its server
        allow_rollup_hdrs=True,
        allow_msg_ttl=True,
        allow_direct=True,
        deny_delete=True,
    )


async def _ensure_stream(connection: Connection, config: api.StreamConfig) -> None:
    try:
        await connection.jetstream.add_stream(config)
    except APIError as error:
        if error.err_code != _NAME_IN_USE:
            raise
        await connection.jetstream.update_stream(config)
