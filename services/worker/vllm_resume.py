"""Going on with a run that began on another worker: its ids so far are given, not generated.

Two ways. *Append*: the ids become the end of the prompt; they cost a prefill, a few milliseconds an
id at most, but a seed and penalties start anew, so this is for runs that have none of them. The
grammar of a constrained run is led over the ids where it is made (`vllm_advance`): never is it
appended without that, or it would start over inside the call. *Replay*: the prompt stays as it was
and a logits processor forces the first outputs; each costs a decode step, and everything (grammar,
seed, penalties, logprobs) is exactly as it would have been.

An engine that cannot replay appends seeded and penalised runs, too: what they have written is kept,
what follows is drawn anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import torch
from vllm import SamplingParams
from vllm.config import VllmConfig
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from services.worker.engine import EngineFailedError, Step
from services.worker.vllm_advance import ADVANCE
from toolrail.messages import Guidance, Job

REPLAY: Final = "toolrail_replay_ids"
"""Key of `SamplingParams.extra_args`."""


class ReplayPrefix(LogitsProcessor):
    """Forces the first outputs of the runs that ask for it. For vLLM's V1 model runner.

    An exception in here kills the engine with all its runs, hence no id is trusted.
    """

    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        # By row of the batch: what to force, and the run's own list of outputs, which grows.
        self._rows: dict[int, tuple[list[int], list[int]]] = {}

    def is_argmax_invariant(self) -> bool:
        """False: else greedy runs would skip it."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow the runs as they enter, move in and leave the batch."""
        process_dict_updates(self._rows, batch_update, _pending)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Leave one id to choose in the rows that are still being replayed."""
        for row, (forced, output) in self._rows.items():
            position = len(output)  # not a counter: a preempted run keeps its outputs
            if position < len(forced) and 0 <= forced[position] < logits.shape[-1]:
                logits[row] = float("-inf")
                logits[row, forced[position]] = 0.0
        return logits


def _pending(
    params: SamplingParams, _prompt: list[int] | None, output: list[int]
) -> tuple[list[int], list[int]] | None:
    forced = (params.extra_args or {}).get(REPLAY)
    return (forced, output) if forced and len(output) < len(forced) else None


@dataclass(frozen=True, slots=True)
class Submission:
    """What to ask vLLM for.

    Attributes:
        job: prompt and limits as vLLM must see them.
        prompt_tokens: length of the prompt that the caller sent.
        extra_args: of the sampling parameters.
        replayed: ids that will come first and must not be delivered again.
    """

    job: Job
    prompt_tokens: int
    extra_args: Mapping[str, Any] | None = None
    replayed: tuple[int, ...] = ()


def submission(job: Job, *, can_replay: bool, can_advance: bool) -> Submission:
    """How to run `job`, whether it is new or goes on.

    Raises:
        EngineFailedError: this engine has no way to go on with it.
    """
    prefix, prompt_tokens = job.prefix_token_ids, len(job.prompt_token_ids)
    if not prefix:
        return Submission(job, prompt_tokens)
    held = _is_held(job)
    if (can_advance or not held) and (not can_replay or _draws_from_nothing(job)):
        extra_args = {ADVANCE: len(prefix)} if held else None
        return Submission(_appended(job), prompt_tokens, extra_args)
    if not can_replay:
        raise EngineFailedError("this engine cannot go on with a constrained run")
    return Submission(job, prompt_tokens, {REPLAY: list(prefix)}, prefix)


def _appended(job: Job) -> Job:
    prefix, sampling = job.prefix_token_ids, job.sampling
    left = msgspec.structs.replace(
        sampling,
        max_tokens=sampling.max_tokens - len(prefix),
        min_tokens=max(0, sampling.min_tokens - len(prefix)),
    )
    prompt = job.prompt_token_ids + prefix
    return msgspec.structs.replace(job, prompt_token_ids=prompt, sampling=left)


def finished(job: Job, end_of_text: tuple[int, ...]) -> Step | None:
    """The last step of a run whose ids so far already end it; None when there is more to do."""
    prefix, sampling = job.prefix_token_ids, job.sampling
    if not prefix:
        return None
    if prefix[-1] in sampling.stop_token_ids:
        return Step(finish="stop", stop_token_id=prefix[-1])
    if prefix[-1] in end_of_text and not sampling.ignore_eos:
        return Step(finish="stop")
    return Step(finish="length") if len(prefix) >= sampling.max_tokens else None


def without_replayed(step: Step, left: tuple[int, ...]) -> tuple[Step, tuple[int, ...]]:
    """`step` without the replayed ids that are `left` to come, and what is left after it.

    Raises:
        EngineFailedError: the engine wrote something else.
    """
    count = min(len(left), len(step.token_ids))
    if step.token_ids[:count] != left[:count] or (step.finish is not None and count < len(left)):
        raise EngineFailedError("the ids to go on from were not replayed")
    kept = Step(
        step.token_ids[count:],
        step.finish,
        step.stop_token_id,
        step.logprobs[count:] if step.logprobs is not None else None,
        step.cached_tokens,
        step.error,
    )
    return kept, left[count:]


def _is_held(job: Job) -> bool:
    """Whether a grammar holds it."""
    return job.guidance not in (Guidance(), Guidance(reasoning_ended=False))


def _draws_from_nothing(job: Job) -> bool:
    """Whether what comes next depends on the ids alone, not on how often the engine drew them."""
    sampling = job.sampling
    return (
        sampling.seed is None and not sampling.presence_penalty and not sampling.frequency_penalty
    )
