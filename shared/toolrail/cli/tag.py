"""`toolrail tag`: what would hold the output of this request, and what of it is enforced.

The same steps as the server's, compile check and budgets included; no model is needed.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Literal, Protocol

import anyio
import msgspec

from toolrail.cli.apis import READ, Api
from toolrail.cli.rows import (
    UnreadableError,
    error_object,
    fault_object,
    flags,
    rows,
    unreadable,
    write,
)
from toolrail.cli.tree import service_module
from toolrail.errors import CallerError, ConfigError, FaultError
from toolrail.families import dialect
from toolrail.grammar import GrammarError, check_tag
from toolrail.openai.constraint import Constraint, Setting, settle
from toolrail.openai.policy import Deployment
from toolrail.settings import PreprocessorSettings, load
from toolrail.structural_tag import TagOptions
from toolrail.tools import StartsIn

_DESCRIPTION = """Shows the structural tag and the enforcement report of requests.

Reads rows {"id", "api"?: "chat" | "responses" | "messages", "parser", "reasoning_parser"?,
"structural_tag"?: options or boolean, "starts_in"?: "none" | "reasoning" | "response",
"exclude_tools_when_tool_choice_none"?,
"turn_grammar"?: boolean (default: as the preprocessor's variable says), "request"}
from standard input and answers each with {"id", "structural_tag", "enforcement", "error"}.
"""


class _Row(msgspec.Struct, frozen=True):
    request: msgspec.Raw
    api: Api = "chat"
    parser: str | None = None
    reasoning_parser: str | None = None
    structural_tag: TagOptions | bool | None = None
    starts_in: StartsIn = "none"
    exclude_tools_when_tool_choice_none: bool = True
    parser_version: Literal["auto", "1", "2"] = "auto"
    turn_grammar: bool | None = None


class _Check(Protocol):
    async def check(self, tag_json: str) -> None: ...


def tag(argv: Sequence[str]) -> int:
    """The exit status: 0 unless the input cannot be read."""
    given = flags("tag", _DESCRIPTION, argv, no_compile="do not ask the grammar engine")
    try:
        anyio.run(_run, "no_compile" not in given)
    except UnreadableError as error:
        return unreadable("tag", error)
    return 0


async def _run(compiling: bool) -> None:
    async with _tag_check(compiling) as checks:
        for row_id, row in rows(_Row):
            write({"id": row_id, **await _answer(row, checks)})


async def _answer(row: _Row | CallerError, checks: _Check) -> dict[str, object]:
    answer: dict[str, object] = {"structural_tag": None, "enforcement": {}, "error": None}
    try:
        if isinstance(row, CallerError):
            raise row
        constraint = await _constraint(row, checks)
    except CallerError as error:
        answer["error"] = {"status": error.status, **error_object(error)}
    except ConfigError as error:
        refused = CallerError(str(error), param=error.field, code="invalid_value")
        answer["error"] = {"status": 400, **error_object(refused)}
    except FaultError as error:
        answer["error"] = {"status": 500, **fault_object(error)}
    else:
        answer["structural_tag"] = constraint.tag
        answer["enforcement"] = constraint.report.to_json()
    return answer


async def _constraint(row: _Row, checks: _Check) -> Constraint:
    request = READ[row.api](bytes(row.request))
    settling = settle(request, _setting(row))
    try:
        pending = next(settling)
        while True:
            verdict: CallerError | None = None
            try:
                await checks.check(pending)
            except CallerError as refusal:
                verdict = refusal
            pending = settling.send(verdict)
    except StopIteration as settled:
        return settled.value


def _turn_grammar() -> bool:
    """What the server's own setting says."""
    return load(PreprocessorSettings, (), os.environ).turn_grammar


def _setting(row: _Row) -> Setting:
    speaks = dialect(row.parser, row.reasoning_parser, parser_version=row.parser_version)
    options = row.structural_tag
    if options is None or options is True:
        options = TagOptions()
    deployment = Deployment.of(
        speaks.family,
        options=options or None,
        exclude_tools_when_none=row.exclude_tools_when_tool_choice_none,
        turn_grammar=_turn_grammar() if row.turn_grammar is None else row.turn_grammar,
    )
    return Setting(deployment, speaks, row.parser, row.reasoning_parser, row.starts_in)


@asynccontextmanager
async def _tag_check(compiling: bool) -> AsyncGenerator[_Check]:
    module = service_module("preprocessor.compile_check") if compiling else None
    if module is None:
        yield _Unbudgeted(compiling)
        return
    checks = module.CompileCheck(PreprocessorSettings())
    try:
        await checks.start()
        yield checks
    finally:
        await checks.stop()


class _Unbudgeted:
    """The engine's word on a tag, in this process and without limits; or nobody's."""

    def __init__(self, compiling: bool) -> None:
        self._compiling = compiling

    async def check(self, tag_json: str) -> None:
        if self._compiling:
            try:
                check_tag(tag_json)
            except GrammarError as error:
                raise CallerError(str(error), code="invalid_grammar") from error
