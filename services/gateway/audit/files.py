"""Records in a file, a line each: whole lines only, whoever dies, and bounded in size and number.

A batch is one write, and on the disk before it counts as kept. What a crash left of a line is cut
off when the file is opened again. A full file becomes `PATH.1`, that one `PATH.2` and so on. Where
another gateway of this host writes `audit.jsonl`, this one takes `audit-2.jsonl`, and so on.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from services.gateway.audit.sink import SinkError
from services.gateway.audit.writing import Line
from toolrail.errors import ConfigError

MAX_GATEWAYS: Final = 64
"""That may write beside each other."""
_MODE: Final = 0o600
_BLOCK: Final = 1 << 16


class FileSink:
    """A file and those that it was before. `path`: the one in use, once it is open."""

    max_record_bytes: int = 1 << 40

    def __init__(self, path: str, *, max_bytes: int, max_files: int) -> None:
        self.path = Path(path).expanduser().absolute()
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._file = -1
        self._lock = -1
        self._size = 0
        self._one_at_a_time = anyio.CapacityLimiter(1)

    async def open(self) -> None:
        """Take the first file that no other gateway has. Raises ConfigError."""
        try:
            await anyio.to_thread.run_sync(self._open, limiter=self._one_at_a_time)
        except OSError as error:
            raise ConfigError("audit", f"cannot write {self.path}: {error.strerror}") from error

    async def write(self, lines: Sequence[Line]) -> None:
        """Keep all of them, or none."""
        data = b"".join(line.data + b"\n" for line in lines)
        try:
            # Abandoned, since a disk that hangs must not hold the end of the process; a batch may
            # then be written twice, with the same ids.
            await anyio.to_thread.run_sync(
                self._write, data, limiter=self._one_at_a_time, abandon_on_cancel=True
            )
        except OSError as error:
            raise SinkError(f"cannot write {self.path}: {error.strerror}") from error

    async def close(self) -> None:
        """Let the next gateway have the file."""
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1

    def _open(self) -> None:
        first = self.path
        for number in range(1, MAX_GATEWAYS + 1):
            if number > 1:
                self.path = first.with_name(f"{first.stem}-{number}{first.suffix}")
            if self._locked():
                self._open_file()
                return
        raise OSError(0, f"{MAX_GATEWAYS} other gateways write there")

    def _locked(self) -> bool:
        """Whether the file is ours now. The lock is a file of its own: it is never renamed."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        lock = os.open(self.path.with_name(self.path.name + ".lock"), flags, _MODE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._lock = lock
        return True

    def _open_file(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(self.path, flags, _MODE)
        os.fchmod(self._file, _MODE)
        self._size = _whole_lines(self._file)
        os.ftruncate(self._file, self._size)

    def _write(self, data: bytes) -> None:
        if self._file < 0:  # making room failed half-way
            self._open_file()
        if self._size and self._size + len(data) > self._max_bytes:
            self._rotate()
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            os.fdatasync(self._file)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)

    def _rotate(self) -> None:
        """Give the file away under the next name; the oldest goes."""
        os.close(self._file)
        self._file = -1
        if self._max_files == 1:
            self.path.unlink(missing_ok=True)
        for number in range(self._max_files - 1, 0, -1):
            older = self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))
        self._open_file()

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path


def _whole_lines(file: int) -> int:
    """How many bytes of a file are whole lines."""
    end = os.fstat(file).st_size
    while end > 0:
        start = max(0, end - _BLOCK)
        at = os.pread(file, end - start, start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        end = start
    return 0
