"""Which engine the settings ask for. Heavy imports happen only for the one that is made."""

from __future__ import annotations

import importlib
import logging
from typing import Final

import anyio.to_thread

from services.worker import vllm_environment
from services.worker.engine import Engine
from services.worker.model_files import ModelFiles
from toolrail.errors import ConfigError
from toolrail.settings import WorkerSettings

log: Final = logging.getLogger("toolrail.worker")


async def make_engine(settings: WorkerSettings, files: ModelFiles) -> Engine:
    """The engine, not started. Raises ConfigError."""
    match settings.engine:
        case "vllm":
            return await _vllm(settings, files)
        case "scripted":
            return await _scripted(settings, files)


async def _vllm(settings: WorkerSettings, files: ModelFiles) -> Engine:
    cpu = vllm_environment.is_cpu_build()
    vllm_environment.prepare(cpu=cpu, tracing=bool(settings.otlp_endpoint))
    log.info("loading vLLM", extra={"model": str(files.directory), "cpu": cpu})
    try:
        with vllm_environment.ending_at_once(), vllm_environment.own_log_records():
            module = await anyio.to_thread.run_sync(
                importlib.import_module, "services.worker.vllm_engine"
            )
    except ModuleNotFoundError as error:
        raise ConfigError("engine", f"vllm is not installed here ({error.name})") from error
    return module.VllmEngine(settings, files, cpu=cpu)


async def _scripted(settings: WorkerSettings, files: ModelFiles) -> Engine:
    from services.worker.scripted import script  # noqa: PLC0415
    from services.worker.scripted.engine import Model, ScriptedEngine  # noqa: PLC0415
    from toolrail.tokens import Tokenizer  # noqa: PLC0415

    rows = script.load(settings.script)
    tokenizer = await anyio.to_thread.run_sync(Tokenizer.from_json, files.tokenizer_json)
    if not files.end_of_text_ids:
        raise ConfigError("model", "does not say which token ends a turn")
    model = Model(
        tokenizer,
        files.end_of_text_ids,
        settings.max_model_len or files.context_length,
        settings.slots,
    )
    walker = None
    if settings.obey_tag:
        from services.worker.scripted.walk import GrammarWalker  # noqa: PLC0415

        walker = GrammarWalker(tokenizer, files.end_of_text_ids[0], settings.scripted_seed)
    return ScriptedEngine(model, rows, walker=walker, step_s=settings.scripted_step_ms / 1000)
