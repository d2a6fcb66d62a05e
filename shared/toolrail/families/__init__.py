"""Every family by its names, and the pair of parsers that a deployment configured.

One explicit table from name to module: what exists does not depend on what was imported. Adding a
family is one module with a `FAMILY`, one line here, and one file of cases.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import Final, Literal, TypeAlias

import msgspec

from toolrail.errors import ConfigError
from toolrail.events import Item
from toolrail.families.family import Family, Marker, PromptPolicy
from toolrail.parsing import ParseSpec, StreamParser
from toolrail.parsing.chain import ChainedParser
from toolrail.reasoning import PARSERS, ReasoningParser
from toolrail.reasoning.prefixed import PlainParser
from toolrail.structural_tag import TagFormat, TagOptions
from toolrail.structural_tag.arguments import held_arguments
from toolrail.structural_tag.templated import TagRequest
from toolrail.syntax import ReasoningMarkers
from toolrail.tools import StartsIn, Tool, ToolPolicy

ParserVersion: TypeAlias = Literal["auto", "1", "2"]

_MODULES: Final = {
    # name or alias → module of this package
    "beam": "beam",
    "deepseek-v4": "deepseek_v4",
    "deepseek_v3": "deepseek_v3",
    "deepseek_v3_1": "deepseek_v3_1",
    "deepseek_v3_2": "deepseek_v3_2",
    "deepseek_v4": "deepseek_v4",
    "deepseek_v41": "deepseek_v41",
    "deepseekv4": "deepseek_v4",
    "default": "default",
    "gemma-4": "gemma4",
    "gemma4": "gemma4",
    "glm47": "glm47",
    "gpt_oss": "harmony",
    "harmony": "harmony",
    "harmony_text": "harmony",
    "hermes": "hermes",
    "inkling": "inkling",
    "jamba": "jamba",
    "kimi-k3": "kimi_k3",
    "kimi_k2": "kimi_k2",
    "kimi_k3": "kimi_k3",
    "minimax-m3": "minimax_m3",
    "minimax-m3-nom": "minimax_m3",
    "minimax_m2": "minimax_m2",
    "minimax_m3": "minimax_m3",
    "minimax_m3_nom": "minimax_m3",
    "llama3_json": "llama3_json",
    "mistral": "mistral",
    "nemotron_deci": "nemotron_deci",
    "nemotron_nano": "nemotron_nano",
    "nemotron_v3": "nemotron_v3",
    "muse": "muse_glimmer",
    "muse_glimmer": "muse_glimmer",
    "muse_spark": "muse_spark",
    "muse_spark_open": "muse_spark",
    "nemotron3": "nemotron_v3",
    "phi4": "phi4",
    "pythonic": "pythonic",
    "qwen25": "qwen25",
    "qwen3_coder": "qwen3_coder",
    "qwen3": "qwen3_coder",
}
_ENGINE_SPELLINGS: Final = {
    # what engines call the same formats → name
    "deepseek_v31": "deepseek_v3_1",
    "deepseek_v32": "deepseek_v3_2",
    "deepseekv3": "deepseek_v3",
    "deepseekv31": "deepseek_v3_1",
    "deepseekv32": "deepseek_v3_2",
    "deepseekv4": "deepseek_v4",
    "deepseekv41": "deepseek_v41",
    "glm45": "glm47",
    "gpt-oss": "harmony",
    "llama3": "llama3_json",
    "llama4_pythonic": "pythonic",
    "minimax-m2": "minimax_m2",
    "muse": "muse_glimmer",
    "openai": "harmony",
    "phi4_mini_json": "phi4",
    "qwen2_5": "hermes",
}
_SPELLING_ROUTES: Final = {
    # spelling → generations that have it, where they differ from the family's own
    "deepseek-v4": frozenset({"1"}),
    "deepseekv4": frozenset({"1"}),
    "gemma-4": frozenset({"1"}),
    "minimax-m3-nom": frozenset({"1"}),
    "minimax_m3_nom": frozenset({"1"}),
    "qwen3": frozenset({"2"}),
}
_FIRST_GENERATION_REASONING: Final = frozenset({"kimi"})
# Where another special token stands between a reasoning opener and the end of the prompt, the
# opener was somebody's words: a turn marker followed it.
_TURN_MARKER: Final = re.compile(
    r"<[|｜]|\[/?INST\]|</s>|<(?:start|end)_of_turn>|\]~!?b[\]\[]|\[e~\["
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a deployment's pair of parser names means: how its model's turns are read and held.

    `markers`: reasoning markers of the configured reasoning parser, where it is a pair of markers.
    """

    tool_parser: str | None
    reasoning_parser: str | None
    family: Family | None
    _reasoning: ReasoningParser | None
    _pair: ReasoningMarkers | None

    def parser(self, spec: ParseSpec) -> StreamParser:
        """A parser of one choice of a request."""
        family, reasoning = self.family, self._reasoning
        if family is None:
            return reasoning.parser(spec) if reasoning else PlainParser(spec)
        if reasoning is None or reasoning.messages is not None or self._pair is not None:
            return family.parser(spec, self._pair)
        after = replace_start(spec)
        return ChainedParser(reasoning.parser(spec), family.parser(after, None))

    def tag(
        self,
        policy: ToolPolicy,
        starts_in: StartsIn,
        options: TagOptions,
        *,
        response: TagFormat | None = None,
    ) -> TagFormat | None:
        """The format that holds a turn (the ban, for `none`); None when the family has none.

        `response`: the format of a schema-held answer that may stand instead of calls.
        """
        if self.family is None:
            return None
        return self.family.tag(
            TagRequest(policy, starts_in, options, reasoning=self._pair, response=response)
        )

    def left_free(self, tool: Tool, options: TagOptions) -> tuple[str, ...]:
        """What of `tool`'s schema the tag does not hold because this format cannot."""
        if self.family is None:
            return ()
        return tuple(held_arguments(self.family.arguments, tool, options).free)

    @property
    def markers(self) -> tuple[Marker, ...]:
        """Every control string, tool and reasoning, that decoding must keep."""
        found = {m.text: m for m in (self.family.markers if self.family else ())}
        for marker in self._reasoning.control if self._reasoning else ():
            found.setdefault(marker.text, marker)
        return tuple(found.values())

    @property
    def bans(self) -> tuple[str, ...]:
        """Strings that a `tool_choice: none` tag keeps out of the output."""
        return self.family.bans if self.family else ()

    @property
    def prompt(self) -> PromptPolicy:
        """What the chat template needs."""
        return self.family.prompt if self.family else PromptPolicy()

    @property
    def argument_style(self) -> str:
        """The grammar engine's name for how calls spell their arguments."""
        return self.family.arguments.style if self.family else "json"

    def starts_in(self, prompt: str) -> StartsIn:
        """What the rendered prompt left open, from its end alone."""
        if self.family is not None and self.family.starts_in is not None:
            return self.family.starts_in(prompt)
        if self._reasoning and self._reasoning.messages:
            return self._reasoning.messages.starts_in(prompt)
        pair = self._pair
        if pair is None:
            return "none"
        end = prompt.rstrip()
        if end.endswith(tuple(e for e in (pair.end, *pair.ends) if e)):
            return "response"
        opened = max(prompt.rfind(begin) for begin in (pair.begin, *pair.begins))
        closed = max(prompt.rfind(close) for close in (pair.end, *pair.ends))
        if opened > closed and not _TURN_MARKER.search(prompt, opened + len(pair.begin)):
            return "reasoning"
        return "none"

    def render(self, items: Sequence[Item]) -> str:
        """The canonical wire text of a turn."""
        if self.family is None:
            raise ConfigError("tool_call_parser", "no tool parser is configured to render with")
        return self.family.render(items)


def tool_parser_names() -> tuple[str, ...]:
    """Every accepted name of a tool parser."""
    known = (name for name, means in _ENGINE_SPELLINGS.items() if means in _MODULES)
    return tuple(sorted({*_MODULES, *known}))


def reasoning_parser_names() -> tuple[str, ...]:
    """Every accepted name of a reasoning parser."""
    return tuple(sorted(PARSERS))


@cache
def family(name: str) -> Family:
    """The family that a tool parser's name (alias, engine spelling) means.

    Raises:
        ConfigError: there is none; the message lists the names that there are.
    """
    canonical = name if name in _MODULES else _ENGINE_SPELLINGS.get(name, name)
    if canonical not in _MODULES:
        raise ConfigError("tool_call_parser", _unknown(name, tool_parser_names()))
    found = import_module(f"toolrail.families.{_MODULES[canonical]}").FAMILY
    assert isinstance(found, Family)
    return found


def families() -> tuple[Family, ...]:
    """Every family once, by name."""
    return tuple(family(module) for module in sorted(set(_MODULES.values())))


@cache
def dialect(
    tool_parser: str | None,
    reasoning_parser: str | None,
    *,
    parser_version: ParserVersion = "auto",
) -> Dialect:
    """The dialect of a pair of parser names; None or "" for one that is not configured.

    There is one generation of parsers here: `parser_version` only validates the pair as the
    specification's routing table does.

    Raises:
        ConfigError: a name, or the pair, cannot work; the message lists what can.
    """
    tools = family(tool_parser) if tool_parser else None
    reasoning = _reasoning(reasoning_parser) if reasoning_parser else None
    if parser_version == "2" and reasoning_parser in _FIRST_GENERATION_REASONING:
        raise ConfigError(
            "dyn_parser_version", f"generation 2 has no reasoning parser {reasoning_parser!r}"
        )
    if tools is not None:
        _check_pair(tools, reasoning, str(tool_parser), parser_version)
    pair = reasoning.markers if reasoning else None
    if pair is not None and tools is not None and reasoning is not None:
        own = reasoning.name in tools.reasoning_names
        pair = replace(pair, calls_inside=pair.calls_inside and own)
    return Dialect(tool_parser or None, reasoning_parser or None, tools, reasoning, pair)


def stream_parser(spec: ParseSpec) -> StreamParser:
    """A parser for `spec`, by the names in it."""
    return dialect(spec.tool_parser, spec.reasoning_parser).parser(spec)


def reasoning_beside(tools: Family) -> tuple[str, ...]:
    """The reasoning parsers (without their aliases) that can stand beside a tool parser.

    Where one family owns reasoning, no name of another can be right: whichever of the two formats
    the model writes, the other parser finds nothing in it.
    """
    if tools.owns_reasoning:
        return tools.reasoning_names
    owned = {name for found in families() if found.owns_reasoning for name in found.reasoning_names}
    names = {parser.name for parser in PARSERS.values()}
    return tuple(sorted((names - owned - set(tools.never_beside)) | set(tools.reasoning_names)))


def replace_start(spec: ParseSpec) -> ParseSpec:
    """`spec` for the second of two chained parsers: what the prompt opened is not its business."""
    return msgspec.structs.replace(spec, reasoning_parser=None, starts_in="none")


def _reasoning(name: str) -> ReasoningParser:
    if name not in PARSERS:
        raise ConfigError("reasoning_parser", _unknown(name, reasoning_parser_names()))
    return PARSERS[name]


def _check_pair(
    tools: Family, reasoning: ReasoningParser | None, name: str, version: ParserVersion
) -> None:
    paired = reasoning is not None and reasoning.name in tools.reasoning_names
    usual = ", ".join(tools.reasoning_names)
    if tools.needs_reasoning and not paired:
        raise ConfigError(
            "reasoning_parser", f"the tool parser {name!r} needs one of its own: {usual}"
        )
    if reasoning is not None and reasoning.name not in (can := reasoning_beside(tools)):
        raise ConfigError("reasoning_parser", _impossible(name, reasoning, can))
    if version == "auto":
        return
    if version not in _routes(name):
        can = [n for n in tool_parser_names() if version in _routes(n)]
        raise ConfigError(
            "dyn_parser_version",
            f"generation {version} has no tool parser {name!r}; it has {', '.join(can)}",
        )
    if version == "2" and reasoning is not None and not paired:
        raise ConfigError(
            "dyn_parser_version",
            f"generation 2 reads {name!r} together with one of its own reasoning parsers only: "
            f"{usual or 'it has none'}",
        )


def _impossible(name: str, reasoning: ReasoningParser, can: Sequence[str]) -> str:
    owners = [
        f.name for f in families() if f.owns_reasoning and reasoning.name in f.reasoning_names
    ]
    reads = f"{reasoning.name!r} reads turns of {', '.join(owners)} only; " if owners else ""
    return f"{reads}beside the tool parser {name!r} can stand {', '.join(can)}, or none"


def _routes(name: str) -> frozenset[str]:
    """The generations of parsers that have this spelling of a tool parser's name."""
    return _SPELLING_ROUTES.get(name, family(name).routes)


def _unknown(name: str, names: Sequence[str]) -> str:
    return f"{name!r} is no parser; there are {', '.join(names)}"
