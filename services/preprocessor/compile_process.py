"""One compile process, seen from the preprocessor: start it, ask it, notice how it ended."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import anyio
import msgspec
from anyio.abc import Process

from services.preprocessor.compile_worker import Answer, frame
from toolrail.errors import FaultError

_ROOT: Final = Path(__file__).resolve().parents[2]
_MODULE: Final = "services.preprocessor.compile_worker"
_OVER_CPU: Final = signal.SIGPROF
_CRASHES: Final = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL}
)
_MAX_ANSWER_BYTES: Final = 1 << 20
_REAP_S: Final = 5.0


class CompileProcessError(FaultError):
    """A compile process died, not by the tag's doing; another try may succeed."""

    code = "unavailable"
    retryable = True


class CompileProcess:
    """A child that checks one tag at a time. After any exception `kill` it and start another."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._buffer = b""
        self._answers = msgspec.json.Decoder(Answer)
        self._ready = False

    @classmethod
    async def start(cls, cpu_s: float, memory_bytes: int) -> CompileProcess:
        """A child that is loading the engine; `ready` waits for it."""
        command = [sys.executable, "-m", _MODULE, str(cpu_s), str(memory_bytes)]
        # The engine's warnings quote schemas, so they may not reach the log.
        return cls(await anyio.open_process(command, stderr=subprocess.DEVNULL, cwd=_ROOT))

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    async def ready(self) -> None:
        """Returns once the engine is loaded. Raises CompileProcessError if it does not load."""
        if not self._ready:
            await self._answer()
            self._ready = True

    async def ask(self, tag_json: str) -> None:
        """Hands the child a tag; the child must be ready. Raises CompileProcessError."""
        assert self._process.stdin is not None
        try:
            await self._process.stdin.send(frame(tag_json))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise CompileProcessError("the compile process is gone") from error

    async def answer(self) -> Answer:
        """The child's answer to `ask`, or the answer that its way of ending gives.

        Raises:
            CompileProcessError: the child was ended by something else than the tag.
        """
        try:
            return await self._answer()
        except CompileProcessError:
            code = self._process.returncode
            if code == -_OVER_CPU:
                return Answer(
                    error="compiling it takes too much CPU time", too_slow=True, retire=True
                )
            if code is not None and -code in _CRASHES:
                return Answer(error="the grammar engine crashes on it", too_slow=True, retire=True)
            raise

    async def _answer(self) -> Answer:
        assert self._process.stdout is not None
        while b"\n" not in self._buffer and len(self._buffer) < _MAX_ANSWER_BYTES:
            try:
                self._buffer += await self._process.stdout.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError) as error:
                with anyio.move_on_after(_REAP_S):
                    await self._process.wait()
                raise CompileProcessError(
                    f"the compile process ended (exit {self._process.returncode})"
                ) from error
        line, _, self._buffer = self._buffer.partition(b"\n")
        return self._answers.decode(line)

    async def kill(self) -> None:
        """Ends the child, whatever it does, and reaps it."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(_REAP_S):
            if self._process.returncode is None:
                self._process.kill()
            await self._process.aclose()
