"""The services as NATS users with least rights: each can do its work, and nothing else."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx
import nats
import pytest
from nats.aio.client import Client

from benchmarks.processes import free_port
from tests.compose.processes import process, program
from tests.e2e.sse import stream
from tests.e2e.tools import SCHEMAS, ask, tool
from toolrail.bus import access, subjects
from toolrail.bus.embedded import server_binary
from toolrail.bus.nats import NatsBus
from toolrail.cli import main
from toolrail.settings import CommonSettings

pytestmark = pytest.mark.nats

START_S = 90.0
PATIENCE_S = 60.0
SERVICES = ("gateway", "preprocessor", "postprocessor", "worker")


@dataclass
class Secured:
    """A server with our users, and our services as these users."""

    folder: Path
    port: int = field(default_factory=free_port)
    gateway_port: int = field(default_factory=free_port)
    running: ExitStack = field(default_factory=ExitStack)

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def server_log(self) -> str:
        return (self.folder / "nats.log").read_text(errors="replace")

    def environment(self, user: str) -> dict[str, str]:
        lines = (self.folder / "users" / f"{user}.env").read_text("utf-8").splitlines()
        return dict(line.split("=", 1) for line in lines) | {"TOOLRAIL_NATS_URL": self.url}

    def start_service(self, service: str, *flags: str) -> None:
        log = self.folder / f"{service}.out"
        command = ["-m", f"services.{service}", *flags]
        self.running.enter_context(process(command, self.environment(service), log))

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=f"http://127.0.0.1:{self.gateway_port}", timeout=60)

    def wait_healthy(self) -> None:
        deadline = time.monotonic() + START_S
        with self.client() as client:
            while True:
                try:
                    if client.get("/health").status_code == 200:
                        return
                except httpx.TransportError:
                    pass
                assert time.monotonic() < deadline, self.server_log[-4000:]
                time.sleep(0.1)


def start_server(secured: Secured) -> None:
    config = secured.folder / "nats.conf"
    config.write_text(
        f"listen: 127.0.0.1:{secured.port}\n"
        f'log_file: "{secured.folder / "nats.log"}"\n'
        "max_payload: 8MB\n"
        f'jetstream {{ store_dir: "{secured.folder / "js"}" }}\n'
        'include "users/users.conf"\n',
        encoding="utf-8",
    )
    command = [str(server_binary()), "-c", str(config)]
    secured.running.enter_context(program(command, {}, secured.folder / "nats.out"))
    deadline = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", secured.port), 1).close()
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    secured = Secured(tmp_path_factory.mktemp("secured"))
    assert main(["nats", "users", str(secured.folder / "users")]) == 0
    with secured.running:
        start_server(secured)
        setup = [sys.executable, "-m", "toolrail.cli", "nats", "setup"]
        subprocess.run(
            [str(Path(sys.executable).with_name("toolrail")), *setup[3:]],
            env=os.environ | secured.environment(access.SETUP),
            check=True,
            timeout=START_S,
            capture_output=True,
        )
        secured.start_service("worker", "--engine", "scripted", "--obey-tag")
        secured.start_service("preprocessor")
        secured.start_service("postprocessor")
        gateway_port = str(secured.gateway_port)
        secured.start_service("gateway", "--port", gateway_port, "--audit", "jetstream")
        secured.wait_healthy()
        yield secured


def violations(secured: Secured) -> list[str]:
    return [line for line in secured.server_log.splitlines() if "Violation" in line]


CALL = ask(tools=[tool("point", SCHEMAS["nested_object"])], tool_choice="required", max_tokens=200)


def test_every_service_can_do_its_work(secured: Secured) -> None:
    with secured.client() as client:
        answer = client.post("/v1/chat/completions", json=CALL)
        assert answer.status_code == 200, answer.text
        turn = stream(client, CALL)
        assert turn.finish_reason == "tool_calls"
        # A body and a prompt that travel through the object store.
        long = ask("x " * (5 << 20), max_tokens=1)
        assert client.post("/v1/chat/completions", json=long).status_code == 400
        stored = client.post(
            "/v1/responses", json={"model": "demo", "input": "hi", "max_output_tokens": 20}
        )
        assert stored.status_code == 200, stored.text
        kept = client.get(f"/v1/responses/{stored.json()['id']}")
        assert kept.status_code == 200, kept.text
        assert client.delete(f"/v1/responses/{stored.json()['id']}").status_code == 200
    assert violations(secured) == []


@pytest.mark.anyio
async def test_who_may_not_append_records_learns_so(secured: Secured) -> None:
    async with bus_of(secured, "worker") as bus:
        assert not await bus.audit.may_append(timeout_s=1)
    async with bus_of(secured, "gateway") as bus:
        assert await bus.audit.may_append(timeout_s=PATIENCE_S)


@pytest.mark.parametrize("user", ["gateway", "preprocessor"])
def test_doctor_looks_at_what_its_user_may(secured: Secured, user: str) -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("toolrail")), "doctor", "--json"],
        env=os.environ | secured.environment(user),
        timeout=START_S,
        capture_output=True,
        check=False,
    )
    said = [json.loads(line) for line in done.stdout.splitlines()]
    of_records = [each for each in said if each["about"] == "audit records"]
    assert {each["level"] for each in of_records} == {"ok"}, of_records
    assert ("none of the user" in of_records[0]["text"]) is (user != "gateway")
    assert any(each["about"] == "stored responses" for each in said)


@asynccontextmanager
async def bus_of(secured: Secured, user: str, **settings: Any) -> AsyncIterator[NatsBus]:
    bus = await NatsBus.connect(
        CommonSettings(
            nats_url=secured.url,
            nats_nkey_file=str(secured.folder / "users" / f"{user}.nk"),
            nats_inbox_prefix=access.inbox_prefix(user),
            nats_setup=False,
            connect_timeout_s=PATIENCE_S,
            **settings,
        )
    )
    try:
        yield bus
    finally:
        await bus.close()


@pytest.mark.anyio
async def test_a_gateway_bounds_what_an_owner_has_stored(secured: Secured) -> None:
    async with bus_of(secured, "gateway", max_owner_document_bytes=1 << 20) as bus:
        await bus.documents.put("owner.first", b"1", ttl_s=600)
        for number in range(400):
            await bus.documents.put(f"owner.k{number}", bytes(4096), ttl_s=600)
        with anyio.fail_after(PATIENCE_S), suppress(KeyError):
            while await bus.documents.get("owner.first"):  # noqa: ASYNC110
                await anyio.sleep(0.05)
        assert len(await bus.documents.get("owner.k399")) == 4096


@pytest.mark.anyio
async def test_a_postprocessor_sees_what_has_left_the_queue(secured: Secured) -> None:
    settings = CommonSettings(
        nats_url=secured.url,
        nats_nkey_file=str(secured.folder / "users" / "postprocessor.nk"),
        nats_inbox_prefix=access.inbox_prefix("postprocessor"),
        nats_setup=False,
        connect_timeout_s=PATIENCE_S,
    )
    bus = await NatsBus.connect(settings)
    try:
        receipt = await bus.work.put("nobody's", b"", message_id="1", timeout_s=PATIENCE_S)
        assert await bus.work.gone("nobody's", [receipt, "1000000"]) == {"1000000"}
        await bus.work.withdraw(receipt)
    finally:
        await bus.close()


@pytest.mark.anyio
async def test_the_auditor_reads_what_the_gateway_writes_and_nothing_else(secured: Secured) -> None:
    with secured.client() as client:
        answer = client.post("/v1/chat/completions", json=ask("audit this", max_tokens=5))
        assert answer.status_code == 200, answer.text
    async with connected(secured, access.AUDITOR) as (client, refused):
        jetstream = client.jetstream()
        reader = await jetstream.pull_subscribe(
            subjects.AUDIT_SUBJECTS, durable="siem", stream=subjects.AUDIT_STREAM
        )
        with anyio.fail_after(PATIENCE_S):
            record: dict[str, object] = {}
            while record.get("response_id") != answer.json()["id"]:
                (message,) = await reader.fetch(1, timeout=PATIENCE_S)
                record = json.loads(message.data)
                await message.ack()
        assert "audit this" in str(record["request"])
        assert refused == []
        wanted = [subjects.WORK_SUBJECTS, f"{subjects.PREFIX}.out.*", subjects.AUDIT_SUBJECTS]
        for subject in wanted:
            await client.subscribe(subject)
        orders = [
            f"{subjects.PREFIX}.audit.x",
            f"$JS.API.STREAM.PURGE.{subjects.AUDIT_STREAM}",
            f"$JS.API.STREAM.MSG.DELETE.{subjects.AUDIT_STREAM}",
            f"$JS.API.CONSUMER.CREATE.{subjects.WORK_STREAM}",
            f"$JS.API.STREAM.MSG.GET.{subjects.DOCUMENTS_STREAM}",
        ]
        for subject in orders:
            await client.publish(subject, b"{}")
        await client.flush()
        with anyio.fail_after(20):
            while len(refused) < len(wanted) + len(orders):  # noqa: ASYNC110
                await anyio.sleep(0.02)


@asynccontextmanager
async def connected(secured: Secured, user: str) -> AsyncIterator[tuple[Client, list[str]]]:
    refused: list[str] = []

    async def note(error: Exception) -> None:
        refused.append(str(error).lower())

    client = await nats.connect(
        secured.url,
        nkeys_seed=str(secured.folder / "users" / f"{user}.nk"),
        inbox_prefix=access.inbox_prefix(user),
        error_cb=note,
    )
    try:
        yield client, refused
    finally:
        await client.close()


def bodies_of(user: str) -> list[str]:
    """Subjects that carry what this user has no business with."""
    others = [other for other in access.USERS if other != user]
    return [
        ">",
        "_INBOX.>",
        *(f"{access.inbox_prefix(other)}.>" for other in others),
        subjects.WORK_SUBJECTS,
        "$KV.>",
        "$JS.API.>",
        "$JS.ACK.>",
        subjects.AUDIT_SUBJECTS,
        *([] if user == "gateway" else [f"{subjects.PREFIX}.out.*"]),
        *([] if user == "postprocessor" else [f"{subjects.PREFIX}.post.*", subjects.STREAM]),
        *([] if user == "preprocessor" else [subjects.PREPARE]),
    ]


ORDERS = [
    f"$JS.API.STREAM.DELETE.{subjects.AUDIT_STREAM}",
    f"$JS.API.STREAM.PURGE.{subjects.AUDIT_STREAM}",
    f"$JS.API.CONSUMER.CREATE.{subjects.AUDIT_STREAM}",
    f"$JS.API.STREAM.MSG.GET.{subjects.AUDIT_STREAM}",
    f"$JS.API.STREAM.DELETE.{subjects.WORK_STREAM}",
    f"$JS.API.STREAM.PURGE.{subjects.WORK_STREAM}",
    f"$JS.API.STREAM.DELETE.KV_{subjects.MODELS_BUCKET}",
    "$JS.API.STREAM.CREATE.OTHER",
    f"$JS.API.CONSUMER.DELETE.{subjects.WORK_STREAM}.any",
    "$SYS.REQ.SERVER.PING",
]
"""What no service may order."""


@pytest.mark.anyio
@pytest.mark.parametrize("user", SERVICES)
async def test_no_service_hears_what_is_not_for_it(secured: Secured, user: str) -> None:
    async with connected(secured, user) as (client, refused):
        wanted = bodies_of(user)
        for subject in wanted:
            await client.subscribe(subject)
        with anyio.fail_after(20):
            while len(refused) < len(wanted):  # noqa: ASYNC110
                await anyio.sleep(0.02)
        for subject in wanted:
            assert any(f'subscription to "{subject.lower()}"' in line for line in refused), subject


@pytest.mark.anyio
@pytest.mark.parametrize("user", SERVICES)
async def test_no_service_changes_what_all_share(secured: Secured, user: str) -> None:
    strange = [
        f"$KV.{subjects.INSTANCES_BUCKET}.{'worker' if user != 'worker' else 'gateway'}.x",
        *([] if user == "worker" else [f"$KV.{subjects.MODELS_BUCKET}.m.x"]),
        *([] if user == "postprocessor" else [f"{subjects.PREFIX}.work.m"]),
        *(
            []
            if user == "worker"
            else [f"{subjects.PREFIX}.post.x", f"$JS.ACK.{subjects.WORK_STREAM}.x"]
        ),
        *([] if user == "postprocessor" else [f"{subjects.PREFIX}.out.x"]),
        *([] if user == "gateway" else [f"{subjects.PREFIX}.audit.x"]),
    ]
    async with connected(secured, user) as (client, refused):
        for subject in (*ORDERS, *strange):
            await client.publish(subject, b"{}")
        await client.flush()
        with anyio.fail_after(20):
            while len(refused) < len(ORDERS) + len(strange):  # noqa: ASYNC110
                await anyio.sleep(0.02)
        for subject in (*ORDERS, *strange):
            assert any(f'publish to "{subject.lower()}"' in line for line in refused), subject


def test_nobody_comes_in_without_a_key(secured: Secured) -> None:
    with socket.create_connection(("127.0.0.1", secured.port), 10) as client:
        client.settimeout(10)
        assert client.recv(4096).startswith(b"INFO ")
        client.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
        assert b"Authorization Violation" in client.recv(4096)


def test_keys_are_secret_files_and_are_kept(tmp_path: Path) -> None:
    assert main(["nats", "users", str(tmp_path)]) == 0
    before = {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()}
    assert main(["nats", "users", str(tmp_path)]) == 0
    assert {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()} == before
    for user in access.USERS:
        assert (tmp_path / f"{user}.nk").stat().st_mode & 0o077 == 0
        assert before[f"{user}.nk"].strip() not in before["users.conf"]
    assert len(re.findall(r"nkey: U[A-Z2-7]{55}", before["users.conf"])) == len(access.USERS)
