"""The service: prepares requests until told to stop, then finishes those it took."""

from __future__ import annotations

import logging
from typing import Final

import anyio

from services.preprocessor.compile_check import CompileCheck
from services.preprocessor.handing import Postprocessors
from services.preprocessor.intake import Intake
from services.preprocessor.metrics import CompileCollector, PreprocessorMetrics
from services.preprocessor.models import Models
from services.preprocessor.preparing import Preparing
from services.preprocessor.turns import Turns
from toolrail.bus import subjects
from toolrail.errors import FaultError
from toolrail.service import Runtime
from toolrail.service.liveness import Asking
from toolrail.settings import PreprocessorSettings
from toolrail.stored import StoredResponses

log: Final = logging.getLogger(__name__)


async def main(runtime: Runtime[PreprocessorSettings]) -> None:
    """Serve until `runtime.stopping`, then drain."""
    settings = runtime.settings
    tags = CompileCheck(settings)
    metrics = PreprocessorMetrics(runtime.metrics)
    runtime.metrics.register(CompileCollector(tags.stats))
    models = Models(
        runtime.directory,
        template_timeout_s=settings.template_timeout_s,
        turn_grammar=settings.turn_grammar,
        refuse_control_tokens=settings.control_tokens_in_content == "refuse",
    )
    preparing = Preparing(
        runtime.directory,
        models,
        tags,
        metrics,
        StoredResponses(runtime.bus.documents),
        # Before whoever waits for the hand-over gives up.
        check_budget_s=0.7 * settings.hand_over_timeout_s,
        without_hosted=settings.hosted_tools == "ignore",
    )
    asking = Asking(
        runtime.bus,
        runtime.directory,
        "postprocessor",
        probe_s=settings.probe_s,
        gone_s=settings.gone_s,
    )
    intake = Intake(
        runtime.bus,
        preparing,
        metrics,
        runtime.telemetry,
        Postprocessors(asking, timeout_s=settings.hand_over_timeout_s),
    )
    turns = Turns(
        intake.answer,
        metrics,
        at_once=settings.max_in_flight,
        max_waiting=settings.max_waiting,
        timeout_s=settings.hand_over_timeout_s,
    )
    try:
        await tags.start()
        async with anyio.create_task_group() as tasks:
            subscription = await runtime.bus.serve(
                subjects.PREPARE,
                subjects.PREPROCESSORS,
                turns.answer,
                # With room to say no: who waits in line, and some more, whom it has no room for.
                max_in_flight=2 * (settings.max_in_flight + settings.max_waiting),
            )
            tasks.start_soon(_keep_warm, runtime, models)
            tasks.start_soon(asking.watch)
            await runtime.announce()
            await runtime.stopping.wait()
            await subscription.stop(drain_s=settings.drain_s)
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await tags.stop()


async def _keep_warm(runtime: Runtime[PreprocessorSettings], models: Models) -> None:
    """Load what the announced models need before the first request asks. Runs until cancelled."""
    failed: set[str] = set()
    while True:
        for card in runtime.directory.cards():
            try:
                await models.get(card)
                failed.discard(card.name)
            except FaultError as error:
                if card.name not in failed:
                    log.error("model unusable", extra={"model": card.name, "reason": str(error)})
                failed.add(card.name)
        await anyio.sleep(runtime.settings.heartbeat_s)
