from __future__ import annotations

import pytest

from services.gateway.limits import Account, Budget, LimitError, Limits
from toolrail.api_keys import KeyRecord

HASH = "sha256:" + "0" * 64


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def opened(**limits: int) -> tuple[Limits, Account, Clock]:
    clock = Clock()
    book = Limits(clock)
    return book, book.account(KeyRecord(id="0" * 12, name="a", hash=HASH, **limits)), clock


def refused(book: Limits, account: Account, size: int = 0) -> LimitError:
    with pytest.raises(LimitError) as raised:
        book.enter(account, size)
    return raised.value


def test_a_budget_refills_evenly_up_to_a_minute_s_worth() -> None:
    budget = Budget(60, 0.0)
    budget.spend(60, 0.0)
    assert budget.remaining(0.0) == 0
    assert budget.wait_s(1, 0.0) == pytest.approx(1.0)
    assert budget.remaining(10.5) == 10
    assert budget.remaining(1000.0) == 60
    assert budget.full_in_s(1000.0) == 0
    budget.spend(5, 999.0)  # a clock that stands still or goes back earns nothing
    assert budget.remaining(999.0) == 55


def test_no_window_of_time_lets_more_through_than_a_burst_and_the_rate() -> None:
    """Whatever the pattern of arrival: n seconds hold at most limit * (1 + n / 60)."""
    book, account, clock = opened(requests_per_minute=30)
    let_in: list[float] = []
    for step in range(4000):
        clock.now = 1000.0 + step * 0.05
        try:
            book.enter(account, 0)
        except LimitError:
            continue
        let_in.append(clock.now)
    for first in range(len(let_in)):
        for last in range(first, len(let_in)):
            assert last - first + 1 <= 30 * (1 + (let_in[last] - let_in[first]) / 60) + 1e-6
    assert len(let_in) >= 30 * (1 + 199 / 60) - 1


def test_a_refused_request_costs_nothing_and_says_when_to_come_again() -> None:
    book, account, clock = opened(requests_per_minute=2, tokens_per_minute=1000)
    book.enter(account, 0)
    book.enter(account, 0)
    error = refused(book, account)
    assert (error.reason, error.status, error.code) == ("requests", 429, "rate_limit_exceeded")
    assert error.retry_after_s == 30
    assert account.tokens is not None
    assert account.tokens.remaining(clock.now) == 998
    clock.now += 30
    book.enter(account, 0)


def test_tokens_are_charged_as_used_and_debt_is_earned_back() -> None:
    book, account, clock = opened(tokens_per_minute=600)
    entry = book.enter(account, 400)
    assert entry.estimate == 101
    entry.leave(1200)
    error = refused(book, account)
    assert error.reason == "tokens"
    assert error.retry_after_s == 61  # 600 in debt, and one token for the smallest body
    clock.now += 61
    book.enter(account, 0).leave(0)


def test_a_request_that_used_nothing_gives_its_estimate_back() -> None:
    book, account, clock = opened(tokens_per_minute=100)
    book.enter(account, 396).leave(0)
    assert account.tokens is not None
    assert account.tokens.remaining(clock.now) == 100


def test_a_body_longer_than_the_budget_needs_a_full_one() -> None:
    book, account, clock = opened(tokens_per_minute=60)
    entry = book.enter(account, 1 << 20)
    entry.leave(30)
    assert refused(book, account, 1 << 20).retry_after_s == 30
    clock.now += 30
    book.enter(account, 1 << 20)


def test_as_many_at_once_as_allowed() -> None:
    book, account, _ = opened(concurrent_requests=2)
    first = book.enter(account, 0)
    book.enter(account, 0)
    assert refused(book, account).reason == "concurrency"
    first.leave(10)
    book.enter(account, 0)
    assert refused(book, account).retry_after_s == 1


def test_a_request_whose_last_bytes_leave_makes_room_once() -> None:
    book, account, _ = opened(concurrent_requests=1)
    entry = book.enter(account, 0)
    entry.release()
    other = book.enter(account, 0)
    entry.leave(5)
    assert account.running == 1
    other.leave(5)
    assert account.running == 0


def test_limits_change_with_the_record_and_what_was_used_stays_used() -> None:
    book, account, clock = opened(requests_per_minute=10)
    for _ in range(8):
        book.enter(account, 0)
    record = KeyRecord(id="0" * 12, name="a", hash=HASH, requests_per_minute=4)
    assert book.account(record) is account
    assert account.requests is not None
    assert account.requests.remaining(clock.now) == 2
    book.account(KeyRecord(id="0" * 12, name="a", hash=HASH))
    assert account.headers(clock.now) == []


def test_headers_say_what_is_left() -> None:
    book, account, clock = opened(requests_per_minute=60, tokens_per_minute=6000)
    book.enter(account, 396)
    assert dict(account.headers(clock.now)) == {
        "x-ratelimit-limit-requests": b"60",
        "x-ratelimit-remaining-requests": b"59",
        "x-ratelimit-reset-requests": b"1.000s",
        "x-ratelimit-limit-tokens": b"6000",
        "x-ratelimit-remaining-tokens": b"5900",
        "x-ratelimit-reset-tokens": b"1.000s",
    }
