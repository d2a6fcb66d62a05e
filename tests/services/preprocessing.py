"""A preprocessor's core on a `MemoryBus`; gateway and postprocessor are the test's."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import tokenizers
from prometheus_client import CollectorRegistry
from tokenizers import decoders, models, pre_tokenizers

from services.preprocessor.handing import Postprocessors
from services.preprocessor.intake import Intake
from services.preprocessor.metrics import PreprocessorMetrics
from services.preprocessor.models import Models
from services.preprocessor.preparing import Preparing
from toolrail.bus import subjects
from toolrail.bus.memory import MemoryBroker
from toolrail.bus.port import Bus
from toolrail.errors import CallerError
from toolrail.messages import (
    Accepted,
    ModelCard,
    Prepare,
    Reply,
    Stream,
    decode_reply,
    decode_stream,
    encode,
)
from toolrail.service import serving
from toolrail.service.liveness import Asking
from toolrail.settings import PreprocessorSettings
from toolrail.stored import StoredResponses
from toolrail.telemetry import Telemetry

MODEL = "tiny/model"
TEMPLATE = """\
{%- for tool in tools or [] -%}
{{ tool | tojson }}
{% endfor -%}
{%- for m in messages -%}
<|im_start|>{{ m.role }}
{{ m.content }}
{%- for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
{%- if enable_thinking -%}
<think>
{% endif -%}
"""


def tokenizer_json() -> str:
    """A real tokenizer whose tokens are single bytes, and two special ones."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = tokenizers.Tokenizer(
        models.BPE(vocab={letter: n for n, letter in enumerate(letters)}, merges=[])
    )
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    return inner.to_str()


def card(**changes: Any) -> ModelCard:
    return ModelCard(
        **{
            "name": MODEL,
            "worker": "w1",
            "engine": "scripted",
            "context_length": 4096,
            "slots": 1,
            "vocab_size": 258,
            "tokenizer": "tokenizer",
            "chat_template": "template",
            "tool_parser": "hermes",
            "reasoning_parser": "qwen3",
            "created_s": 1_790_000_000,
            **changes,
        }
    )


@dataclass
class Tags:
    """A grammar engine that takes all tags, or refuses those that hold a word."""

    refused: str = ""
    seen: list[str] = field(default_factory=list)

    async def check(self, tag_json: str) -> bool:
        known = tag_json in self.seen
        self.seen.append(tag_json)
        if self.refused and self.refused in tag_json:
            raise CallerError("cannot be expressed", code="invalid_grammar")
        return known


@dataclass
class Postprocessor:
    """Takes streams; `reply` may refuse them."""

    streams: list[Stream] = field(default_factory=list)
    reply: Reply | None = None

    async def answer(self, payload: bytes) -> bytes:
        stream = decode_stream(payload)
        self.streams.append(stream)
        accepted = Accepted(
            request_id=stream.request_id, instance="post", control_subject="control"
        )
        return encode(self.reply or accepted)


@dataclass
class Bench:
    """What a test of the preprocessor has."""

    gateway: Bus
    broker: MemoryBroker
    post: Postprocessor
    tags: Tags
    preprocessor: Intake
    registry: CollectorRegistry

    async def ask(self, body: bytes | None = None, **prepare: Any) -> Reply:
        """The reply to a request with this body, or with these fields."""
        message = Prepare(
            **{
                "request_id": "r1",
                "body": body or b"",
                "reply_subject": subjects.events("gw"),
                **prepare,
            }
        )
        return decode_reply(
            await self.gateway.request(subjects.PREPARE, encode(message), timeout_s=20)
        )

    async def chat(self, **fields: Any) -> Reply:
        return await self.ask(request(**fields))

    async def chat_by_blob(self, **fields: Any) -> Reply:
        """The same with a body of any size."""
        await self.gateway.blobs.put("body.r1", request(**fields))
        return await self.ask(body_blob="body.r1")

    @property
    def stream(self) -> Stream:
        """The one stream that was handed over."""
        (stream,) = self.post.streams
        return stream


def request(**fields: Any) -> bytes:
    messages = [{"role": "user", "content": "Hi"}]
    return json.dumps({"model": MODEL, "messages": messages, **fields}).encode()


async def register(bus: Bus, *cards: ModelCard, template: str = TEMPLATE) -> None:
    """What a worker does: its files into the object store, its card into the bucket."""
    await bus.blobs.put("tokenizer", tokenizer_json().encode())
    await bus.blobs.put("template", template.encode())
    for entry in cards or (card(),):
        await bus.models.put(f"{subjects.model_token(entry.name)}.{entry.worker}", encode(entry))


@asynccontextmanager
async def bench(
    *cards: ModelCard,
    template: str = TEMPLATE,
    postprocessor: bool = True,
    max_payload_bytes: int = 8 << 20,
    telemetry: Telemetry | None = None,
    **settings: Any,
) -> AsyncGenerator[Bench]:
    broker = MemoryBroker(max_payload_bytes=max_payload_bytes)
    gateway, worker, post_bus = (broker.connect() for _ in range(3))
    own = broker.connect(telemetry)
    post, tags = Postprocessor(), Tags()
    await register(worker, *cards, template=template)
    if postprocessor:
        await post_bus.serve(subjects.STREAM, subjects.POSTPROCESSORS, post.answer, max_in_flight=9)
    made = PreprocessorSettings(**settings)
    async with serving("preprocessor", made, own, telemetry=telemetry) as runtime:
        metrics = PreprocessorMetrics(runtime.metrics)
        served = Models(
            runtime.directory,
            template_timeout_s=made.template_timeout_s,
            refuse_control_tokens=made.control_tokens_in_content == "refuse",
        )
        asking = Asking(
            own,
            runtime.directory,
            "postprocessor",
            probe_s=made.probe_s,
            gone_s=made.gone_s,
        )
        intake = Intake(
            own,
            Preparing(
                runtime.directory,
                served,
                tags,
                metrics,
                StoredResponses(runtime.bus.documents),
                check_budget_s=7.0,
            ),
            metrics,
            runtime.telemetry,
            Postprocessors(asking, timeout_s=made.hand_over_timeout_s),
        )
        runtime.tasks.start_soon(asking.watch)
        await own.serve(subjects.PREPARE, subjects.PREPROCESSORS, intake.answer, max_in_flight=9)
        yield Bench(gateway, broker, post, tags, intake, runtime.metrics)
    for bus in (gateway, worker, post_bus, own):
        await bus.close()
