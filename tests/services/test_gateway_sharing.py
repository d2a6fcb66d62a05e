"""Limits of keys hold for all gateways together, as far as they have heard of each other."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from services.gateway.keys import Keyring
from services.gateway.limits import Account, LimitError, Limits
from services.gateway.sharing import Sharing
from tests.services.postprocessor_bench import turns, until
from toolrail.bus import subjects
from toolrail.bus.memory import MemoryBroker
from toolrail.directory import Directory
from toolrail.messages import Instance, KeyUse, KeyUses, encode

pytestmark = pytest.mark.anyio

KEY = "0" * 12
FILE = """
[[keys]]
id = "000000000000"
name = "a"
hash = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
requests_per_minute = 10
tokens_per_minute = 1000
concurrent_requests = 3
"""
NEVER_S = 1000.0


@dataclass
class Gateway:
    name: str
    limits: Limits
    sharing: Sharing

    @property
    def account(self) -> Account:
        record = self._keyring.record(KEY)
        assert record is not None
        return self.limits.account(record)

    _keyring: Keyring


@asynccontextmanager
async def gateways(tmp_path: Path, count: int = 2) -> AsyncGenerator[tuple[Any, ...]]:
    broker, now = MemoryBroker(), 1000.0
    file = tmp_path / "keys.toml"
    file.write_text(FILE, encoding="utf-8")
    made: list[Gateway] = []
    async with anyio.create_task_group() as tasks:
        for number in range(count):
            name, bus, keyring = f"gateway-{number}", broker.connect(), Keyring(file)
            here = Instance(service="gateway", instance=name, pid=1)
            await bus.instances.put(f"gateway.{name}", encode(here))
            directory, limits = Directory(bus), Limits(lambda: now)
            await directory.start()
            sharing = Sharing(bus, directory, name, limits, keyring)
            tasks.start_soon(sharing.serve, NEVER_S)
            made.append(Gateway(name, limits, sharing, keyring))
            await turns()
            await until(lambda d=directory, n=number: len(d.instances("gateway")) > n)
        yield broker, *made
        tasks.cancel_scope.cancel()


async def test_what_one_lets_in_is_charged_at_the_other(tmp_path: Path) -> None:
    async with gateways(tmp_path) as (_, one, two):
        entry = one.limits.enter(one.account, 400)
        one.sharing.tell()
        await until(lambda: two.account.requests.remaining(1000.0) == 9)
        assert two.account.tokens.remaining(1000.0) == 1000 - 101
        entry.leave(500)
        one.sharing.tell()
        await until(lambda: two.account.tokens.remaining(1000.0) == 500)
        two.sharing.tell()
        await turns()
        assert one.account.tokens.remaining(1000.0) == 500, "it is not charged back"


async def test_requests_at_once_are_counted_together(tmp_path: Path) -> None:
    async with gateways(tmp_path) as (_, one, two):
        entries = [one.limits.enter(one.account, 0) for _ in range(2)]
        one.sharing.tell()
        await until(lambda: two.limits.running_elsewhere)
        two.limits.enter(two.account, 0)
        with pytest.raises(LimitError) as refused:
            two.limits.enter(two.account, 0)
        assert refused.value.reason == "concurrency"
        for entry in entries:
            entry.leave(0)
        one.sharing.tell()  # of the tokens that were given back
        one.sharing.tell()
        await until(lambda: not two.limits.running_elsewhere)
        two.limits.enter(two.account, 0)


async def test_more_than_the_limit_is_a_debt_that_both_earn_back(tmp_path: Path) -> None:
    """Both let a burst in before they heard of each other: neither lets anything in for long."""
    async with gateways(tmp_path) as (_, one, two):
        for gateway in (one, two):
            for _ in range(10):
                gateway.limits.enter(gateway.account, 0).leave(0)
        one.sharing.tell()
        two.sharing.tell()
        await turns()
        for gateway in (one, two):
            with pytest.raises(LimitError) as refused:
                gateway.limits.enter(gateway.account, 0)
            assert refused.value.retry_after_s == 66


async def test_one_alone_says_nothing_and_a_stranger_to_it_is_not_believed(tmp_path: Path) -> None:
    async with gateways(tmp_path, 1) as (broker, one):
        bus = broker.connect()
        heard: list[bytes] = []
        await bus.subscribe(subjects.KEY_USES, heard.append)
        one.limits.enter(one.account, 0)
        one.sharing.tell()
        await turns()
        assert heard == []
        await bus.publish(subjects.KEY_USES, b"\xc1")
        unknown = KeyUse("1" * 12, 5, 5, 5)
        await bus.publish(subjects.KEY_USES, encode(KeyUses(1, "gateway-9", (unknown,))))
        await until(lambda: one.limits.running_elsewhere)
        assert one.account.requests.remaining(1000.0) == 9
