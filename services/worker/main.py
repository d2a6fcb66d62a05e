"""The worker service: checks its flags, loads its model, announces it, runs jobs until stopped."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

import anyio

from services.worker import card, model_files, parsers
from services.worker.engine import Engine
from services.worker.engines import make_engine
from services.worker.metrics import EngineSeries, WorkerMetrics
from services.worker.runner import Runner
from toolrail.service import Runtime
from toolrail.settings import DEMO_MODELS, WorkerSettings, model_directory, served_name

log: Final = logging.getLogger("toolrail.worker")

_DEMO_PARSERS: Final = {"demo": ("hermes", ""), "demo-think": ("hermes", "qwen3")}
"""Tool and reasoning parser that the demo models imply, unless flags say otherwise."""


async def main(runtime: Runtime[WorkerSettings]) -> None:
    """Serve one model until `runtime.stopping`.

    Raises:
        ConfigError: a flag that cannot work.
        EngineDeadError: the engine died and the process must be replaced.
    """
    settings = resolved(runtime.settings)
    if settings.engine == "vllm":
        runtime.telemetry.lend()  # before vLLM sets up tracing of its own
    files = await anyio.to_thread.run_sync(_read_files, settings)
    await parsers.check(settings)
    engine = await make_engine(settings, files)
    await serve(runtime, settings, files, engine)


async def serve(
    runtime: Runtime[WorkerSettings],
    settings: WorkerSettings,
    files: model_files.ModelFiles,
    engine: Engine,
) -> None:
    """Start `engine`, announce it once it is healthy, and run jobs on it."""
    try:
        await engine.start()
        await engine.health()
        if runtime.stopping.is_set():
            return
        runtime.metrics.register(EngineSeries())
        name = served_name(settings)
        runner = Runner(runtime, engine, name, WorkerMetrics(runtime.metrics))
        await runtime.announce(
            card=await card.make(runtime.bus, settings, files, engine, runtime.instance)
        )
        log.info("serving", extra={"model": name, "engine": settings.engine})
        await runner.run()
    finally:
        with anyio.CancelScope(shield=True):
            await engine.stop()


def resolved(settings: WorkerSettings) -> WorkerSettings:
    """The settings with what a demo model implies."""
    tool, reasoning = _DEMO_PARSERS.get(settings.model, ("", ""))
    return replace(
        settings,
        tool_call_parser=settings.tool_call_parser or tool,
        reasoning_parser=settings.reasoning_parser or reasoning,
    )


def _read_files(settings: WorkerSettings) -> model_files.ModelFiles:
    directory = model_directory(settings.model)
    if settings.model in DEMO_MODELS and not directory.is_dir():
        # Only here: the converter's packages are not needed to serve any other model.
        from services.worker import demo_model  # noqa: PLC0415

        demo_model.ensure(directory, think=settings.model == "demo-think")
    return model_files.read(directory, custom_template=settings.custom_jinja_template)
