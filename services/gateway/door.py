"""The door of the API: who is let in, on what terms, and which web pages may look on.

Without a key file everybody is let in. With one, every path but those that are open to all needs a
key; what generates is held to the key's limits before anything of its body is read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from services.gateway.cors import Cors
from services.gateway.exchange import Exchange
from services.gateway.keys import Keyring, UnauthorizedError, keys_in
from services.gateway.limits import LimitError, Limits
from services.gateway.metrics import Meters
from toolrail.api_keys import KeyRecord
from toolrail.errors import CallerError
from toolrail.settings import GatewaySettings

METERED: Final = "POST"
"""Requests of this method count against the limits: all that make work, and none that look."""


@dataclass(slots=True)
class Visit:
    """A request that was let in; `tokens` is what it used, to be set before it leaves."""

    tokens: int = 0


class Door:
    """One process's keys, accounts and origins."""

    def __init__(
        self,
        settings: GatewaySettings,
        meters: Meters,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the keys. Raises ConfigError."""
        self.cors = Cors(settings.cors_origins)
        self.keyring = Keyring.of(settings)
        self.limits = Limits(clock)
        self._meters = meters
        self._clock = clock

    async def follow_keys(self, every_s: float) -> None:
        """Take over changes of the key file. Runs until cancelled."""
        async for _ in self.keyring.changes(every_s):
            self.limits.forget_all_but(self.keyring.ids())

    def identify(self, exchange: Exchange) -> None:
        """Find out whose request it is. Raises CallerError (401) where that must be known."""
        if not self.keyring.in_use:
            return
        given = keys_in(exchange.header(b"authorization"), exchange.header(b"x-api-key"))
        try:
            exchange.key = self.keyring.identify(given)
        except UnauthorizedError as error:
            self._meters.refusals.labels(error.reason).inc()
            exchange.add_header("www-authenticate", b"Bearer")
            raise

    @contextmanager
    def visit(self, exchange: Exchange) -> Generator[Visit]:
        """Hold a request to its key's limits while it runs. Raises LimitError (429)."""
        visit = Visit()
        if (key := exchange.key) is None or exchange.method != METERED:
            yield visit
            return
        account = self.limits.account(key)
        try:
            entry = self.limits.enter(account, exchange.declared_bytes)
        except LimitError as error:
            self._meters.refusals.labels(error.reason).inc()
            raise
        finally:
            for name, value in account.headers(self._clock()):
                exchange.add_header(name, value)
        self._meters.key_requests.labels(key.name).inc()
        # A client that sends one request after the other must not meet its own last one.
        exchange.on_end = entry.release
        try:
            yield visit
        finally:
            entry.leave(visit.tokens)
            self._meters.key_tokens.labels(key.name).inc(visit.tokens)

    @contextmanager
    def running(self, key: KeyRecord | None) -> Generator[None]:
        """Count a generation for which no request of its key waits among those that run at once."""
        account = None if key is None else self.limits.account(key)
        if account is not None:
            account.running += 1
        try:
            yield
        finally:
            if account is not None:
                account.running -= 1

    def charge(self, key: KeyRecord | None, tokens: int) -> None:
        """Charge what was generated for a key while no request of it waited."""
        if key is not None:
            self.limits.account(key).charge(tokens, self._clock())
            self._meters.key_tokens.labels(key.name).inc(tokens)

    def need_metrics(self, exchange: Exchange) -> None:
        """Refuse whoever may not read the metrics. Raises CallerError (403)."""
        if exchange.key is not None and not exchange.key.metrics:
            self._meters.refusals.labels("forbidden").inc()
            text = "This API key may not read metrics: it needs 'metrics = true' in the key file."
            raise CallerError(text, code="insufficient_permissions", status=403)
