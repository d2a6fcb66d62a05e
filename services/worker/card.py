"""The model card: what this worker tells the others of its model."""

from __future__ import annotations

import hashlib
import time

from services.worker.engine import Engine
from services.worker.model_files import ModelFiles
from toolrail.bus.port import Bus
from toolrail.messages import ModelCard
from toolrail.settings import WorkerSettings, parse_structural_tag, served_name


async def make(
    bus: Bus, settings: WorkerSettings, files: ModelFiles, engine: Engine, worker: str
) -> ModelCard:
    """The card of a started engine; tokenizer and template are in the object store by then."""
    return ModelCard(
        name=served_name(settings),
        worker=worker,
        engine=settings.engine,
        context_length=engine.context_length,
        slots=engine.slots,
        vocab_size=engine.vocab_size,
        tokenizer=await _store(bus, files.tokenizer_json),
        chat_template=await _store(bus, files.chat_template),
        eos_token_ids=files.end_of_text_ids,
        bos_token=files.bos_token,
        eos_token=files.eos_token,
        tool_parser=settings.tool_call_parser or None,
        reasoning_parser=settings.reasoning_parser or None,
        structural_tag=parse_structural_tag(settings.structural_tag),
        exclude_tools_when_tool_choice_none=settings.exclude_tools_when_tool_choice_none,
        parser_version=settings.dyn_parser_version,
        argument_validation=settings.argument_validation,
        default_sampling=dict(files.default_sampling),
        created_s=int(time.time()),
    )


async def _store(bus: Bus, text: str) -> str:
    """Put `text` into the object store; its name there is the hash of its content."""
    data = text.encode()
    name = f"sha256-{hashlib.sha256(data).hexdigest()}"
    await bus.blobs.put(name, data)
    return name
