"""`toolrail up`: the whole stack on this machine, without Docker.

Starts a NATS server (unless `--nats` names one) and every service as its own process, says READY
once a model can be served end to end, keeps everything running and ends it all on Ctrl-C.
"""

from __future__ import annotations

import argparse
import functools
import http.client
import json
import os
import shlex
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup

from toolrail.bus.connection import without_secrets
from toolrail.cli import stack as stacks
from toolrail.cli.supervisor import Life, Patience, Supervisor
from toolrail.errors import ConfigError
from toolrail.flags import load
from toolrail.settings import PostprocessorSettings, WorkerSettings, served_name

MAX_REPLICAS: Final = 64
DRAIN_SHARE: Final = 0.8
"""The services end before the grace does, so that none is killed while it drains."""
NATS_START_S: Final = 20.0
POLL_S: Final = 0.2
POLL_TIMEOUT_S: Final = 2.0
PROGRESS_S: Final = 15.0
"""How often a start that takes long says that it goes on."""

COMMON_FLAGS: Final = (
    "log_format",
    "log_level",
    "otlp_endpoint",
    "trace_sample_ratio",
    "trace_content",
    "redaction_file",
    "heartbeat_s",
    "registration_ttl_s",
    "hand_over_timeout_s",
)
"""Settings of every service that one may want to give all of them at once."""

GATEWAY_FLAGS: Final = (
    "api_keys_file",
    "audit",
    "audit_content",
    "cors_origins",
    "named_choice_finish_reason",
    "reasoning_field",
)
"""Settings of the gateway alone; others reach it as variables."""

GATEWAY_SWITCHES: Final = ("tool_call_dispatch", "reasoning_dispatch", "audit_required")
"""Those of them that are on or off."""

POSTPROCESSOR_FLAGS: Final = ("migration_limit",)
"""Settings of the postprocessor alone, likewise."""

SAMPLE_REQUEST: Final = {
    "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "strict": True,
                "parameters": {
                    "type": "object",
                    "properties": {
                        "city": {"type": "string", "maxLength": 40},
                        "unit": {"enum": ["celsius", "fahrenheit"]},
                    },
                    "required": ["city", "unit"],
                    "additionalProperties": False,
                },
            },
        }
    ],
    "tool_choice": "required",
    "parallel_tool_calls": False,
}

_NATS_INFORMATION: Final = " [INF] "
_PREFIX_WIDTH: Final = max(map(len, stacks.SERVICES))


class _Peer(msgspec.Struct):
    instance: str


class _Health(msgspec.Struct):
    models: list[str] = []
    instances: dict[str, list[_Peer]] = {}


def up(arguments: Sequence[str]) -> int:
    """Run the stack until it is told to end; 0 then, 1 when it could not be kept running."""
    options, worker_flags = _parser().parse_known_args(arguments)
    if options.status_file and not options.status_file.absolute().parent.is_dir():
        raise ConfigError("--status-file", f"{options.status_file.parent} is no directory")
    stack = _stack(options, worker_flags)
    status = 1
    try:
        status = anyio.run(_run, options, stack)
    except* BrokenPipeError:
        pass  # nobody reads the log any more: everything has ended, as commands in a pipe do
    finally:
        stack.listener.close()
        if stack.data_directory and not options.data_dir:
            shutil.rmtree(stack.data_directory, ignore_errors=True)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="toolrail up",
        description="Run NATS and every service on this machine, each as its own process.",
        epilog="Every other flag goes to the worker as it is: --tool-call-parser, "
        "--reasoning-parser, --structural-tag, --custom-jinja-template, --script, --obey-tag, "
        "--slots, the --dyn-… spellings …; `python -m services.worker --help` lists them all. "
        "TOOLRAIL_* variables reach every service. "
        "SIGUSR1 restarts all services, one after another; with two of each no request is lost.",
        allow_abbrev=False,
    )
    parser.add_argument("--model", help="model directory, or `demo` or `demo-think`")
    parser.add_argument("--engine", choices=("vllm", "scripted"), default="vllm")
    parser.add_argument("--host", default="127.0.0.1", help="address to serve HTTP on")
    parser.add_argument(
        "--port", type=int, default=8000, help="port to serve HTTP on; 0: a free one"
    )
    parser.add_argument(
        "--replicas",
        type=_replicas,
        default=_replicas(""),
        metavar="SERVICE=N,…",
        help="processes per service (default 1); gateways share the port",
    )
    parser.add_argument("--nats", metavar="URL", help="use this NATS server instead of an own one")
    parser.add_argument(
        "--nats-port", type=int, default=0, help="port of the own one; 0: a free one"
    )
    parser.add_argument("--data-dir", help="where the own one keeps its store (default: temporary)")
    parser.add_argument("--status-file", type=Path, help="JSON kept up to date with all processes")
    parser.add_argument(
        "--migration-limit",
        metavar="N",
        help="how often each choice of a request may move to another worker after its first "
        "token (default 3; 0: never)",
    )
    for name in GATEWAY_FLAGS:
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="VALUE", help="of the gateways")
    for name in GATEWAY_SWITCHES:
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            action="store_const",
            const="true",
            help="of the gateways",
        )
    parser.add_argument(
        "--drain-s",
        type=float,
        default=8.0,
        help="how long services may finish what runs when they are ended or restarted (default 8)",
    )
    everybody = parser.add_argument_group("settings of every service")
    for name in COMMON_FLAGS:
        everybody.add_argument(f"--{name.replace('_', '-')}", metavar="VALUE")
    return parser


def _replicas(text: str) -> dict[str, int]:
    replicas: dict[str, int] = dict.fromkeys(stacks.SERVICES, 1)
    for part in filter(None, text.split(",")):
        service, _, number = part.partition("=")
        if service not in replicas:
            raise argparse.ArgumentTypeError(
                f"{service!r} is no service; there are {', '.join(replicas)}"
            )
        if not number.isdecimal() or not 1 <= int(number) <= MAX_REPLICAS:
            raise argparse.ArgumentTypeError(f"{service}: a number from 1 to {MAX_REPLICAS}")
        replicas[service] = int(number)
    return replicas


def _stack(options: argparse.Namespace, worker_flags: Sequence[str]) -> stacks.Stack:
    flags = ["--engine", options.engine, *worker_flags]
    if options.model:
        flags = ["--model", options.model, *flags]
    common = _given(options, COMMON_FLAGS)
    # A flag that is wrong is told here, once, rather than in the log of every worker.
    worker = load(WorkerSettings, [*common, *flags], os.environ)
    postprocessor = _given(options, POSTPROCESSOR_FLAGS)
    load(PostprocessorSettings, [*common, *postprocessor], os.environ)
    listener = stacks.listen(options.host, options.port)
    data_directory = None
    if not options.nats:
        data_directory = Path(options.data_dir or tempfile.mkdtemp(prefix="toolrail-"))
    return stacks.Stack(
        nats_url=options.nats or f"nats://127.0.0.1:{options.nats_port or stacks.free_port()}",
        data_directory=data_directory,
        listener=listener,
        replicas=options.replicas,
        common_flags=common,
        gateway_flags=_given(options, (*GATEWAY_FLAGS, *GATEWAY_SWITCHES)),
        postprocessor_flags=postprocessor,
        worker_flags=flags,
        model=served_name(worker),
    )


def _given(options: argparse.Namespace, names: Sequence[str]) -> list[str]:
    """The command line of those of these settings that were given."""
    return [
        f"--{name.replace('_', '-')}={value}"
        for name in names
        if (value := getattr(options, name)) is not None
    ]


async def _run(options: argparse.Namespace, stack: stacks.Stack) -> int:
    base_url = stacks.base_url(options.host, stack.listener)
    patience = Patience(grace_s=options.drain_s / DRAIN_SHARE)
    supervisor = Supervisor(
        say=_say,
        log=_log_what_matters,
        changed=functools.partial(_write_status, options.status_file, base_url, stack.nats_url),
        environment=stacks.environment(
            os.environ, nats_url=stack.nats_url, drain_s=options.drain_s
        ),
        patience=patience,
    )
    with anyio.open_signal_receiver(
        signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1
    ) as signals:
        async with anyio.create_task_group() as tasks:
            async with anyio.create_task_group() as starting:
                starting.start_soon(_start, supervisor, tasks, stack, base_url)
                await _told_to_end(signals, supervisor, base_url)
                starting.cancel_scope.cancel()
            tasks.start_soon(_kill_on_signal, signals, supervisor)
            await supervisor.stop(stacks.SERVICES)
            await supervisor.stop()
            tasks.cancel_scope.cancel()
    return 1 if supervisor.failure else 0


async def _start(
    supervisor: Supervisor, tasks: TaskGroup, stack: stacks.Stack, base_url: str
) -> None:
    """Start everything in order and say READY when a model is served."""
    began = anyio.current_time()
    if stack.data_directory:
        supervisor.start(tasks, stacks.nats_program(stack))
        await _wait_for_nats(supervisor, stack.nats_url)
    for program in stacks.service_programs(stack):
        supervisor.start(tasks, program)
    await _wait_until_served(stack.model, base_url)
    supervisor.settle()
    _say(f"started in {anyio.current_time() - began:.1f} s, serving {stack.model}")
    request = shlex.quote(json.dumps({"model": stack.model, **SAMPLE_REQUEST}))
    print(
        f"READY {base_url} — try: curl -s {base_url}/v1/chat/completions "
        f"-H 'Content-Type: application/json' -d {request}",
        flush=True,
    )


async def _wait_for_nats(supervisor: Supervisor, url: str) -> None:
    host, _, port = url.removeprefix("nats://").rpartition(":")
    with anyio.move_on_after(NATS_START_S):
        while True:
            try:
                async with await anyio.connect_tcp(host, int(port)):
                    return
            except OSError:
                await anyio.sleep(POLL_S)
    supervisor.give_up(f"the NATS server does not listen on {url} after {NATS_START_S} s")


async def _wait_until_served(model: str, base_url: str) -> None:
    """Until `/health` lists the model: it can be used end to end."""
    began = said = anyio.current_time()
    while model not in await anyio.to_thread.run_sync(
        _served_models, base_url, abandon_on_cancel=True
    ):
        await anyio.sleep(POLL_S)
        now = anyio.current_time()
        if now - said >= PROGRESS_S:
            said = now
            _say(f"{model} is not served yet after {now - began:.0f} s; waiting")


def _served_models(base_url: str) -> list[str]:
    """Names that `/health` lists, which needs no key; none while the gateway does not answer."""
    return _health(base_url).models


def _present(base_url: str, service: str) -> list[str]:
    """Instances of `service` that serve, as `/health` lists them."""
    return [peer.instance for peer in _health(base_url).instances.get(service, ())]


def _health(base_url: str) -> _Health:
    # Not urllib's opener: it would take this machine's proxy settings for our own address.
    connection = http.client.HTTPConnection(urlsplit(base_url).netloc, timeout=POLL_TIMEOUT_S)
    try:
        connection.request("GET", "/health")
        return msgspec.json.decode(connection.getresponse().read(), type=_Health)
    except (OSError, http.client.HTTPException, msgspec.DecodeError):
        return _Health()
    finally:
        connection.close()


async def _told_to_end(
    signals: AsyncIterator[signal.Signals], supervisor: Supervisor, base_url: str
) -> None:
    """Until a signal says so or nothing can be kept running; SIGUSR1 restarts everything."""
    rolling = anyio.Lock()

    async def ready(life: Life) -> None:
        while True:
            present = await anyio.to_thread.run_sync(
                _present, base_url, life.service, abandon_on_cancel=True
            )
            if life.instance in present:
                return
            await anyio.sleep(POLL_S)

    async def roll() -> None:
        async with rolling:
            _say("restarting all services, one after another")
            await supervisor.roll(stacks.SERVICES, ready)
            _say("all services were restarted")

    async with anyio.create_task_group() as tasks:

        async def on_failure() -> None:
            await supervisor.failed.wait()
            tasks.cancel_scope.cancel()

        tasks.start_soon(on_failure)
        async for number in signals:
            if number != signal.SIGUSR1:
                break
            tasks.start_soon(roll)
        tasks.cancel_scope.cancel()
    _say(supervisor.failure or "ending (once more to kill)")


async def _kill_on_signal(signals: AsyncIterator[signal.Signals], supervisor: Supervisor) -> None:
    async for number in signals:
        if number != signal.SIGUSR1:
            supervisor.kill()


def _write_status(path: Path | None, base_url: str, nats_url: str, lives: Sequence[Life]) -> None:
    if path is None:
        return
    processes = [
        {"service": life.service, "instance": life.instance, "pid": life.pid} for life in lives
    ]
    shown = {"base_url": base_url, "nats_url": without_secrets(nats_url)}
    status = {**shown, "processes": processes}
    # Renamed into place: a reader sees the old or the new, never a half.
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(json.dumps(status, indent=2) + "\n", encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        # Not worth ending what runs.
        _say(f"cannot write {path}: {error.strerror}")


def _say(line: str) -> None:
    _log("toolrail", line)


def _log_what_matters(slot: str, line: str) -> None:
    # The server tells its whole configuration at every start; its warnings and errors are enough.
    if slot != "nats" or _NATS_INFORMATION not in line:
        _log(slot, line)


def _log(slot: str, line: str) -> None:
    print(f"{slot:<{_PREFIX_WIDTH}} | {line}", flush=True)
