"""`toolrail doctor`: looks at a running or broken deployment and says what to do."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

import anyio
import anyio.to_thread

from toolrail.bus import subjects
from toolrail.bus.nats import NatsBus
from toolrail.bus.port import Bus
from toolrail.chat_template import Budget, ChatTemplate
from toolrail.cli import diagnosis, streams
from toolrail.cli.diagnosis import Finding
from toolrail.directory import Directory
from toolrail.errors import ConfigError, FaultError
from toolrail.flags import load
from toolrail.grammar import GrammarError, check_tag
from toolrail.messages import ModelCard
from toolrail.settings import CommonSettings

_DESCRIPTION: Final = """Looks at a deployment from the bus.

Is the server there, with its streams and this user's rights; how full are stored responses and
audit records, and do their bounds fit; do the services answer, do their clocks agree; can each
announced model be served: does its vocabulary hold the markers of its family as single tokens, does
the parser read what the template writes, does a forced call compile.

Takes the settings that every service takes (--nats-url, --nats-nkey-file, ...), as flags or as
TOOLRAIL_* variables. Prints a line a finding, worst first, or JSON lines with --json. The exit
status is 0 where nothing is wrong, else 1.
"""
_CONNECT_S: Final = 10.0
_PING_S: Final = 2.0
_SERVICES: Final = ("gateway", "preprocessor", "postprocessor", "worker")
_ORDER: Final = ("fail", "warn", "ok")
_BUDGET: Final = Budget(4 << 20, 10.0)


def doctor(argv: Sequence[str]) -> int:
    """The exit status: 0, or 1 where something is wrong."""
    parser = argparse.ArgumentParser(
        prog="toolrail doctor",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="a JSON object a line")
    options, rest = parser.parse_known_args(list(argv))
    settings = load(CommonSettings, rest, os.environ)
    # To look must not change anything; a server that is away is found out soon.
    settings = dataclasses.replace(
        settings, nats_setup=False, connect_timeout_s=min(_CONNECT_S, settings.connect_timeout_s)
    )
    findings = anyio.run(_examined, settings)
    findings.sort(key=lambda finding: _ORDER.index(finding.level))
    for finding in findings:
        print(json.dumps(dataclasses.asdict(finding)) if options.json else _line(finding))
    return 1 if any(finding.level == "fail" for finding in findings) else 0


def _line(finding: Finding) -> str:
    advice = f"  ({finding.advice})" if finding.advice else ""
    return f"{finding.level:<4}  {finding.about}: {finding.text}{advice}"


async def _examined(settings: CommonSettings) -> list[Finding]:
    findings = [_engine()]
    try:
        bus = await NatsBus.connect(settings)
    except FaultError as error:
        advice = "is it up, is the address right, may this user in, was `toolrail nats setup` run?"
        return [*findings, Finding("fail", "bus", str(error), advice)]
    try:
        findings.append(Finding("ok", "bus", "connected, its streams are there"))
        findings += await _of_responses(bus, settings)
        findings += await _of_records(bus, settings)
        findings += [finding async for finding in _of_deployment(bus, settings)]
    finally:
        await bus.close()
    return findings


async def _of_responses(bus: NatsBus, settings: CommonSettings) -> list[Finding]:
    try:
        found = await bus.documents.state(timeout_s=_PING_S)
    except FaultError as error:
        return [_unseen(streams.RESPONSES, error)]
    return list(streams.of_responses(found, settings, streams.now()))


async def _of_records(bus: NatsBus, settings: CommonSettings) -> list[Finding]:
    user = streams.user_of(settings)
    if not streams.may_look_at_records(user):
        text = f"not looked at: they are none of the user {user}'s business"
        return [Finding("ok", streams.RECORDS, text, "doctor as the user gateway looks at them")]
    try:
        found = await bus.audit.state(timeout_s=_PING_S)
        may_append = found is None or await bus.audit.may_append(timeout_s=_PING_S)
    except FaultError as error:
        return [_unseen(streams.RECORDS, error)]
    return list(
        streams.of_records(
            found,
            settings,
            streams.now(),
            max_payload_bytes=bus.max_payload_bytes,
            may_append=may_append,
        )
    )


def _unseen(about: str, error: FaultError) -> Finding:
    advice = "this user may not, or the server has no leader for it: doctor as the user gateway may"
    return Finding("warn", about, f"their stream cannot be looked at: {error}", advice)


def _engine() -> Finding:
    tag = {"type": "structural_tag", "format": {"type": "const_string", "value": "a"}}
    try:
        check_tag(json.dumps(tag))
    except (GrammarError, ImportError, OSError) as error:
        advice = "install the version of xgrammar that pyproject.toml pins"
        return Finding("fail", "grammar engine", f"does not work here: {error}", advice)
    return Finding("ok", "grammar engine", "compiles")


async def _of_deployment(bus: Bus, settings: CommonSettings) -> AsyncIterator[Finding]:
    directory = Directory(bus)
    try:
        with anyio.fail_after(settings.connect_timeout_s):
            await directory.start()
    except (FaultError, TimeoutError) as error:
        advice = "the streams may be damaged or this user may not read them: `toolrail nats users`"
        yield Finding("fail", "bus", f"registrations cannot be read: {error}", advice)
        return
    try:
        for service in _SERVICES:
            for finding in await _of_service(bus, directory, service):
                yield finding
        cards = directory.cards()
        if not cards:
            advice = "start a worker; one that ends at its start says why in its log"
            yield Finding("fail", "models", "no worker announces a model", advice)
        for card in cards:
            for finding in await _of_model(directory, card):
                yield finding
            yield _servable(directory, card)
    finally:
        await directory.stop()


async def _of_service(bus: Bus, directory: Directory, service: str) -> Iterator[Finding]:
    instances = directory.instances(service)
    alive: dict[str, bool] = {}

    async def ask(instance: str) -> None:
        try:
            await bus.request(subjects.ping(instance), b"", timeout_s=_PING_S)
            alive[instance] = True
        except FaultError:
            alive[instance] = False

    async with anyio.create_task_group() as tasks:
        for known in instances:
            tasks.start_soon(ask, known.instance)
    return diagnosis.of_instances(service, instances, alive, time.time())


async def _of_model(directory: Directory, card: ModelCard) -> list[Finding]:
    about = f"model {card.name}"
    advice = "its worker puts them there when it starts: restart it"
    try:
        tokenizer = await directory.tokenizer(card)
        source = await directory.chat_template_source(card)
    except (KeyError, ValueError, FaultError) as error:
        return [Finding("fail", about, f"its files cannot be read: {type(error).__name__}", advice)]
    try:
        template = ChatTemplate(
            source,
            bos_token=card.bos_token,
            eos_token=card.eos_token,
            date=datetime.fromtimestamp(card.created_s, UTC),
            budget=_BUDGET,
        )
    except ConfigError as error:
        return [Finding("fail", about, str(error), "give another: --custom-jinja-template")]
    return await anyio.to_thread.run_sync(
        lambda: list(diagnosis.of_model(card, tokenizer, template))
    )


def _servable(directory: Directory, card: ModelCard) -> Finding:
    workers = directory.workers(card.name)
    slots = sum(each.slots for each in workers)
    if directory.servable(card.name):
        text = f"can be served: {len(workers)} workers, {slots} requests at once"
        return Finding("ok", f"model {card.name}", text)
    advice = "a preprocessor and a postprocessor must be ready"
    return Finding("fail", f"model {card.name}", "cannot be served end to end", advice)
