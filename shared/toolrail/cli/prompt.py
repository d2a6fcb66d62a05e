"""`toolrail prompt`: the prompt of a request, as text and as the ids the engine gets.

The model's own template and tokenizer, the server's rendering; no engine.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, cast

import msgspec

from toolrail.chat_template import ChatTemplate
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
from toolrail.families.family import PromptPolicy
from toolrail.openai.habits import Habits, habits
from toolrail.openai.prompt import render_prompt
from toolrail.settings import DEMO_MODELS, model_directory
from toolrail.tokens import Tokenizer

_DESCRIPTION = """Renders the prompt of requests with a model's own template and tokenizer.

Reads rows {"id", "api"?: "chat" | "responses" | "messages", "model": directory or demo name,
"request", "parser"?, "reasoning_parser"?, "exclude_tools_when_tool_choice_none"?, "date"?:
"YYYY-MM-DD"} from standard input and answers each with {"id", "prompt", "prompt_token_ids",
"prefix_hash"} or {"id", "error"}. The parsers say how history is shown; the date is what the
template calls today (default: today, UTC).
"""


class _Row(msgspec.Struct, frozen=True):
    request: msgspec.Raw
    model: str
    api: Api = "chat"
    parser: str | None = None
    reasoning_parser: str | None = None
    exclude_tools_when_tool_choice_none: bool = True
    date: str | None = None


class _Files(Protocol):
    """What is read of a model directory (`services.worker.model_files`)."""

    tokenizer_json: str
    chat_template: str
    bos_token: str | None
    eos_token: str | None


class Models:
    """Tokenizers and templates, loaded once each."""

    def __init__(self) -> None:
        self._files: dict[str, _Files] = {}
        self._tokenizers: dict[str, Tokenizer] = {}
        self._templates: dict[tuple[str, datetime, PromptPolicy], tuple[ChatTemplate, Habits]] = {}

    def tokenizer(self, model: str) -> Tokenizer:
        """The model's tokenizer. Raises ConfigError."""
        if model not in self._tokenizers:
            text = self._of(model).tokenizer_json
            try:
                self._tokenizers[model] = Tokenizer.from_json(text)
            except ValueError as error:
                raise ConfigError("model", str(error)) from error
        return self._tokenizers[model]

    def template(
        self, model: str, date: datetime, policy: PromptPolicy
    ) -> tuple[ChatTemplate, Habits]:
        """The model's template and what it can read. Raises ConfigError."""
        key = (model, date, policy)
        if key not in self._templates:
            files = self._of(model)
            made = ChatTemplate(
                files.chat_template,
                bos_token=files.bos_token,
                eos_token=files.eos_token,
                date=date,
            )
            self._templates[key] = made, habits(made, policy)
        return self._templates[key]

    def _of(self, model: str) -> _Files:
        if model not in self._files:
            self._files[model] = _read(model)
        return self._files[model]


def prompt(argv: Sequence[str]) -> int:
    """The exit status: 0 unless the input cannot be read."""
    flags("prompt", _DESCRIPTION, argv)
    models = Models()
    try:
        for row_id, row in rows(_Row):
            write({"id": row_id, **_answer(row, models)})
    except UnreadableError as error:
        return unreadable("prompt", error)
    return 0


def prefix_hash(token_ids: Sequence[int]) -> str:
    """Equal for equal ids: what a prefix cache would find again."""
    packed = struct.pack(f"<{len(token_ids)}I", *token_ids)
    return hashlib.blake2b(packed, digest_size=16).hexdigest()


def _answer(row: _Row | CallerError, models: Models) -> dict[str, object]:
    try:
        if isinstance(row, CallerError):
            raise row
        text = _render(row, models)
        ids = models.tokenizer(row.model).encode_now(text)
    except CallerError as error:
        return {"error": {"status": error.status, **error_object(error)}}
    except ConfigError as error:
        refused = CallerError(str(error), param=error.field, code="invalid_value")
        return {"error": {"status": 400, **error_object(refused)}}
    except FaultError as error:
        return {"error": {"status": 500, **fault_object(error)}}
    return {"prompt": text, "prompt_token_ids": ids, "prefix_hash": prefix_hash(ids)}


def _render(row: _Row, models: Models) -> str:
    request = READ[row.api](bytes(row.request))
    policy = PromptPolicy()
    if row.parser or row.reasoning_parser:
        policy = dialect(row.parser, row.reasoning_parser).prompt
    template, reads = models.template(row.model, _date(row.date), policy)
    return render_prompt(
        request,
        template,
        reads,
        policy,
        exclude_tools_when_none=row.exclude_tools_when_tool_choice_none,
    )


def today() -> datetime:
    """The beginning of today, UTC."""
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _date(text: str | None) -> datetime:
    if text is None:
        return today()
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError as error:
        raise ConfigError("date", f"not of the form YYYY-MM-DD: {text!r}") from error


def _read(model: str) -> _Files:
    directory = model_directory(model)
    reader = service_module("worker.model_files")
    if reader is None:
        raise ConfigError("model", "reading a model directory needs the source tree")
    if model in DEMO_MODELS:
        demo = service_module("worker.demo_model")
        assert demo is not None
        try:
            demo.ensure(directory, think=model == "demo-think")
        except demo.DemoModelError as error:
            raise ConfigError("model", str(error)) from error
    return cast("Callable[[Path], _Files]", reader.read)(directory)
