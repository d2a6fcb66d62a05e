"""A service as an operating system process: arguments, signals, exit status."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NoReturn, TypeVar, cast

import anyio

from toolrail.bus.nats import NatsBus
from toolrail.bus.port import Bus
from toolrail.errors import ConfigError, FaultError
from toolrail.flags import help_text, load
from toolrail.redaction import redactor
from toolrail.service import logs, metrics
from toolrail.service.probes import Probes
from toolrail.service.runtime import Runtime, serving
from toolrail.settings import CommonSettings
from toolrail.telemetry import Telemetry, exporting
from toolrail.telemetry.content import Content

S = TypeVar("S", bound=CommonSettings)

log: Final = logging.getLogger("toolrail.service")

_CLOSE_TIMEOUT_S: Final = 5.0


def run(
    service: str,
    settings_type: type[S],
    main: Callable[[Runtime[S]], Awaitable[None]],
    *,
    argv: Sequence[str] | None = None,
    env: Mapping[str, str] | None = None,
) -> NoReturn:
    """Run a service as this process and exit.

    Exit status 0: it was told to stop, and has drained or used up `drain_s`. 1: it failed. 2: a
    setting is wrong; one line on standard error says which.
    """
    arguments = sys.argv[1:] if argv is None else argv
    logs.configure(service, service, "console", "INFO")
    if "--help" in arguments or "-h" in arguments:
        sys.stdout.write(help_text(settings_type, f"python -m services.{service}"))
        sys.exit(0)
    try:
        settings = load(settings_type, arguments, os.environ if env is None else env)
        _content(settings)
        status = anyio.run(_run, service, settings, main, backend_options={"use_uvloop": True})
    except ConfigError as error:
        sys.stderr.write(f"toolrail {service}: {error}\n")
        status = 2
    sys.exit(status)


async def _run(service: str, settings: S, main: Callable[[Runtime[S]], Awaitable[None]]) -> int:
    instance = settings.instance or f"{service}-{secrets.token_hex(4)}"
    settings = replace(settings, instance=instance)
    logs.configure(service, instance, settings.log_format, settings.log_level)
    stopping = anyio.Event()
    status = 0
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            tasks.start_soon(_obey_signals, stopping, scope, settings.drain_s)
            status = await _serve(service, settings, main, stopping)
        if scope.cancelled_caught:
            log.warning("stopped before all was finished", extra={"drain_s": settings.drain_s})
        tasks.cancel_scope.cancel()
    return status


async def _serve(
    service: str,
    settings: S,
    main: Callable[[Runtime[S]], Awaitable[None]],
    stopping: anyio.Event,
) -> int:
    """Connect, run `main`, close. The exit status."""
    telemetry = exporting(
        service,
        settings.instance,
        otlp_endpoint=settings.otlp_endpoint,
        sample_ratio=settings.trace_sample_ratio,
        content=_content(settings),
    )
    bus = await _connected(settings, telemetry, stopping)
    if bus is None:
        return 0 if stopping.is_set() else 1
    try:
        async with serving(
            service, settings, bus, telemetry=telemetry, stopping=stopping
        ) as runtime:
            runtime.tasks.start_soon(metrics.measure_lag, runtime.metrics)
            runtime.tasks.start_soon(metrics.measure_bus, runtime.metrics, bus, runtime.instance)
            answers = Probes(lambda: runtime.ready, settings.stuck_s)
            runtime.tasks.start_soon(answers.tick)
            async with metrics.exposed(
                runtime.metrics, settings.metrics_host, settings.metrics_port, answers
            ):
                return await _outcome(runtime, main)
    finally:
        with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True):
            await bus.close()
            await telemetry.close()


def _content(settings: CommonSettings) -> Content:
    """What spans hold of prompts and answers. Raises ConfigError."""
    mode = settings.trace_content
    rules = redactor(settings.redaction_file) if mode == "redacted" else None
    return Content(mode, rules, settings.max_trace_content_bytes)


async def _connected(
    settings: CommonSettings, telemetry: Telemetry, stopping: anyio.Event
) -> Bus | None:
    """The bus; None when it cannot be had, or when the service is told to stop before."""
    bus: Bus | None = None
    async with anyio.create_task_group() as tasks:

        async def give_up_when_stopping() -> None:
            await stopping.wait()
            tasks.cancel_scope.cancel()

        tasks.start_soon(give_up_when_stopping)
        try:
            bus = await NatsBus.connect(settings, telemetry=telemetry)
        except FaultError as error:
            log.error("no bus", extra={"reason": str(error)})
        tasks.cancel_scope.cancel()
    return bus


async def _outcome(runtime: Runtime[S], main: Callable[[Runtime[S]], Awaitable[None]]) -> int:
    """The exit status that `main` amounts to; the one place where its bugs are caught."""
    try:
        await main(runtime)
    except Exception as error:
        if (wrong := _config_error(error)) is not None:
            sys.stderr.write(f"toolrail {runtime.service}: {wrong}\n")
            return 2
        log.exception("service failed")
        return 1
    if not runtime.stopping.is_set():
        log.error("service ended without being told to")
        return 1
    log.info("stopped")
    return 0


async def _obey_signals(stopping: anyio.Event, scope: anyio.CancelScope, drain_s: float) -> None:
    """Stop at the first signal, within `drain_s`; at the second one at once."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            log.info("told to stop", extra={"signal": signal.Signals(number).name})
            if stopping.is_set():
                scope.cancel()
            stopping.set()
            scope.deadline = min(scope.deadline, anyio.current_time() + drain_s)


def _config_error(error: BaseException) -> ConfigError | None:
    if isinstance(error, BaseExceptionGroup):
        inner = cast("BaseExceptionGroup[BaseException]", error).exceptions
        return next((found for found in map(_config_error, inner) if found is not None), None)
    return error if isinstance(error, ConfigError) else None
