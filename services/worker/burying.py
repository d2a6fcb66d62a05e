"""Records of jobs that no worker could run, for people: without prompts."""

from __future__ import annotations

import logging
import time
from typing import Final, Literal, TypeAlias

import msgspec

from toolrail.bus.port import WorkItem, WorkQueue
from toolrail.errors import FaultError
from toolrail.messages import DeadLetter, Job, Sampling, encode_dead_letter

Reason: TypeAlias = Literal["undeliverable", "undecodable"]
"""It ended the workers that tried it; this build cannot read it."""

log: Final = logging.getLogger("toolrail.worker")


class _Named(msgspec.Struct, frozen=True):
    request_id: str = ""


_named: Final = msgspec.msgpack.Decoder(_Named)


def unreadable(payload: bytes, model: str) -> Job:
    """What stands in the record of a job of `model` that could not be decoded.

    Whose it is, where that much can be read: it may be another version's.
    """
    try:
        request_id = _named.decode(payload).request_id
    except (msgspec.MsgspecError, UnicodeDecodeError):
        request_id = ""
    return Job(
        request_id=request_id, model=model, sampling=Sampling(max_tokens=1), reply_subject=""
    )


def letter(item: WorkItem, job: Job, worker: str, reason: Reason, message: str) -> DeadLetter:
    """What is kept of `job`, delivered as `item`, which this `worker` cannot run."""
    return DeadLetter(
        reason=reason,
        message=message,
        request_id=job.request_id,
        model=job.model,
        failed_ms=time.time_ns() // 1_000_000,
        deadline_ms=job.deadline_ms,
        prompt_tokens=len(job.prompt_token_ids),
        tokens=(len(job.prefix_token_ids),),
        attempts=(job.attempt,),
        workers=(worker,),
        deliveries=item.deliveries,
    )


async def bury(work: WorkQueue, model: str, record: DeadLetter) -> None:
    """Keep `record` among those of `model`; one that cannot be kept is logged."""
    try:
        await work.bury(model, encode_dead_letter(record))
    except FaultError as error:
        extra = {"reason": record.reason, "request_id": record.request_id, "code": error.code}
        log.warning("a dead letter is lost", extra=extra)
