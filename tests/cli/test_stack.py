"""The command lines of the local stack."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolrail.cli import stack as stacks
from toolrail.flags import load
from toolrail.settings import WorkerSettings


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with stacks.listen("127.0.0.1", 0) as listening:
        yield listening


def stack(listener: socket.socket, **replicas: int) -> stacks.Stack:
    return stacks.Stack(
        nats_url="nats://127.0.0.1:4333",
        data_directory=Path("store"),
        listener=listener,
        model="demo",
        replicas=dict.fromkeys(stacks.SERVICES, 1) | replicas,
        common_flags=["--log-level", "DEBUG"],
        postprocessor_flags=["--migration-limit", "0"],
        worker_flags=["--engine", "scripted"],
    )


def test_one_process_a_service_unless_told_otherwise(listener: socket.socket) -> None:
    programs = stacks.service_programs(stack(listener, gateway=2))
    assert [program.slot for program in programs] == [
        "gateway-1",
        "gateway-2",
        "preprocessor",
        "postprocessor",
        "worker",
    ]


def test_all_services_get_the_common_flags_and_only_workers_the_workers(
    listener: socket.socket,
) -> None:
    for program in stacks.service_programs(stack(listener)):
        line = " ".join(program.command("me"))
        assert f"-m services.{program.service} " in line
        assert "--log-level DEBUG" in line
        assert line.endswith("--instance me")
        assert ("--engine scripted" in line) == (program.service == "worker")


def test_gateways_share_the_supervisors_socket(listener: socket.socket) -> None:
    gateways = stacks.service_programs(stack(listener, gateway=2))[:2]
    for gateway in gateways:
        assert f"--listen-fd {listener.fileno()}" in " ".join(gateway.command("me"))
        assert gateway.pass_fds == (listener.fileno(),)


def test_nats_listens_where_the_services_look_for_it(
    listener: socket.socket, tmp_path: Path
) -> None:
    started = dataclasses.replace(stack(listener), data_directory=tmp_path / "store")
    *_, config = stacks.nats_program(started).command("me")
    written = Path(config).read_text(encoding="utf-8")
    assert 'listen: "127.0.0.1:4333"' in written
    assert f'store_dir: "{tmp_path / "store"}"' in written


@pytest.mark.parametrize(
    ("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::1", "[::1]")]
)
def test_the_base_url_can_be_used_on_this_machine(host: str, shown: str) -> None:
    with stacks.listen(host, 0) as listening:
        assert stacks.base_url(host, listening) == f"http://{shown}:{listening.getsockname()[1]}"


def test_the_users_environment_wins_except_for_the_path_of_the_tree() -> None:
    given = {"TOOLRAIL_DRAIN_S": "3", "PYTHONPATH": "/mine"}
    made = stacks.environment(given, nats_url="nats://a:secret@b", drain_s=8)
    assert made["TOOLRAIL_DRAIN_S"] == "3"
    assert made["PYTHONPATH"].split(":") == [str(stacks.TREE), "/mine"]
    assert stacks.environment({}, nats_url="", drain_s=8)["TOOLRAIL_DRAIN_S"] == "8"
    assert load(WorkerSettings, [], made).nats_url == "nats://a:secret@b"


def test_the_servers_url_is_on_no_command_line(listener: socket.socket) -> None:
    made = dataclasses.replace(stack(listener), nats_url="nats://a:secret@b:4222")
    for program in stacks.service_programs(made):
        assert "secret" not in " ".join(program.command("me"))


def test_what_is_meant_for_one_service_reaches_it_alone(listener: socket.socket) -> None:
    programs = stacks.service_programs(stack(listener))
    given = {program.service: program.command("name") for program in programs}
    for flag, service in (("--migration-limit", "postprocessor"), ("--engine", "worker")):
        assert [name for name, command in given.items() if flag in command] == [service]
