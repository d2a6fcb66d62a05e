"""The file of audit records and the receiver of logs, with no double for either."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from services.gateway.audit.files import FileSink
from services.gateway.audit.otlp import OtlpSink
from services.gateway.audit.sink import RefusedError, SinkError
from services.gateway.audit.sinks import StreamSink, sink_of
from services.gateway.audit.writing import Line
from tests import otlp
from toolrail.bus.memory import MemoryBroker
from toolrail.errors import ConfigError
from toolrail.settings import GatewaySettings

pytestmark = pytest.mark.anyio

TRACE = "0af7651916cd43dd8448eb211c80319c"


def line(number: int, size: int = 0) -> Line:
    data = json.dumps({"n": number, "pad": "x" * size}).encode()
    return Line(f"r{number}-request", data, 1.5, TRACE if number else "", failed=number == 2)


@asynccontextmanager
async def sink(path: Path, *, max_bytes: int = 1 << 20, files: int = 3) -> AsyncIterator[FileSink]:
    made = FileSink(str(path), max_bytes=max_bytes, max_files=files)
    await made.open()
    try:
        yield made
    finally:
        await made.close()


def numbers(path: Path) -> list[int]:
    text = path.read_text("utf-8")
    assert text == "" or text.endswith("\n")
    return [json.loads(record)["n"] for record in text.splitlines()]


async def test_records_are_lines_that_only_their_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.touch(0o644)
    async with sink(path) as file:
        await file.write([line(1), line(2)])
        await file.write([line(3)])
        assert numbers(path) == [1, 2, 3]  # before it is closed
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_full_file_makes_room_and_the_oldest_go(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with sink(path, max_bytes=300) as file:
        for number in range(10):
            await file.write([line(number, 80)])
        await file.write([line(10, 1000)])  # larger than a file may be: it has one for itself
        await file.write([line(11)])
    kept = [numbers(tmp_path / name) for name in ("audit.jsonl.2", "audit.jsonl.1", "audit.jsonl")]
    assert kept == [[9], [10], [11]]
    assert sorted(os.listdir(tmp_path)) == [
        "audit.jsonl", "audit.jsonl.1", "audit.jsonl.2", "audit.jsonl.lock",
    ]  # fmt: skip


async def test_room_that_could_not_be_made_is_made_later(tmp_path: Path) -> None:
    path, in_the_way = tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.1" / "in the way"
    in_the_way.mkdir(parents=True)
    async with sink(path, max_bytes=150, files=2) as file:
        await file.write([line(1, 80)])
        for _ in range(2):
            with pytest.raises(SinkError, match="cannot write"):
                await file.write([line(2, 80)])
        in_the_way.rmdir()
        in_the_way.parent.rmdir()
        await file.write([line(2, 80)])
    assert [numbers(tmp_path / name) for name in ("audit.jsonl.1", "audit.jsonl")] == [[1], [2]]


async def test_a_single_file_begins_anew(tmp_path: Path) -> None:
    async with sink(tmp_path / "a", max_bytes=150, files=1) as file:
        for number in range(3):
            await file.write([line(number, 60)])
        assert numbers(file.path) == [2]


@pytest.mark.parametrize("rest", [b'{"n": 9', b"x" * 200_000])
async def test_what_a_crash_left_of_a_line_goes(tmp_path: Path, rest: bytes) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b'{"n":1}\n' + rest)
    async with sink(path) as file:
        await file.write([line(2)])
    assert numbers(path) == [1, 2]
    path.write_bytes(rest)
    async with sink(path):
        assert numbers(path) == []


async def test_gateways_beside_each_other_have_a_file_each(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with sink(path) as first, sink(path) as second:
        assert (first.path.name, second.path.name) == ("audit.jsonl", "audit-2.jsonl")
        await first.write([line(1)])
        await second.write([line(2)])
    async with sink(path) as again:
        await again.write([line(3)])
    assert numbers(path) == [1, 3]
    assert numbers(second.path) == [2]


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_disk_that_is_full_gets_no_half_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with sink(path) as file:
        await file.write([line(1)])
        with no_file_larger_than(path.stat().st_size + 30), pytest.raises(SinkError, match="large"):
            await file.write([line(2), line(3, 100)])
        assert numbers(path) == [1]
        await file.write([line(2), line(3, 100)])
    assert numbers(path) == [1, 2, 3]


async def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="audit: cannot write"):
        await FileSink(str(tmp_path / "none" / "a"), max_bytes=1, max_files=1).open()


async def test_a_receiver_of_logs_gets_records_and_where_they_belong() -> None:
    with otlp.receiver() as receiver:
        logs = OtlpSink(f"{receiver.url}/", "gw", 5.0)
        await logs.open()
        await logs.write([line(0), line(1), line(2, 5 << 20)])
        zero, one, two = receiver.until_logs(3)
        await logs.close()
    assert (one.service, one.event, one.severity) == ("gateway", "toolrail.audit", "INFO")
    assert json.loads(one.body) == {"n": 1, "pad": ""}
    assert one.attributes["toolrail.audit.id"] == "r1-request"
    assert one.attributes["toolrail.audit.schema"] == "toolrail.audit/1"
    assert (zero.trace_id, one.trace_id, two.severity) == ("", TRACE, "WARN")


async def test_a_receiver_that_is_not_as_it_should_be_is_a_sink_that_is_away() -> None:
    with otlp.receiver() as receiver:
        logs = OtlpSink(receiver.url, "gw", 5.0)
        for status in (401, 404, 302):
            receiver.status = status
            with pytest.raises(SinkError, match=f"/v1/logs answers {status}"):
                await logs.write([line(1)])
        assert receiver.logs == []
        receiver.status = 200
        await logs.write([line(1)])
        receiver.until_logs(1)
        await logs.close()


async def test_a_receiver_that_refuses_records_is_not_asked_again() -> None:
    large = 3 << 20  # so that they are sent apart
    with otlp.receiver() as receiver:
        logs = OtlpSink(receiver.url, "gw", 5.0)
        receiver.refuses = '"n": 2,'
        with pytest.raises(RefusedError, match="answers 400") as info:
            await logs.write([line(1, large), line(2, large), line(3)])
        assert [refused.id for refused in info.value.lines] == ["r2-request", "r3-request"]
        assert [log.attributes["toolrail.audit.id"] for log in receiver.logs] == ["r1-request"]
        assert receiver.refusals == 1
        receiver.rejected = 1
        with pytest.raises(RefusedError, match="all but 1 of 2") as info:
            await logs.write([line(4), line(5)])
        assert (info.value.lines, info.value.lost) == ([], 1)
        with pytest.raises(RefusedError) as info:
            await logs.write([line(6)])
        assert ([refused.id for refused in info.value.lines], info.value.lost) == (
            ["r6-request"],
            0,
        )
        await logs.close()


async def test_a_bus_that_takes_less_by_now_keeps_the_others() -> None:
    broker = MemoryBroker()
    bus = broker.connect()
    stream = StreamSink(bus.audit, bus.max_payload_bytes, 5.0)
    await stream.open()
    with pytest.raises(RefusedError) as info:
        await stream.write([line(1), line(2, bus.max_payload_bytes), line(3)])
    assert [refused.id for refused in info.value.lines] == ["r2-request"]
    assert list(broker.audit) == ["r1-request", "r3-request"]


def test_settings_that_name_a_sink(tmp_path: Path) -> None:
    bus = MemoryBroker().connect()
    assert sink_of(GatewaySettings(), bus) is None
    file = sink_of(GatewaySettings(audit=f"file:{tmp_path}/a:b.jsonl"), bus)
    assert isinstance(file, FileSink)
    assert file.path == tmp_path / "a:b.jsonl"
    endpoints = GatewaySettings(audit="otlp", otlp_endpoint="http://127.0.0.1:1")
    assert isinstance(sink_of(endpoints, bus), OtlpSink)
    assert isinstance(sink_of(GatewaySettings(audit="otlp:http://127.0.0.1:1"), bus), OtlpSink)
