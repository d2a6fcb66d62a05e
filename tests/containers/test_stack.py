"""The compose file as it stands, run: real requests to containers that have no rights."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import anthropic
import httpx
import openai
import pytest

from tests.containers import machine
from tests.containers.compose import SERVICES, Stack, healthy, podman
from tests.containers.conftest import SLOW
from tests.e2e.tools import SCHEMAS, ask, tool

pytestmark = pytest.mark.containers

URL = "http://127.0.0.1:8000"
STATUS = "import sys; print(open('/proc/1/status').read())"
WRITE = "open('/app/written', 'w')"


@pytest.fixture
def client(stack: Stack) -> Iterator[openai.OpenAI]:
    settings = {"base_url": f"{URL}/v1", "api_key": stack.api_key, "max_retries": 0}
    with openai.OpenAI(**settings, timeout=120) as made:
        yield made


def test_every_container_is_up_and_as_many_as_the_file_says(stack: Stack) -> None:
    counted = {service: len(stack.containers(service)) for service in SERVICES}
    twice = dict.fromkeys(("preprocessor", "postprocessor"), 2)
    assert counted == dict.fromkeys(SERVICES, 1) | twice


@pytest.mark.parametrize("service", SERVICES)
def test_a_container_has_no_rights(stack: Stack, service: str) -> None:
    for container in stack.containers(service):
        found = stack.inspect(container)
        assert found["HostConfig"]["ReadonlyRootfs"]
        assert found["EffectiveCaps"] in (None, [])
        status = stack.inside(container, "cat", "/proc/1/status")
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        for kind in ("CapPrm", "CapEff", "CapBnd", "CapInh"):
            assert int(fields[kind], 16) == 0, kind
        assert fields["NoNewPrivs"].strip() == "1"
        if service != "nats":
            assert fields["Uid"].split() == ["10001"] * 4
            with pytest.raises(AssertionError, match="Read-only file system"):
                stack.inside(container, "python", "-c", WRITE)
            stack.inside(container, "python", "-c", "open('/tmp/written', 'w')")


@pytest.mark.parametrize("service", SERVICES)
def test_limits_are_those_of_the_file(stack: Stack, service: str) -> None:
    mode = (machine.STATE / "mode").read_text()
    for container in stack.containers(service):
        limits = stack.inspect(container)["HostConfig"]
        assert limits["Memory"] > 0
        assert limits["NanoCpus"] or limits["CpuQuota"]
        if mode == machine.LIMITED:
            assert limits["CgroupManager"] == "cgroupfs"


def test_only_the_gateway_publishes_and_only_to_this_machine(stack: Stack) -> None:
    published = {
        service: stack.inspect(container)["HostConfig"]["PortBindings"]
        for service in SERVICES
        for container in stack.containers(service)
    }
    gateway = published.pop("gateway")
    assert gateway == {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8000"}]}
    assert not any(published.values())


def test_a_key_of_the_file_is_asked_for(stack: Stack) -> None:
    refused = httpx.post(f"{URL}/v1/chat/completions", json=ask(), timeout=60)
    assert refused.status_code == 401
    assert httpx.get(f"{URL}/health", timeout=60).status_code == 200


def test_text_whole_and_streamed(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(**ask("Say it."))
    assert whole.choices[0].finish_reason == "stop"
    said = whole.choices[0].message.content
    assert said
    with client.chat.completions.create(**ask("Say it."), stream=True) as stream:
        pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    assert "".join(pieces) == said
    assert len([piece for piece in pieces if piece]) > 2


def test_a_forced_call_obeys_its_schema(client: openai.OpenAI) -> None:
    tools = [tool("point", SCHEMAS["nested_object"])]
    answer = client.chat.completions.create(**ask(), tools=tools, tool_choice="required")
    (call,) = answer.choices[0].message.tool_calls or ()
    assert call.function.name == "point"
    assert call.function.arguments.startswith("{")
    assert answer.choices[0].finish_reason == "tool_calls"


def test_responses(client: openai.OpenAI) -> None:
    with client.responses.stream(model="demo", input="Say it.") as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_response()
    assert "response.output_text.delta" in kinds
    assert final.status == "completed"
    # Stored on the bus, by whichever process answered.
    assert client.responses.retrieve(final.id).output_text == final.output_text


def test_messages(stack: Stack) -> None:
    weather = {"name": "point", "input_schema": SCHEMAS["nested_object"]}
    with anthropic.Anthropic(base_url=URL, api_key=stack.api_key, timeout=120) as client:
        answer = client.messages.create(
            model="demo",
            max_tokens=300,
            messages=[{"role": "user", "content": "Do it."}],
            tools=[weather],
            tool_choice={"type": "any"},
        )
    assert answer.stop_reason == "tool_use"
    assert [block.name for block in answer.content if block.type == "tool_use"] == ["point"]


def test_a_stream_outlives_its_postprocessor_which_comes_back(
    stack: Stack, client: openai.OpenAI
) -> None:
    both = stack.containers("postprocessor")
    pids = {one: stack.inspect(one)["State"]["Pid"] for one in both}
    said = ""
    with client.chat.completions.create(**ask("Speak slowly."), stream=True) as stream:
        chunks = iter(stream)
        while len(said) < 40:
            said += next(chunks).choices[0].delta.content or ""
        # As a fault would end it: no signal of podman's, so that its restart policy holds. One of
        # the two has the stream; the other one is left.
        owner = both[0] if streams_of(stack, both[0]) else both[1]
        os.kill(pids[owner], signal.SIGKILL)
        for chunk in chunks:
            said += "".join(choice.delta.content or "" for choice in chunk.choices)
    assert said == SLOW
    stack.until(
        lambda: stack.inspect(owner)["State"]["Pid"] not in (0, pids[owner]), "restarted", owner
    )
    stack.until(lambda: healthy(owner), "healthy again", owner)


def streams_of(stack: Stack, container: str) -> bool:
    code = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9100/metrics').read().decode())"
    lines = stack.inside(container, "python", "-c", code).splitlines()
    (line,) = (line for line in lines if line.startswith("toolrail_postprocessor_open_streams"))
    return float(line.split()[-1]) > 0


def test_doctor_finds_nothing_wrong(stack: Stack) -> None:
    """In the preprocessor's image: it takes what compiles and renders."""
    assert stack.inside(stack.containers("preprocessor")[0], "toolrail", "doctor")


def test_sigterm_while_starting_ends_a_container_at_once(stack: Stack) -> None:
    """Python as the first process would not hear it before it has set its handlers."""
    hardened = ["--init", "--read-only", "--cap-drop", "all", "toolrail-gateway:local"]
    name = "toolrail-early"
    code = "import time; time.sleep(300)"
    podman("run", "--detach", "--name", name, *hardened, "python", "-c", code)
    started = time.monotonic()
    podman("stop", "--time", "150", name)
    assert time.monotonic() - started < 100
    podman("rm", name)


def test_the_stack_stops_in_time_with_status_0(stack: Stack) -> None:
    """The last test: nothing runs after it. In the order that Docker Compose has, the bus last."""
    for service in ("gateway", "preprocessor", "postprocessor", "worker"):
        containers = stack.containers(service)
        stack.compose("stop", service)
        for container in containers:
            state = stack.inspect(container)["State"]
            assert not state["Running"]
            assert state["ExitCode"] == 0, f"{container}\n{stack.log(container)}"
    stack.compose("stop", "nats")
