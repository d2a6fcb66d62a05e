"""vLLM behind the engine port: ids in, ids out, constraints as structural tags.

Built for vLLM 0.32 (CPU) and 0.33 (CUDA): only what both have is used. Import it after
`vllm_environment.prepare`, in a thread: it takes half a minute of CPU.

The engine itself runs in a child process of vLLM's. When that dies every run fails, and this
process must be replaced.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import anyio.to_thread
import msgspec
from vllm import AsyncEngineArgs, SamplingParams, TokensPrompt
from vllm.config import StructuredOutputsConfig, VllmConfig
from vllm.exceptions import VLLMClientError, VLLMError, VLLMValidationError
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError as VllmDeadError
from vllm.v1.executor.uniproc_executor import UniProcExecutor

from services.worker import vllm_environment, vllm_resume
from services.worker.engine import (
    DuplicateRunError,
    EngineDeadError,
    EngineFailedError,
    RefusedError,
    Step,
    refuse_impossible_prompt,
    run_name,
)
from services.worker.model_files import ModelFiles
from services.worker.vllm_advance import AdvancingAsyncScheduler, AdvancingScheduler
from services.worker.vllm_resume import ReplayPrefix, Submission
from toolrail.errors import ConfigError
from toolrail.messages import FinishReason, Guidance, Job, Sampling, TokenLogprob, TopLogprob
from toolrail.settings import WorkerSettings, parse_structural_tag

log: Final = logging.getLogger("toolrail.worker")

CPU_KV_CACHE_BYTES: Final = 1 << 30
"""Room for the keys and values of 22,000 tokens of the demo model in float32."""

SHUTDOWN_S: Final = 0.5
"""How long the engine process has to end before it is killed; it never does by itself (0.32)."""

_FIXED_TEXT: Final = Guidance(
    structural_tag='{"type": "structural_tag", "format": '
    '{"type": "const_string", "value": "one two three"}}'
)

_FINISH: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "abort": "abort",
    "error": "error",
    "repetition": "length",  # vLLM cut it off: the answer is not whole
}


_FIELDS: Final = {
    "bad_words": "bad_words",
    "logit_bias": "logit_bias",
    "logprobs": "top_logprobs",
    "max_tokens": "max_tokens",
    "stop_token_ids": "stop_token_ids",
    "temperature": "temperature",
    "top_p": "top_p",
}
"""Fields of requests, by the names that vLLM's refusals have for them."""


@dataclass(slots=True)
class _Live:
    """A run that vLLM may not know yet: its prompt is checked in a thread first."""

    aborted: bool = False


class VllmEngine:
    """See `services.worker.engine.Engine`.

    Attributes:
        advances: grammars can be led over the ids of a run that goes on here; tried at the start.
    """

    def __init__(self, settings: WorkerSettings, files: ModelFiles, *, cpu: bool) -> None:
        self._settings = settings
        self._files = files
        self._cpu = cpu
        self._llm: AsyncLLM
        self.advances = True
        self._live: dict[str, _Live] = {}

    @property
    def slots(self) -> int:
        """How many runs it takes at once."""
        return self._settings.slots

    @property
    def vocab_size(self) -> int:
        """Ids are below this."""
        return self._llm.model_config.get_vocab_size()

    @property
    def context_length(self) -> int:
        """Longest prompt and output together."""
        return self._llm.model_config.max_model_len

    async def start(self) -> None:
        """Load the model. For some seconds the event loop stands: vLLM forks from it."""
        try:
            with vllm_environment.ending_at_once():
                config = await anyio.to_thread.run_sync(self._config)
                if self._cpu:
                    vllm_environment.prefer_fork()
                with vllm_environment.own_child():
                    self._llm = AsyncLLM.from_vllm_config(config)
        except (ValueError, TypeError) as error:
            raise ConfigError("engine", f"vLLM refuses the settings: {error}") from error
        self.advances = await self._advances()
        if not self.advances:
            log.warning("this vLLM starts grammars over: runs that move here are replayed")

    async def _advances(self) -> bool:
        """Whether a constrained run that goes on writes the rest, not the whole again."""
        whole = await self._written("whole", ())
        return len(whole) > 1 and await self._written("rest", whole[:1]) == whole[1:]

    async def _written(self, name: str, prefix: tuple[int, ...]) -> tuple[int, ...]:
        """What the engine writes of a fixed text after `prefix`; nothing when it fails."""
        job = Job(
            request_id=f"toolrail-start-{name}",
            model="",
            prompt_token_ids=self._files.end_of_text_ids[:1] or (0,),
            prefix_token_ids=prefix,
            sampling=Sampling(max_tokens=16, temperature=0.0),
            guidance=_FIXED_TEXT,
            reply_subject="",
        )
        written: list[int] = []
        try:
            async for step in self.generate(job, trace_headers={}):
                if step.finish == "error":
                    return ()
                written += step.token_ids
        except (RefusedError, EngineFailedError) as error:
            log.warning("the engine did not write a fixed text: %s", error)
            return ()
        return tuple(written)

    async def generate(
        self, job: Job, *, trace_headers: Mapping[str, str], redelivered: bool = False
    ) -> AsyncGenerator[Step]:
        """The run of `job`."""
        del redelivered
        name = run_name(job)
        if name in self._live:
            raise DuplicateRunError(f"a run of {name} is live")
        refuse_impossible_prompt(self, job)
        if (last := vllm_resume.finished(job, self._files.end_of_text_ids)) is not None:
            yield last
            return
        live = self._live[name] = _Live()
        try:
            submission = vllm_resume.submission(
                job, can_replay=self._cpu, can_advance=self.advances
            )
            outputs = self._llm.generate(
                TokensPrompt(prompt_token_ids=list(submission.job.prompt_token_ids)),
                _sampling_params(submission),
                name,
                trace_headers=trace_headers if self._settings.otlp_endpoint else None,
                reasoning_ended=job.guidance.reasoning_ended,
            )
            async with (
                aclosing(outputs),
                aclosing(self._steps(name, live, submission, outputs)) as steps,
            ):
                async for step in steps:
                    yield step
        except VllmDeadError as error:
            raise EngineDeadError("the process of the vLLM engine is gone") from error
        except (VLLMClientError, ValueError, TypeError) as error:
            raise _refused(error) from error
        except VLLMError as error:
            raise EngineFailedError(_reason(error)) from error
        finally:
            del self._live[name]

    async def _steps(
        self,
        name: str,
        live: _Live,
        submission: Submission,
        outputs: AsyncGenerator[RequestOutput],
    ) -> AsyncGenerator[Step]:
        replayed, first = submission.replayed, True
        async for output in outputs:
            if live.aborted and not output.finished:
                await self._llm.abort(name)  # it came before vLLM knew of the run
                continue
            step = _step(output, submission, first=first)
            if replayed and step.finish != "abort":
                step, replayed = vllm_resume.without_replayed(step, replayed)
            if step.token_ids or step.finish is not None:
                yield step
                first = False

    async def abort(self, run: str) -> None:
        """End a run."""
        live = self._live.get(run)
        if live is not None:
            live.aborted = True
            await self._llm.abort(run)

    async def health(self) -> None:
        """Raises EngineDeadError when the engine process is gone."""
        try:
            await self._llm.check_health()
        except VllmDeadError as error:
            raise EngineDeadError("the process of the vLLM engine is gone") from error

    async def stop(self) -> None:
        """Kill the engine process."""
        llm = getattr(self, "_llm", None)
        if llm is not None:
            await anyio.to_thread.run_sync(llm.shutdown, SHUTDOWN_S)

    def _config(self) -> VllmConfig:
        preloaded = os.environ.get("LD_PRELOAD")
        config = AsyncEngineArgs(**self._arguments()).create_engine_config()
        # The CPU platform sets it for processes that it would spawn; ours are forked, and every
        # other child of this process would inherit it.
        if preloaded is None:
            os.environ.pop("LD_PRELOAD", None)
        scheduling = config.scheduler_config
        if scheduling.scheduler_cls is None:
            scheduling.scheduler_cls = (
                AdvancingAsyncScheduler if scheduling.async_scheduling else AdvancingScheduler
            )
        return config

    def _arguments(self) -> dict[str, Any]:
        settings = self._settings
        options = parse_structural_tag(settings.structural_tag)
        arguments: dict[str, Any] = {
            "model": str(self._files.directory),
            "served_model_name": [settings.served_model_name or settings.model],
            "max_num_seqs": settings.slots,
            "structured_outputs_config": StructuredOutputsConfig(backend="xgrammar"),
            "enable_prefix_caching": True,
        }
        if settings.max_model_len:
            arguments["max_model_len"] = settings.max_model_len
        if options is not None and options.reasoning_boundary == "backend":
            arguments["reasoning_parser"] = settings.reasoning_parser
        if settings.otlp_endpoint:
            arguments["otlp_traces_endpoint"] = f"{settings.otlp_endpoint.rstrip('/')}/v1/traces"
        if self._cpu:
            arguments |= self._cpu_arguments()
        if settings.kv_cache_bytes:
            arguments["kv_cache_memory_bytes"] = settings.kv_cache_bytes
        return arguments | _given_arguments(settings.engine_args)

    def _cpu_arguments(self) -> dict[str, Any]:
        """What was measured to start fast and to survive on a CPU (vLLM 0.32).

        float32: half precision costs three times the CPU without AVX-512. No chunked prefill: a
        seeded request whose prefill is split kills the engine ("CPU Generator does not use
        offset"); delete once vLLM mends it. The executor's class, as its name is overruled.
        """
        context = self._settings.max_model_len or self._files.context_length
        return {
            "dtype": "float32",
            "enforce_eager": True,
            "block_size": 32,
            "kv_cache_memory_bytes": CPU_KV_CACHE_BYTES,
            "enable_chunked_prefill": False,
            "max_num_batched_tokens": max(context, 2048),
            "distributed_executor_backend": UniProcExecutor,
            "logits_processors": [ReplayPrefix],
        }


def _given_arguments(flag: str) -> dict[str, Any]:
    if not flag:
        return {}
    try:
        return msgspec.json.decode(flag, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ConfigError("engine_args", f"not a JSON object: {error}") from error


def _sampling_params(submission: Submission) -> SamplingParams:
    sampling, guidance = submission.job.sampling, submission.job.guidance
    return SamplingParams(
        max_tokens=sampling.max_tokens,
        min_tokens=sampling.min_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repetition_penalty=sampling.repetition_penalty,
        seed=sampling.seed,
        logit_bias=sampling.logit_bias,
        logprobs=sampling.logprobs,
        stop_token_ids=list(sampling.stop_token_ids),
        bad_words=list(sampling.bad_words),
        ignore_eos=sampling.ignore_eos,
        structured_outputs=_constraint(guidance),
        extra_args=dict(submission.extra_args) if submission.extra_args else None,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )


def _constraint(guidance: Guidance) -> StructuredOutputsParams | None:
    """What vLLM is given: a JSON schema as the tag that the compile check saw.

    vLLM's own check of `json` refuses keywords that its grammar engine holds, and whitespace has no
    bound there.
    """
    tag = guidance.structural_tag
    if guidance.json_schema is not None:
        schema = json.loads(guidance.json_schema)
        held = {"type": "json_schema", "json_schema": schema, "max_whitespace_cnt": 16}
        tag = json.dumps({"type": "structural_tag", "format": held})
    given = {
        "structural_tag": tag,
        "regex": guidance.regex,
        "choice": list(guidance.choice) if guidance.choice is not None else None,
        "grammar": guidance.grammar,
    }
    given = {name: value for name, value in given.items() if value is not None}
    return StructuredOutputsParams(**given) if given else None


def _step(output: RequestOutput, submission: Submission, *, first: bool) -> Step:
    (choice,) = output.outputs
    finish = _FINISH[choice.finish_reason] if choice.finish_reason is not None else None
    stop = choice.stop_reason
    top = submission.job.sampling.logprobs
    return Step(
        tuple(choice.token_ids),
        finish,
        stop if isinstance(stop, int) else None,
        _logprobs(choice, top) if top is not None and choice.logprobs else None,
        min(output.num_cached_tokens or 0, submission.prompt_tokens) if first else None,
        "the engine failed this run" if finish == "error" else None,
    )


def _logprobs(choice: CompletionOutput, top: int) -> tuple[TokenLogprob, ...]:
    """The chosen ids with their `top` alternatives: one mapping holds both, ranked."""
    found: list[TokenLogprob] = []
    for token_id, position in zip(choice.token_ids, choice.logprobs or (), strict=True):
        entries = dict(position or {})
        ranked = sorted(entries.items(), key=lambda item: item[1].rank or 0)[:top]
        alternatives = tuple(TopLogprob(other, entry.logprob) for other, entry in ranked)
        found.append(TokenLogprob(token_id, entries[token_id].logprob, alternatives))
    return tuple(found)


def _refused(error: Exception) -> RefusedError:
    """VLLM's refusal, with the field of ours; without the value that vLLM puts behind its words."""
    if not isinstance(error, VLLMValidationError) or error.parameter not in _FIELDS:
        return RefusedError(_reason(error))
    return RefusedError(str(error.args[0]), param=_FIELDS[error.parameter])


def _reason(error: Exception) -> str:
    """The message, with the cause vLLM wraps ("Invalid structural tag specification")."""
    cause = error.__cause__
    return f"{error}: {cause}" if cause is not None and str(cause) else str(error)
