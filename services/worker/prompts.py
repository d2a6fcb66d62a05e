"""Prompts that are too large for a message travel through the object store."""

from __future__ import annotations

import anyio
import msgspec

from toolrail.bus.port import ObjectStore
from toolrail.errors import FaultError
from toolrail.messages import Job, decode_token_ids


async def with_prompt(job: Job, blobs: ObjectStore, *, timeout_s: float) -> Job:
    """`job` with its prompt ids. Raises FaultError when they cannot be had."""
    if job.prompt_blob is None:
        return job
    try:
        with anyio.fail_after(timeout_s):
            ids = decode_token_ids(await blobs.get(job.prompt_blob))
    except KeyError as error:
        raise FaultError("the prompt is gone from the object store") from error
    except TimeoutError as error:
        raise FaultError("the object store did not give the prompt in time") from error
    return msgspec.structs.replace(job, prompt_token_ids=ids, prompt_blob=None)
