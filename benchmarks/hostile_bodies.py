"""How long request bodies made to be slow keep a preprocessor from its other requests.

    .venv/bin/python -m benchmarks.hostile_bodies

The real preprocessor, postprocessor and worker (scripted engine) in this process on an in-memory
bus. Each body is prepared once while the loop is asked for a turn every millisecond. `stall` is the
longest that it did not get one, in CPU time of the whole process, so that it counts also threads
that hold the interpreter, and not what else the machine does. A stall of some milliseconds is the
interpreter's switch interval; `cpu` is what the body cost in all, compile processes left out.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any, Final

import anyio

from services.postprocessor.main import main as postprocessor
from services.preprocessor.main import main as preprocessor
from services.worker.main import main as worker
from toolrail.bus import subjects
from toolrail.bus.memory import MemoryBroker
from toolrail.bus.port import Bus
from toolrail.flags import load
from toolrail.messages import Failed, Prepare, Reply, decode_reply, encode
from toolrail.service import serving
from toolrail.settings import PostprocessorSettings, PreprocessorSettings, WorkerSettings

_BEAT_S: Final = 0.001
_READY_S: Final = 60.0
_SIZE: Final = 8 << 20
"""A body of the size that the gateway takes by default."""

_USER: Final = {"role": "user", "content": "x"}


def bodies() -> Iterator[tuple[str, bytes]]:
    """Each kind of body by name."""
    yield "an ordinary one", _chat()
    yield "one long message", _chat(messages=[{"role": "user", "content": "word " * (_SIZE // 6)}])
    yield "one long message, escaped", _raw_message(b"\\u0041" * (_SIZE // 6))
    yield "250,000 messages", _chat(messages=[{"role": "user", "content": ""}] * 250_000)
    yield (
        "a message of 250,000 parts",
        _chat(messages=[{"role": "user", "content": [{"type": "text", "text": ""}] * 250_000}]),
    )
    yield "a body of brackets", b"[" * _SIZE
    yield "nested deeply under a field", _field(b"metadata", b'{"a":' * (_SIZE // 6))
    yield "containers in a schema", _schema({"type": "object", "x": [[]] * 2_000_000})
    yield "a schema of many properties", _schema(_closed(20_000))
    yield "a long enum", _schema({"enum": [f"{i:06}" for i in range(700_000)]})
    yield "80,000 tools", _chat(tools=[_tool(f"f{i}", {"type": "object"}) for i in range(80_000)])
    yield "a thousand tools", _chat(tools=[_tool(f"f{i}", _closed(20)) for i in range(1000)])
    yield "a long pattern", _schema(_one({"type": "string", "pattern": "(a|b)?" * 50_000}))
    yield "a long name", _schema({"type": "object", "properties": {"a" * (_SIZE - 400): {}}})
    yield "numbers of many digits", _schema({"type": "object", "x": 0}, b"1" * (_SIZE - 400))
    yield "history of large arguments", _chat(messages=_history("[" + "[]," * 900_000 + "[]]"))
    yield "history of deep arguments", _chat(messages=_history("[" * 2_000_000))
    yield "template variables", _chat(chat_template_kwargs={"a": [[]] * 2_000_000})
    yield "not JSON at its end", _chat(messages=[_USER] * 200_000)[:-2] + b"!"


def _chat(**fields: Any) -> bytes:
    wanted = {"model": "demo", "messages": [_USER], "max_tokens": 1} | fields
    return json.dumps(wanted, separators=(",", ":")).encode()[:_SIZE]


def _raw_message(text: bytes) -> bytes:
    return b'{"model":"demo","messages":[{"role":"user","content":"' + text + b'"}]}'


def _field(name: bytes, value: bytes) -> bytes:
    return b'{"model":"demo","messages":[{"role":"user","content":"x"}],"%s":%s' % (name, value)


def _tool(name: str, schema: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def _schema(schema: Any, zero: bytes = b"0") -> bytes:
    return _chat(tools=[_tool("f", schema)]).replace(b'"x":0', b'"x":' + zero)


def _closed(count: int) -> dict[str, Any]:
    properties = {f"p{i}": {"type": "string"} for i in range(count)}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _one(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}, "required": ["a"]}


def _history(arguments: str) -> list[dict[str, Any]]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return [
        _USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "x"},
    ]


class Beats:
    """Asks the loop for a turn again and again.

    Attributes:
        longest_s: CPU time of the process between two turns, at most.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def run(self) -> None:
        """Until cancelled."""
        before = time.process_time()
        while True:
            await anyio.sleep(_BEAT_S)
            now = time.process_time()
            self.longest_s = max(self.longest_s, now - before)
            before = now


async def _prepare(bus: Bus, body: bytes) -> Reply:
    prepare = Prepare(request_id=uuid.uuid4().hex, body=body, reply_subject="ev.nobody")
    return decode_reply(await bus.request(subjects.PREPARE, encode(prepare), timeout_s=60))


async def measure(bus: Bus, name: str, body: bytes) -> None:
    """Prepare one body, and print its row."""
    beats, began = Beats(), time.process_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beats.run)
        await anyio.sleep(2 * _BEAT_S)
        reply = await _prepare(bus, body)
        await anyio.sleep(2 * _BEAT_S)
        tasks.cancel_scope.cancel()
    said = f"{reply.status} {reply.error_code}" if isinstance(reply, Failed) else "accepted"
    cpu_ms, stall_ms = (time.process_time() - began) * 1000, beats.longest_s * 1000
    print(f"{name:32}{len(body) / 2**20:8.1f}{cpu_ms:9.0f}{stall_ms:9.1f}  {said}", flush=True)


async def main() -> None:
    """Print a row for each body."""
    broker = MemoryBroker(max_payload_bytes=16 << 20)
    stopping = anyio.Event()
    settings = {
        "worker": (worker, load(WorkerSettings, ["--engine", "scripted"], {})),
        "postprocessor": (postprocessor, load(PostprocessorSettings, [], {})),
        "preprocessor": (preprocessor, load(PreprocessorSettings, [], {})),
    }
    async with AsyncExitStack() as stack:
        bus = broker.connect()
        mains = []
        for name, (service, flags) in settings.items():
            runtime = await stack.enter_async_context(
                serving(name, flags, broker.connect(), stopping=stopping)
            )
            mains.append((service, runtime))
        tasks = await stack.enter_async_context(anyio.create_task_group())
        for service, runtime in mains:
            tasks.start_soon(service, runtime)
        with anyio.fail_after(_READY_S):
            while not runtime.directory.servable("demo"):  # noqa: ASYNC110
                await anyio.sleep(0.05)
        await _prepare(bus, _chat())  # loads tokenizer, template and grammar engine
        print(f"{'body':32}{'MiB':>8}{'cpu ms':>9}{'stall':>9}  answer")
        for name, body in bodies():
            await measure(bus, name, body)
        stopping.set()


if __name__ == "__main__":
    anyio.run(main, backend_options={"use_uvloop": True})
