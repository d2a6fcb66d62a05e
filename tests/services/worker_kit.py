"""A worker on an in-memory bus, its jobs, and what arrives at a postprocessor's address."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from services.worker.engine import Engine
from services.worker.metrics import WorkerMetrics
from services.worker.runner import Runner
from services.worker.scripted.engine import Model, ScriptedEngine
from services.worker.scripted.script import Row, parse
from toolrail.bus import subjects
from toolrail.bus.memory import MemoryBroker, MemoryBus
from toolrail.messages import (
    Cancel,
    Job,
    Sampling,
    TokenDelta,
    TokenFrame,
    decode_token_frame,
    encode,
)
from toolrail.service import Runtime, serving
from toolrail.settings import WorkerSettings
from toolrail.telemetry import Telemetry
from toolrail.tokens import Tokenizer

MODEL = "tiny"
REPLY = subjects.tokens("post-1")
END = "<|im_end|>"
SETTINGS = WorkerSettings(instance="worker-1", heartbeat_s=0.05, drain_s=5.0)


def tiny_tokenizer() -> tokenizers.Tokenizer:
    """Every byte a token, then words that only a walk uses, then special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["Ġquick", "Ġbrown", "Ġfox", "Hello", "World", '":', '",', '"}', "}}", "</"]
    vocabulary = {text: i for i, text in enumerate([*alphabet, *words])}
    inner = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    specials = (END, "<tool_call>", "</tool_call>")
    inner.add_special_tokens(
        [AddedToken(text, normalized=False, special=True) for text in specials]
    )
    return inner


TOKENIZER = Tokenizer(tiny_tokenizer())
END_ID = TOKENIZER.special_tokens[END]


def ids(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER.encode_now(text))


def write_tiny_model(path: Path) -> Path:
    """A model directory with the tiny tokenizer and no weights."""
    path.mkdir()
    contents: dict[str, Any] = {
        "config.json": {"max_position_embeddings": 512, "eos_token_id": END_ID},
        "tokenizer_config.json": {"eos_token": END, "chat_template": "{{ messages }}"},
    }
    for name, content in contents.items():
        (path / name).write_text(json.dumps(content), encoding="utf-8")
    (path / "tokenizer.json").write_text(tiny_tokenizer().to_str(), encoding="utf-8")
    return path


def script(*rows: dict[str, Any]) -> tuple[Row, ...]:
    return parse(json.dumps(row) for row in rows)


def model(slots: int = 4, context_length: int = 4096) -> Model:
    return Model(TOKENIZER, (END_ID,), context_length, slots)


def job(request_id: str = "r", prompt: str = "hi", **fields: Any) -> Job:
    fields = {"sampling": Sampling(max_tokens=1000), "reply_subject": REPLY} | fields
    return Job(request_id=request_id, model=MODEL, prompt_token_ids=ids(prompt), **fields)


@dataclass
class Inbox:
    """What was sent to one postprocessor."""

    frames: list[TokenFrame] = field(default_factory=list[TokenFrame])
    _more: anyio.Event = field(default_factory=anyio.Event)

    def receive(self, payload: bytes) -> None:
        self.frames.append(decode_token_frame(payload))
        self._more.set()

    def deltas(self, request_id: str = "r", choice: int = 0) -> list[TokenDelta]:
        return [
            delta
            for frame in self.frames
            for delta in frame.deltas
            if (delta.request_id, delta.choice) == (request_id, choice)
        ]

    def text(self, request_id: str = "r", choice: int = 0) -> str:
        deltas = self.deltas(request_id, choice)
        return TOKENIZER.decode([i for delta in deltas for i in delta.token_ids if i != END_ID])

    async def until(self, condition: Callable[[], object]) -> None:
        with anyio.fail_after(10):
            while not condition():
                self._more = anyio.Event()
                await self._more.wait()

    async def ended(self, request_id: str = "r", choice: int = 0) -> TokenDelta:
        """The last delta of a choice, once it is there."""
        await self.until(
            lambda: (found := self.deltas(request_id, choice)) and found[-1].finish is not None
        )
        return self.deltas(request_id, choice)[-1]


@dataclass
class Bench:
    """A worker that runs, and the other end of its bus."""

    bus: MemoryBus
    runtime: Runtime[WorkerSettings]
    inbox: Inbox
    stopped: anyio.Event = field(default_factory=anyio.Event)
    failure: Exception | None = None

    async def put(self, *jobs: Job) -> None:
        for one in jobs:
            message_id = f"{one.request_id}:{one.choice}:{one.attempt}"
            await self.bus.work.put(MODEL, encode(one), message_id=message_id, timeout_s=1)

    async def cancel(self, request_id: str, choice: int | None = None) -> None:
        cancel = Cancel(request_id=request_id, choice=choice)
        await self.bus.publish(subjects.cancel(MODEL), encode(cancel))

    async def stop(self) -> None:
        self.runtime.stopping.set()
        with anyio.fail_after(10):
            await self.stopped.wait()


async def turns(count: int = 50) -> None:
    """Let everything that is ready happen."""
    for _ in range(count):
        await anyio.lowlevel.checkpoint()


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(10):
        while not condition():
            await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def working(
    engine: Engine,
    *,
    broker: MemoryBroker | None = None,
    bus: MemoryBus | None = None,
    telemetry: Telemetry | None = None,
    **settings: Any,
) -> AsyncIterator[Bench]:
    """A runner of `engine` on a fresh bus (or on `broker`, or over `bus`), stopped at the end."""
    broker = broker or MemoryBroker()
    own_bus = bus or broker.connect()
    bus = bus or broker.connect()
    inbox = Inbox()
    await bus.subscribe(REPLY, inbox.receive)
    own = replace(SETTINGS, **settings)
    async with (
        serving("worker", own, own_bus, telemetry=telemetry) as runtime,
        anyio.create_task_group() as tasks,
    ):
        bench = Bench(bus, runtime, inbox)
        await engine.start()

        async def run() -> None:
            runner = Runner(runtime, engine, MODEL, WorkerMetrics(runtime.metrics))
            try:
                await runner.run()
            except Exception as error:  # noqa: BLE001 (a test looks at it)
                bench.failure = error
            bench.stopped.set()

        tasks.start_soon(run)
        yield bench
        await bench.stop()
        await engine.stop()


def scripted(*rows: dict[str, Any], slots: int = 4, **options: Any) -> ScriptedEngine:
    """An engine whose scripted death takes its runs, not this process."""

    def die() -> None:
        engine.kill()

    engine = ScriptedEngine(model(slots), script(*rows), die=die, **options)
    return engine
