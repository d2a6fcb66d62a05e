from __future__ import annotations

from typing import cast

import anyio
import anyio.lowlevel
import pytest

from toolrail.bus import subjects
from toolrail.bus.memory import MemoryBroker
from toolrail.bus.port import Bus
from toolrail.directory import Directory
from toolrail.messages import Instance, ModelCard, encode

pytestmark = pytest.mark.anyio


def card(name: str, worker: str, **changes: object) -> ModelCard:
    fields: dict[str, object] = {
        "engine": "scripted",
        "context_length": 1024,
        "slots": 4,
        "vocab_size": 256,
        "tokenizer": "sha256-t",
        "chat_template": "sha256-c",
    }
    return ModelCard(name=name, worker=worker, **(fields | changes))  # type: ignore[arg-type]


async def register(bus: Bus, made: ModelCard) -> None:
    await bus.models.put(f"{subjects.model_token(made.name)}.{made.worker}", encode(made))


async def present(bus: Bus, service: str, instance: str, **changes: bool) -> None:
    known = Instance(service=service, instance=instance, pid=1, **changes)
    await bus.instances.put(f"{service}.{instance}", encode(known))


async def told(directory: Directory) -> None:
    """Until the event loop has told `directory` what was put before."""
    for _ in range(3):
        await anyio.lowlevel.checkpoint()


async def test_models_are_known_by_served_name_one_card_each() -> None:
    bus = MemoryBroker().connect()
    directory = Directory(bus)
    await register(bus, card("org/m", "w1", created_s=1))
    await directory.start()
    await register(bus, card("org/m", "w2", created_s=2))
    await register(bus, card("org/a", "w3"))
    await told(directory)
    assert [made.name for made in directory.cards()] == ["org/a", "org/m"]
    assert [made.worker for made in directory.workers("org/m")] == ["w2", "w1"]
    newest = directory.card("org/m")
    assert newest is not None
    assert newest.worker == "w2"
    assert directory.card("org") is None


async def test_a_model_is_gone_when_its_last_worker_is() -> None:
    bus = MemoryBroker().connect()
    directory = Directory(bus)
    await directory.start()
    await register(bus, card("m", "w1"))
    await told(directory)
    assert directory.card("m") is not None
    await bus.models.delete(f"{subjects.model_token('m')}.w1")
    await told(directory)
    assert directory.card("m") is None
    assert directory.cards() == []
    assert (directory.was_served("m"), directory.was_served("x")) == (True, False)


async def test_a_model_is_servable_when_every_hop_has_a_ready_service() -> None:
    bus = MemoryBroker().connect()
    directory = Directory(bus)
    await directory.start()
    await register(bus, card("m", "w1"))
    await present(bus, "preprocessor", "p1", ready=False)
    await present(bus, "postprocessor", "q1")
    await told(directory)
    assert not directory.servable("m")
    await present(bus, "preprocessor", "p1")
    await told(directory)
    assert directory.servable("m")
    assert not directory.servable("other")
    await present(bus, "postprocessor", "q1", draining=True)
    await told(directory)
    assert not directory.servable("m")
    assert [known.instance for known in directory.instances("postprocessor")] == ["q1"]


async def test_registrations_of_a_newer_build_are_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bus = MemoryBroker().connect()
    directory = Directory(bus)
    await directory.start()
    await register(bus, card("m", "w1", version=99))
    await bus.models.put("m.w2", b"\xff not a card")
    await register(bus, card("m", "w3"))
    await told(directory)
    assert [made.worker for made in directory.workers("m")] == ["w3"]
    assert caplog.text.count("registration ignored") == 2


async def test_a_stopped_directory_follows_no_longer() -> None:
    bus = MemoryBroker().connect()
    directory = Directory(bus)
    await directory.start()
    await directory.stop()
    await register(bus, card("m", "w1"))
    await told(directory)
    assert directory.cards() == []


class CountingBlobs:
    """An object store that counts what is fetched."""

    def __init__(self, bus: Bus) -> None:
        self._blobs = bus.blobs
        self.fetched: list[str] = []

    async def get(self, name: str) -> bytes:
        self.fetched.append(name)
        return await self._blobs.get(name)


class BusWithCountedBlobs:
    def __init__(self, bus: Bus) -> None:
        self.blobs = CountingBlobs(bus)


async def test_templates_are_fetched_once_and_the_longest_unused_is_forgotten() -> None:
    bus = MemoryBroker().connect()
    counted = BusWithCountedBlobs(bus)
    directory = Directory(cast("Bus", counted))
    for number in range(65):
        await bus.blobs.put(f"t{number}", b"template %d" % number)
    first = card("m", "w", chat_template="t0")
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(directory.chat_template_source, first)
    assert counted.blobs.fetched == ["t0"]
    assert await directory.chat_template_source(first) == "template 0"
    for number in range(1, 65):
        await directory.chat_template_source(card("m", "w", chat_template=f"t{number}"))
    await directory.chat_template_source(first)
    assert counted.blobs.fetched.count("t0") == 2


async def test_a_missing_file_is_a_key_error_and_is_asked_for_again() -> None:
    bus = MemoryBroker().connect()
    directory = Directory(bus)
    made = card("m", "w", chat_template="late")
    with pytest.raises(KeyError):
        await directory.chat_template_source(made)
    await bus.blobs.put("late", b"there")
    assert await directory.chat_template_source(made) == "there"


BYTES = '{"version":"1.0","model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}'


async def test_a_tokenizer_is_loaded_from_the_file_that_the_card_names() -> None:
    bus = MemoryBroker().connect()
    await bus.blobs.put("sha256-t", BYTES.encode())
    directory = Directory(bus)
    one = await directory.tokenizer(card("m", "w"))
    two = await directory.tokenizer(card("other", "w"))
    assert one is two
    assert await one.encode("ab") == [2]
