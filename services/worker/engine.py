"""The engine as the worker sees it: a job in, steps of token ids out.

Two implementations: `vllm_engine` runs a model, `scripted` plays a script. A step is what one
iteration of the engine adds to one run; text, parsers and families are nobody's business here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Protocol

import msgspec

from toolrail.errors import ToolrailError
from toolrail.messages import FinishReason, Job, TokenLogprob


class RefusedError(ToolrailError):
    """The engine refuses the job: the caller asked for something it cannot do.

    Attributes:
        param: the field of the request that asks for it, if the engine says so.
    """

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class DuplicateRunError(RefusedError):
    """A run of the same choice of the same request is live."""


class EngineFailedError(ToolrailError):
    """This run failed inside the engine; others go on."""


class EngineDeadError(ToolrailError):
    """The engine is gone with all its runs. The process must be replaced."""


class Step(msgspec.Struct, frozen=True, gc=False):
    """New ids of one run. A struct, for it is made once a token: a frozen dataclass costs tenfold.

    Attributes:
        token_ids: in order; the id that ended the run (end of text, a stop id) is among them.
        finish: set on the last step.
        stop_token_id: the stop id that ended it, unless that was the model's end of text.
        logprobs: one entry per id, when the job asks for them.
        cached_tokens: prompt ids read from the prefix cache, on the first step.
        error: why, when `finish` is "error".
    """

    token_ids: tuple[int, ...] = ()
    finish: FinishReason | None = None
    stop_token_id: int | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    cached_tokens: int | None = None
    error: str | None = None


class Engine(Protocol):
    """What runs jobs. One instance serves one worker process; `start` comes first."""

    @property
    def slots(self) -> int:
        """How many runs it takes at once."""
        ...

    @property
    def vocab_size(self) -> int:
        """Ids are below this."""
        ...

    @property
    def context_length(self) -> int:
        """Longest prompt and output together, in tokens."""
        ...

    async def start(self) -> None:
        """Load the model. Raises ConfigError when the settings cannot work."""
        ...

    def generate(
        self, job: Job, *, trace_headers: Mapping[str, str], redelivered: bool = False
    ) -> AsyncGenerator[Step]:
        """The run of `job`, which holds its prompt ids; the last step has a `finish`.

        A resumed job's output goes on after `prefix_token_ids`; its `max_tokens` counts them.
        `redelivered`: the job was delivered before, to somebody who did not start it.

        Raises:
            RefusedError: before the first step.
            DuplicateRunError: before the first step.
            EngineFailedError: this run failed.
            EngineDeadError: all runs failed.
        """
        ...

    async def abort(self, run: str) -> None:
        """End a run: it finishes with "abort" and its slot is free. No such run: nothing."""
        ...

    async def health(self) -> None:
        """Returns while the engine lives. Raises EngineDeadError."""
        ...

    async def stop(self) -> None:
        """End everything, child processes included. Safe after a failed `start`."""
        ...


def run_name(job: Job) -> str:
    """The engine's name of a job's run; two live runs never share one."""
    return f"{job.request_id}/{job.choice}"


def refuse_impossible_prompt(engine: Engine, job: Job) -> None:
    """Raises RefusedError for a prompt that would break an engine, or that it has no room for.

    A run that goes on with nothing left to write needs no room: only its end was lost.
    """
    if not job.prompt_token_ids:
        raise RefusedError("the prompt is empty")
    ids = job.prompt_token_ids + job.prefix_token_ids
    if min(ids) < 0 or max(ids) >= engine.vocab_size:
        raise RefusedError(f"the prompt holds ids outside the vocabulary of {engine.vocab_size}")
    over = 0 < job.sampling.max_tokens <= len(job.prefix_token_ids)
    if len(ids) >= engine.context_length and not over:
        raise RefusedError(f"the prompt has {len(ids)} tokens, the context {engine.context_length}")
