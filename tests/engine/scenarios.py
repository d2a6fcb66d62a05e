"""What a real engine does, as JSON: `python -m tests.engine.scenarios FILE`.

A process of its own, for vLLM must be imported outside pytest (it forks, and it warns). One engine
runs every scenario; the last one kills it. The tests look at the answers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import psutil

from services.worker import model_files
from services.worker.engine import Engine, run_name
from services.worker.engines import make_engine
from tests import otlp
from toolrail.messages import Guidance, Job, Sampling
from toolrail.settings import WorkerSettings, model_directory
from toolrail.tokens import Tokenizer

CALL: Final = {
    "type": "tag",
    "begin": '<tool_call>\n{"name": "set", "arguments": ',
    "content": {
        "type": "json_schema",
        "json_schema": {
            "type": "object",
            "properties": {
                "unit": {"enum": ["celsius", "fahrenheit"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 14},
            },
            "required": ["unit", "days"],
            "additionalProperties": False,
        },
        "max_whitespace_cnt": 1,
    },
    "end": "}\n</tool_call>",
}
END_THINK, TOOL_CALL = 4, 5
TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PROMPT = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"

DIRECTORY = model_directory("demo-think")
FILES = model_files.read(DIRECTORY)
TOKENIZER = Tokenizer.from_json(FILES.tokenizer_json)
# The engine's own reasoning boundary is on, so that what each run says of it must count.
SETTINGS: Final = WorkerSettings(
    model="demo-think",
    slots=8,
    max_model_len=1024,
    reasoning_parser="qwen3",
    structural_tag='{"reasoning_boundary": "backend"}',
)


def tag(tag_format: dict[str, Any]) -> Guidance:
    text = json.dumps({"type": "structural_tag", "format": tag_format})
    return Guidance(structural_tag=text)


REQUIRED = tag({"type": "tags_with_separator", "separator": "\n", "at_least_one": True,
                "stop_after_first": True, "tags": [CALL]})  # fmt: skip
OK = tag({"type": "const_string", "value": "OK"})


def job(name: str, prompt: str = PROMPT, **fields: Any) -> Job:
    sampling = {"max_tokens": 40, "temperature": 0.0} | fields.pop("sampling", {})
    return Job(
        request_id=name,
        model="m",
        reply_subject="x",
        prompt_token_ids=tuple(TOKENIZER.encode_now(prompt)),
        sampling=Sampling(**sampling),
        **fields,
    )


class Bench:
    def __init__(self, engine: Engine, spans: otlp.Receiver) -> None:
        self.engine = engine
        self.spans = spans

    async def run(
        self, one: Job, *, abort_after: int | None = None, **headers: str
    ) -> dict[str, Any]:
        """The whole run: text, ids, steps; or the error it raised."""
        ids: list[int] = []
        steps = []
        try:
            async for step in self.engine.generate(one, trace_headers=headers):
                ids += step.token_ids
                steps.append(step)
                if abort_after is not None and len(ids) >= abort_after:
                    abort_after = None
                    await self.engine.abort(run_name(one))
        except Exception as error:  # noqa: BLE001 (it is the answer)
            return {"error": type(error).__name__, "message": str(error)}
        last = steps[-1]
        return {
            "text": TOKENIZER.decode(ids),
            "ids": ids,
            "finish": last.finish,
            "stop_token_id": last.stop_token_id,
            "why": last.error,
            "steps": len(steps),
            "cached": steps[0].cached_tokens,
            "logprobs": [asdict_logprob(e) for step in steps for e in step.logprobs or ()],
        }

    async def all(self, **jobs: Job) -> dict[str, Any]:
        """Several runs at once."""
        found: dict[str, Any] = {}

        async def one(name: str) -> None:
            found[name] = await self.run(jobs[name])

        async with anyio.create_task_group() as tasks:
            for name in jobs:
                tasks.start_soon(one, name)
        return found


def asdict_logprob(entry: Any) -> dict[str, Any]:
    return {
        "id": entry.token_id,
        "logprob": entry.logprob,
        "top": [[top.token_id, top.logprob] for top in entry.top],
    }


async def tags(bench: Bench) -> dict[str, Any]:
    any_text = {"type": "any_text", "excludes": ["<tool_call>"]}
    push = {"logit_bias": {TOOL_CALL: 100.0}}
    return await bench.all(
        const=job("const", guidance=OK),
        required=job("required", guidance=REQUIRED, sampling={"max_tokens": 100}),
        cut=job("cut", guidance=REQUIRED, sampling={"max_tokens": 5}),
        free=job("free"),
        pushed=job("pushed", sampling=push | {"max_tokens": 4}),
        banned=job("banned", guidance=tag(any_text), sampling=push | {"max_tokens": 12}),
        regex=job("regex", guidance=Guidance(regex="[a-c]{3}")),
        choice=job("choice", guidance=Guidance(choice=("yes", "no"))),
        schema=job("schema", guidance=Guidance(json_schema='{"enum": [17]}')),
    )


async def reasoning(bench: Bench) -> dict[str, Any]:
    think = {"logit_bias": {END_THINK: 100.0}}
    return await bench.all(
        ended=job("ended", guidance=OK),
        open=job(
            "open",
            guidance=Guidance(structural_tag=OK.structural_tag, reasoning_ended=False),
            sampling=think,
        ),
        never=job(
            "never",
            guidance=Guidance(structural_tag=OK.structural_tag, reasoning_ended=False),
            sampling={"max_tokens": 12},
        ),
    )


async def failures(bench: Bench) -> dict[str, Any]:
    return await bench.all(
        uncompiled=job("uncompiled", guidance=tag({"type": "token", "token": 999_999})),
        invalid=job("invalid", guidance=tag({"type": "nope"})),
        no_json=job("no_json", guidance=Guidance(structural_tag="{")),
        bias=job("bias", sampling={"logit_bias": {999_999: 1.0}}),
        heat=job("heat", sampling={"temperature": -1.0}),
        empty=job("empty", prompt=""),
        long=job("long", prompt=PROMPT * 100),
        strange=Job(request_id="strange", model="m", reply_subject="x",
                    prompt_token_ids=(1, -1), sampling=Sampling(max_tokens=1)),
        well=job("well"),
    )  # fmt: skip


async def sampling(bench: Bench) -> dict[str, Any]:
    warm = {"temperature": 1.0, "max_tokens": 12}
    found = await bench.all(
        logprobs=job("logprobs", sampling={"logprobs": 2, "max_tokens": 3}),
        chosen_only=job("chosen_only", sampling={"logprobs": 0, "max_tokens": 2}),
        stop_id=job("stop_id", sampling={"stop_token_ids": tuple(TOKENIZER.encode_now(" France"))}),
        seed_1=job("seed_1", sampling=warm | {"seed": 1}),
        seed_1_again=job("seed_1_again", sampling=warm | {"seed": 1}),
        seed_2=job("seed_2", sampling=warm | {"seed": 2}),
        ignore=job("ignore", sampling={"ignore_eos": True, "max_tokens": 12}),
    )
    # Prompts that together are longer than one step takes, all seeded: vLLM once died of it.
    many = {
        f"many_{n}": job(f"many_{n}", prompt=PROMPT * 12 + str(n), sampling=warm | {"seed": n})
        for n in range(12)
    }
    found |= await bench.all(**many)
    found["cached"] = await bench.run(job("cached", prompt=PROMPT * 12))
    return found


async def aborting(bench: Bench) -> dict[str, Any]:
    endless = {"sampling": {"ignore_eos": True, "max_tokens": 900}}
    found = {"mid": await bench.run(job("mid", **endless), abort_after=3)}
    early = job("early", **endless)

    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            found["early"] = await bench.run(early)

        tasks.start_soon(run)
        await anyio.lowlevel.checkpoint()
        await bench.engine.abort(run_name(early))
    stream = bench.engine.generate(job("left", **endless), trace_headers={})
    await anext(stream)
    await stream.aclose()
    await bench.engine.abort("nobody/0")
    unfinished = bench.engine._llm.get_num_unfinished_requests()  # type: ignore[attr-defined]
    return found | {"unfinished": unfinished}


async def duplicates(bench: Bench) -> dict[str, Any]:
    first = job("twin", sampling={"max_tokens": 30, "ignore_eos": True})
    stream = bench.engine.generate(first, trace_headers={})
    step = await anext(stream)
    refused = await bench.run(job("twin", attempt=1))
    ids = [*step.token_ids, *[i async for step in stream for i in step.token_ids]]
    again = await bench.run(job("twin"))
    return {"refused": refused, "first_ids": len(ids), "again": again}


async def resuming(bench: Bench) -> dict[str, Any]:
    """Every run once whole, then from cuts."""
    whole = {
        "plain": job("plain", sampling={"max_tokens": 20, "ignore_eos": True}),
        "tagged": job("tagged", guidance=REQUIRED, sampling={"max_tokens": 100}),
        "seeded": job("seeded", guidance=REQUIRED,
                      sampling={"max_tokens": 100, "seed": 5, "temperature": 1.0}),
        "counted": job("counted", sampling={"max_tokens": 20, "presence_penalty": 1.5,
                                            "logprobs": 0, "ignore_eos": True}),
    }  # fmt: skip
    runs = await bench.all(**whole)
    resumed = {}
    for name, one in whole.items():
        for cut in (1, len(runs[name]["ids"]) // 2, len(runs[name]["ids"]) - 1):
            fields = {field: getattr(one, field) for field in ("guidance", "sampling")}
            resumed[f"{name}@{cut}"] = Job(
                request_id=f"{name}@{cut}",
                attempt=1,
                model="m",
                reply_subject="x",
                prompt_token_ids=one.prompt_token_ids,
                prefix_token_ids=tuple(runs[name]["ids"][:cut]),
                **fields,
            )
    resumed["over"] = job("over", prefix_token_ids=(100, 2))
    resumed["full"] = job("full", prefix_token_ids=(100, 101), sampling={"max_tokens": 2})
    wrong = TOKENIZER.encode_now("<tool_call>no")
    resumed["wrong"] = job("wrong", guidance=REQUIRED, prefix_token_ids=tuple(wrong))
    return {"whole": runs, "resumed": await bench.all(**resumed)}


async def tracing(bench: Bench) -> dict[str, Any]:
    """A run inside a caller's trace, and the spans that came of it."""
    await bench.run(job("traced"), traceparent=f"00-{TRACE}-{CALLER}-01")
    await anyio.to_thread.run_sync(bench.spans.until, traced)
    return {"spans": [span.__dict__ for span in bench.spans.spans if span.trace_id == TRACE]}


def traced(spans: list[otlp.Received]) -> bool:
    return any(span.trace_id == TRACE for span in spans)


async def dying(bench: Bench) -> dict[str, Any]:
    await bench.engine.health()
    stream = bench.engine.generate(
        job("doomed", sampling={"ignore_eos": True, "max_tokens": 900}), trace_headers={}
    )
    await anext(stream)
    (child,) = psutil.Process().children()
    child.kill()
    found: dict[str, Any] = {"in_flight": None, "health": None}
    try:
        async for _ in stream:
            pass
    except Exception as error:  # noqa: BLE001 (it is the answer)
        found["in_flight"] = type(error).__name__
    try:
        await bench.engine.health()
    except Exception as error:  # noqa: BLE001 (it is the answer)
        found["health"] = type(error).__name__
    return found | {"new": await bench.run(job("new"))}


SCENARIOS: Final[tuple[Callable[[Bench], Awaitable[dict[str, Any]]], ...]] = (
    tags, reasoning, failures, sampling, aborting, duplicates, resuming, tracing, dying,
)  # fmt: skip


async def main(found: dict[str, Any], spans: otlp.Receiver) -> None:
    engine = await make_engine(replace(SETTINGS, otlp_endpoint=spans.url), FILES)
    try:
        await engine.start()
        found["facts"] = {
            "slots": engine.slots,
            "vocab_size": engine.vocab_size,
            "context_length": engine.context_length,
            "advances": getattr(engine, "advances", False),
        }
        for scenario in SCENARIOS:
            found[scenario.__name__] = await scenario(Bench(engine, spans))
    finally:
        await engine.stop()


if __name__ == "__main__":
    answers: dict[str, Any] = {}
    try:
        with otlp.receiver() as spans:
            anyio.run(main, answers, spans, backend_options={"use_uvloop": True})
    finally:
        Path(sys.argv[1]).write_text(json.dumps(answers), encoding="utf-8")
