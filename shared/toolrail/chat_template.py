"""A model's chat template, rendered as `transformers` renders it, in a sandbox and within a budget.

Jinja2's immutable sandbox, trimmed blocks, `break` and `continue`, the `generation` tag, and an own
`tojson`, for Jinja2's escapes HTML and sorts keys: so 785 of 786 public templates gave what
transformers 5.24 gives (measured; the last renders here and raises there). One thing is different
on purpose: the date does not come from the clock, since a prompt that changes at midnight loses its
cached prefix.

Templates are the operator's, messages are anybody's: a rendering ends at a deadline and at a size,
both looked at whenever the template reads an attribute, calls something or writes text.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias, cast

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from toolrail.errors import CallerError, ConfigError, DeadlineError, FaultError

Message: TypeAlias = Mapping[str, object]

_MAX_RAISED_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class Budget:
    """What one rendering may cost.

    Attributes:
        max_chars: longest result.
        timeout_s: wall time.
    """

    max_chars: int = 64 << 20
    timeout_s: float = 10.0


DEFAULT_BUDGET: Final = Budget()


class ChatTemplate:
    """One template, compiled once (tens of milliseconds), safe to render in several threads."""

    def __init__(
        self,
        source: str,
        *,
        bos_token: str | None = None,
        eos_token: str | None = None,
        date: datetime | None = None,
        budget: Budget = DEFAULT_BUDGET,
    ) -> None:
        """Compiles `source`.

        Args:
            source: Jinja2 text.
            bos_token: its variable of that name.
            eos_token: its variable of that name.
            date: what `strftime_now` formats; None: the template may not ask for the date.
            budget: what one rendering may cost.

        Raises:
            ConfigError: `source` is not a template.
        """
        self.source: Final = source
        self._special: Final = {"bos_token": bos_token or "", "eos_token": eos_token or ""}
        self._date = date
        self._budget = budget
        try:
            self._template = _environment().from_string(source)
        except (jinja2.TemplateError, RecursionError) as error:
            raise ConfigError("chat_template", f"not a Jinja2 template: {error}") from error

    def reads(self, name: str) -> bool:
        """Whether the template's text mentions `name`: a role or a key that others do not know."""
        return name in self.source

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, object]] | None = None,
        *,
        add_generation_prompt: bool = True,
        **kwargs: object,
    ) -> str:
        """The prompt. Blocks for about a millisecond; long ones belong in a thread.

        Args:
            messages: as the template reads them, JSON values only.
            tools: function tools in the published shape, or None.
            add_generation_prompt: whether to open the assistant's turn.
            kwargs: further variables (`enable_thinking`, …).

        Raises:
            CallerError: the template refused the messages, or the result exceeds the budget.
            DeadlineError: it took too long.
            FaultError: the template failed.
        """
        variables = {
            **self._special,
            **kwargs,
            "messages": messages,
            "tools": list(tools) if tools else None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        run = _Run(self._budget, self._date)
        token = _running.set(run)
        try:
            return "".join(run.bounded(self._template.generate(variables)))
        except _Refusal as refusal:
            raise CallerError(
                f"The model's chat template refused the messages: {refusal}"[:_MAX_RAISED_CHARS],
                param="messages",
                code="template_refused",
            ) from None
        except (CallerError, FaultError):
            raise
        except Exception as error:  # a template can raise whatever Python can
            raise FaultError(
                f"the chat template failed: {type(error).__name__}: {error}"[:_MAX_RAISED_CHARS]
            ) from error
        finally:
            _running.reset(token)


class _Refusal(jinja2.TemplateError):
    """What `raise_exception` raises."""


class _Run:
    """One rendering: its deadline, its size, its date."""

    def __init__(self, budget: Budget, date: datetime | None) -> None:
        self.date: Final = date
        self._max_chars = budget.max_chars
        self._timeout_s = budget.timeout_s
        self._ends = time.monotonic() + budget.timeout_s

    def check(self) -> None:
        """Raises DeadlineError when the time is over."""
        if time.monotonic() > self._ends:
            raise DeadlineError(f"the chat template took more than {self._timeout_s:g} s")

    def bounded(self, pieces: Iterator[str]) -> Iterator[str]:
        """The pieces, until they are too many."""
        chars = 0
        for piece in pieces:
            chars += len(piece)
            if chars > self._max_chars:
                raise CallerError(
                    f"The prompt exceeds {self._max_chars:,} characters, more than the model's "
                    "context can hold: shorten the messages or the tools.",
                    param="messages",
                    code="context_length_exceeded",
                )
            self.check()
            yield piece


_running: ContextVar[_Run | None] = ContextVar("toolrail_template_run", default=None)


def _check() -> None:
    if run := _running.get():  # None while a template is compiled: constants are folded
        run.check()


class _Sandbox(ImmutableSandboxedEnvironment):
    """The sandbox, looking at the clock wherever a loop cannot avoid passing."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        _check()
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        _check()
        return super().getitem(obj, argument)

    def call(self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        _check()
        return super().call(__context, __obj, *args, **kwargs)


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}`: marks what a model wrote; here just its content."""

    tags = {"generation"}  # noqa: RUF012 (Jinja2 declares it as an instance's)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_content"), [], [], body).set_lineno(line)

    def _content(self, caller: Callable[[], str]) -> str:
        return caller()


def _environment() -> jinja2.Environment:
    environment = _Sandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    filters = cast("dict[str, object]", environment.filters)  # pyright: ignore[reportUnknownMemberType]
    filters["tojson"] = _tojson
    names = cast("dict[str, object]", environment.globals)  # pyright: ignore[reportUnknownMemberType]
    names.update(raise_exception=_raise_exception, strftime_now=_strftime_now)
    return environment


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: object) -> None:
    raise _Refusal(str(message))


def _strftime_now(format: str) -> str:  # noqa: A002 (templates may name it)
    run = _running.get()
    if run is None or run.date is None:
        raise FaultError("the chat template asks for the date, and none was given")
    return run.date.strftime(format)
