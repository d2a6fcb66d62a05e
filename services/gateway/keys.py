"""Who may use the API: the keys in force, and the file they come from, followed while it changes.

A file that cannot be read keeps the last good keys in force: it never opens the API.
"""

from __future__ import annotations

import datetime
import logging
import os
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import anyio
import anyio.to_thread

from toolrail.api_keys import KeyRecord, id_of, load_keys
from toolrail.errors import CallerError, ConfigError
from toolrail.settings import GatewaySettings

log: Final = logging.getLogger(__name__)

_Stamp: TypeAlias = tuple[int, int, int] | None

NOBODY: Final = KeyRecord(id="0" * 12, name="nobody", hash="sha256:" + "0" * 64)
"""Compared with where a key's id is unknown: an answer's time does not tell which ids exist."""


class UnauthorizedError(CallerError):
    """No key, or none that is in force. `reason`: `missing`, `unknown` or `expired`."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message, code="invalid_api_key", status=401)
        self.reason = reason


class Keyring:
    """The keys in force. None of them are in use where no file is named."""

    def __init__(self, path: Path | None) -> None:
        """Read the file. Raises ConfigError when it cannot be."""
        self._path = path
        self._stamp = _stamp(path)
        self._records: Mapping[str, KeyRecord] = load_keys(path) if path else {}

    @classmethod
    def of(cls, settings: GatewaySettings) -> Keyring:
        """The keys that the settings name; says in the log whether there are any."""
        path = Path(settings.api_keys_file).expanduser() if settings.api_keys_file else None
        keyring = cls(path)
        if path is None:
            log.info("no API keys in use: whoever reaches this address may use the API")
        else:
            log.info("API keys in use", extra={"file": str(path), "keys": len(keyring)})
        return keyring

    def __len__(self) -> int:
        """How many are in force."""
        return len(self._records)

    @property
    def in_use(self) -> bool:
        """Whether a key is asked for."""
        return self._path is not None

    def record(self, key_id: str) -> KeyRecord | None:
        """The record of that id, if it is in force."""
        return self._records.get(key_id)

    def ids(self) -> Collection[str]:
        """Those in force."""
        return self._records.keys()

    def identify(self, given: Iterable[str]) -> KeyRecord:
        """The record of the first of the `given` keys that is in force.

        Raises:
            UnauthorizedError: there is none. The keys are not repeated.
        """
        reason = "missing"
        for key in given:
            record = self._records.get(id_of(key) or "", NOBODY)
            if not record.holds(key) or record is NOBODY:
                reason = "unknown"
            elif record.expired(datetime.datetime.now(datetime.UTC)):
                reason = "expired"
            else:
                return record
        raise UnauthorizedError(_TEXTS[reason], reason)

    async def changes(self, every_s: float) -> AsyncGenerator[None]:
        """Take over the file's changes, one item for each; nothing where there is no file.

        A change is read when the file has stood still for one look, not while it is written.
        """
        if (path := self._path) is None:
            return
        seen = self._stamp
        while True:
            await anyio.sleep(every_s)
            stamp = await anyio.to_thread.run_sync(_stamp, path)
            if stamp == seen != self._stamp:
                self._stamp = stamp
                await self._reload(path)
                yield
            seen = stamp

    async def _reload(self, path: Path) -> None:
        try:
            self._records = await anyio.to_thread.run_sync(load_keys, path)
        except ConfigError as error:
            log.error("API keys not reloaded, the last ones stay", extra={"reason": str(error)})
        else:
            log.info("API keys reloaded", extra={"keys": len(self)})


_TEXTS: Final[Mapping[str, str]] = {
    "missing": "No API key was given: send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'.",
    "unknown": "Incorrect API key: ask the operator of this server for one.",
    "expired": "This API key has expired: ask the operator of this server for a new one.",
}


def keys_in(authorization: str | None, x_api_key: str | None) -> list[str]:
    """The keys that these two headers hold; some clients send both, one of them empty."""
    scheme, _, token = (authorization or "").strip().partition(" ")
    found = [token.strip()] if scheme.lower() == "bearer" else []
    return [key for key in (*found, (x_api_key or "").strip()) if key]


def _stamp(path: Path | None) -> _Stamp:
    """What tells one content of the file from the next; None where it is not there."""
    if path is None:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
