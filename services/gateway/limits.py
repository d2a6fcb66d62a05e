"""What a key may use: requests and tokens a minute, and requests at once.

Budgets refill evenly, a sixtieth a second, and hold a minute's worth: a burst of that size passes,
the average never exceeds the limit. What a request will use is not known when it comes: it is let
in on an estimate and charged what it used when it is over, so a budget may go into debt and has to
earn it back. What other gateways say is charged as well, see `sharing`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, Literal, TypeAlias

from toolrail.api_keys import KeyRecord
from toolrail.errors import CallerError
from toolrail.messages import KeyUse

Reason: TypeAlias = Literal["requests", "tokens", "concurrency"]

_MINUTE_S: Final = 60.0
_BYTES_PER_TOKEN: Final = 4
"""Of a request's body; English text has about so many."""


class LimitError(CallerError):
    """A limit is reached: a 429 that says when to come again."""

    def __init__(self, reason: Reason, limit: str, wait_s: float) -> None:
        seconds = max(1, math.ceil(wait_s))
        super().__init__(
            f"The limit of this API key is reached: {limit}. Try again in {seconds} s.",
            code="rate_limit_exceeded",
            status=429,
            retry_after_s=seconds,
        )
        self.reason: Final = reason


class Budget:
    """So many a minute."""

    __slots__ = ("_at", "_level", "limit")

    def __init__(self, limit: int, now: float) -> None:
        self.limit = limit
        self._level = float(limit)
        self._at = now

    def wait_s(self, amount: float, now: float) -> float:
        """How long until `amount`, or the whole budget if that is less, is there. 0: it is."""
        missing = min(amount, self.limit) - self._now(now)
        return max(0.0, missing * _MINUTE_S / self.limit)

    def spend(self, amount: float, now: float) -> None:
        """Take it, into debt if need be; a negative amount gives back."""
        self._level = min(self._now(now) - amount, float(self.limit))

    def change(self, limit: int, now: float) -> None:
        """Another limit from now on; what was saved up stays, as far as it fits."""
        self._level = min(self._now(now), float(limit))
        self.limit = limit

    def remaining(self, now: float) -> int:
        """What is there, whole ones; 0 in debt."""
        return max(0, math.floor(self._now(now)))

    def full_in_s(self, now: float) -> float:
        """How long until it is full if nothing is spent."""
        return (self.limit - self._now(now)) * _MINUTE_S / self.limit

    def _now(self, now: float) -> float:
        earned = (now - self._at) * self.limit / _MINUTE_S
        self._level = min(self._level + max(0.0, earned), float(self.limit))
        self._at = max(now, self._at)
        return self._level


class Account:
    """What one key has left.

    Attributes:
        running: its requests that are answered here now.
        new_requests: what it used here that other gateways have not been told, as `new_tokens`.
    """

    __slots__ = (
        "concurrent",
        "key",
        "new_requests",
        "new_tokens",
        "requests",
        "running",
        "tokens",
    )

    def __init__(self, key: str) -> None:
        self.key = key
        self.new_requests = 0
        self.new_tokens = 0
        self.requests: Budget | None = None
        self.tokens: Budget | None = None
        self.concurrent: int | None = None
        self.running = 0

    def follow(self, record: KeyRecord, now: float) -> None:
        """Take over the record's limits, which may have changed."""
        self.requests = _adjusted(self.requests, record.requests_per_minute, now)
        self.tokens = _adjusted(self.tokens, record.tokens_per_minute, now)
        self.concurrent = record.concurrent_requests

    def charge(self, tokens: int, now: float) -> None:
        """Spend tokens, into debt if need be; a negative number gives back."""
        if self.tokens is not None:
            self.tokens.spend(tokens, now)
            self.new_tokens += tokens

    def news(self) -> KeyUse | None:
        """What the other gateways are to know, if anything; it is told once."""
        limited = self.requests or self.tokens or self.concurrent is not None
        if not limited or not (self.new_requests or self.new_tokens or self.running):
            return None
        use = KeyUse(self.key, self.new_requests, self.new_tokens, self.running)
        self.new_requests = self.new_tokens = 0
        return use

    def headers(self, now: float) -> list[tuple[str, bytes]]:
        """What is left, as OpenAI's API says it; nothing for what is not limited."""
        found: list[tuple[str, bytes]] = []
        for name, budget in (("requests", self.requests), ("tokens", self.tokens)):
            if budget is not None:
                found += (
                    (f"x-ratelimit-limit-{name}", b"%d" % budget.limit),
                    (f"x-ratelimit-remaining-{name}", b"%d" % budget.remaining(now)),
                    (f"x-ratelimit-reset-{name}", b"%.3fs" % budget.full_in_s(now)),
                )
        return found


class Entry:
    """A request that was let in. `leave` exactly once."""

    __slots__ = ("_account", "_clock", "_is_running", "estimate")

    def __init__(self, account: Account, estimate: int, clock: Callable[[], float]) -> None:
        self._account = account
        self._clock = clock
        self._is_running = True
        self.estimate = estimate

    def release(self) -> None:
        """Another one may run: of this one only the last bytes are on their way."""
        self._account.running -= self._is_running
        self._is_running = False

    def leave(self, tokens: int) -> None:
        """It is over and used so many tokens."""
        self.release()
        self._account.charge(tokens - self.estimate, self._clock())


class Limits:
    """The accounts of all keys that were seen.

    Attributes:
        running_elsewhere: requests that other gateways answer now, by the id of their key.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.running_elsewhere: Mapping[str, int] = {}
        self._clock = clock
        self._accounts: dict[str, Account] = {}

    def account(self, record: KeyRecord) -> Account:
        """The account of a key, with its limits as they are now."""
        account = self._accounts.setdefault(record.id, Account(record.id))
        account.follow(record, self._clock())
        return account

    def enter(self, account: Account, body_bytes: int) -> Entry:
        """Let a request in whose body is that long. Raises LimitError, with nothing spent."""
        now = self._clock()
        estimate = body_bytes // _BYTES_PER_TOKEN + 1
        running = account.running + self.running_elsewhere.get(account.key, 0)
        if account.concurrent is not None and running >= account.concurrent:
            text = f"{account.concurrent} requests at once"
            raise LimitError("concurrency", text, 1.0)
        asked: tuple[tuple[Reason, Budget | None, int], ...] = (
            ("requests", account.requests, 1),
            ("tokens", account.tokens, estimate),
        )
        for reason, budget, amount in asked:
            if budget is not None and (wait_s := budget.wait_s(amount, now)) > 0:
                raise LimitError(reason, f"{budget.limit} {reason} per minute", wait_s)
        if account.requests is not None:
            account.requests.spend(1, now)
            account.new_requests += 1
        account.charge(estimate, now)
        account.running += 1
        return Entry(account, estimate, self._clock)

    def news(self) -> Iterator[KeyUse]:
        """What other gateways are to know: what was used since the last call, and what runs."""
        return (use for account in self._accounts.values() if (use := account.news()) is not None)

    def used_elsewhere(self, record: KeyRecord, use: KeyUse) -> None:
        """Charge what another gateway let in."""
        account, now = self.account(record), self._clock()
        if account.requests is not None:
            account.requests.spend(use.requests, now)
        if account.tokens is not None:
            account.tokens.spend(use.tokens, now)

    def forget_all_but(self, ids: Collection[str]) -> None:
        """Drop the accounts of keys that are gone; their running requests end as they would."""
        for gone in self._accounts.keys() - set(ids):
            del self._accounts[gone]


def _adjusted(budget: Budget | None, limit: int | None, now: float) -> Budget | None:
    if limit is None:
        return None
    if budget is None:
        return Budget(limit, now)
    if budget.limit != limit:
        budget.change(limit, now)
    return budget
