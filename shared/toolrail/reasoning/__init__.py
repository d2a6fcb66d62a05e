"""The stand-alone reasoning parsers, by name.

Most are a pair of markers. Where output starts (inside reasoning or not) comes from the rendered
prompt, never from the name. With a tool parser of the same model, one machine reads both; the
records here give it the markers. Source of the list: formats index of the project, section
*Reasoning parsers*, checked against each model's chat template.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Final

from toolrail.parsing import ParseSpec, StreamParser
from toolrail.parsing.blocks import Block, Reading
from toolrail.parsing.channels import MessageParser
from toolrail.parsing.headers import MessageSyntax
from toolrail.parsing.turn import TurnParser
from toolrail.parsing.turn_grammar import Grammar
from toolrail.parsing.xtml import (
    CALLS,
    END_OF_MESSAGE,
    MESSAGE_END,
    RESPONSE,
    RESPONSE_END,
    THINK,
    THINK_END,
    TOOLS,
)
from toolrail.reasoning.prefixed import PrefixedParser
from toolrail.syntax import Marker, ReasoningMarkers


@dataclass(frozen=True, slots=True)
class ReasoningParser:
    """A reasoning parser by name.

    `markers`: for one that is a pair of markers. `family`: the module of the family whose messages
    hold the reasoning. `machine`: for any other.
    """

    name: str
    markers: ReasoningMarkers | None = None
    machine: Callable[[ParseSpec], StreamParser] | None = None
    family: str | None = None
    aliases: tuple[str, ...] = ()

    def parser(self, spec: ParseSpec) -> StreamParser:
        """A parser of reasoning alone: tool markup is text."""
        if self.machine is not None:
            return self.machine(spec)
        if self.messages is not None:
            return MessageParser(self.messages, spec, calls=False)
        grammar = Grammar(openers=(), block=_no_block, reasoning=self.markers)
        return TurnParser(grammar, spec)

    @property
    def messages(self) -> MessageSyntax | None:
        """How the messages are written that hold the reasoning, if it is in messages."""
        if self.family is None:
            return None
        # Imported when asked for: the package of the families imports this one.
        syntax = import_module(f"toolrail.families.{self.family}").SYNTAX
        assert isinstance(syntax, MessageSyntax)
        return syntax

    @property
    def control(self) -> tuple[Marker, ...]:
        """Its control strings, which decoding must keep."""
        if self.messages is not None:
            return tuple(Marker(text, special=True) for text in self.messages.markers)
        pair = self.markers
        if pair is None:
            return ()
        texts = (pair.begin, pair.end, *pair.begins, *pair.ends, *pair.strays)
        return tuple(Marker(text, special=pair.special) for text in texts if text)


def _no_block(opener: str, reading: Reading) -> Block:
    raise AssertionError("a grammar without openers opens no block")


_THINK: Final = ReasoningMarkers("<think>", "</think>")
_THINK_THEN_BLANK_LINE: Final = replace(_THINK, after="\n\n")
_DSML_OPENERS: Final = (
    "<｜DSML｜tool_calls>",
    "<｜DSML｜function_calls>",
    "<｜DSML｜invoke name=",
)

_PARSERS: Final = (
    ReasoningParser("basic", _THINK),
    ReasoningParser("qwen3", _THINK_THEN_BLANK_LINE),
    ReasoningParser("glm45", replace(_THINK, after="\n")),
    ReasoningParser("nemotron_deci", _THINK),
    ReasoningParser("nemotron_nano", _THINK),
    ReasoningParser("nemotron_v3", _THINK, aliases=("nemotron3",)),
    ReasoningParser("deepseek_r1", _THINK_THEN_BLANK_LINE),
    ReasoningParser("deepseek_v3", _THINK_THEN_BLANK_LINE),
    ReasoningParser("deepseek_v3_1", _THINK),
    ReasoningParser("deepseek_v3_2", _THINK),
    ReasoningParser(
        "deepseek_v4",
        replace(_THINK, boundaries=_DSML_OPENERS),
        aliases=("deepseek-v4", "deepseekv4"),
    ),
    ReasoningParser("deepseek_v41", _THINK),
    ReasoningParser("step3", _THINK),
    ReasoningParser(
        "kimi_k25",
        replace(_THINK, boundaries=("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>")),
    ),
    ReasoningParser(
        "minimax_m2",
        replace(_THINK_THEN_BLANK_LINE, boundaries=("<minimax:tool_call>", "<invoke name=")),
    ),
    ReasoningParser(
        "minimax_m3",
        ReasoningMarkers("<mm:think>", "</mm:think>", unopened=True),
        aliases=("minimax-m3",),
    ),
    ReasoningParser("minimax_append_think", machine=partial(PrefixedParser, "<think>")),
    ReasoningParser("kimi", ReasoningMarkers("◁think▷", "◁/think▷", special=False)),
    ReasoningParser(
        "kimi_k3",
        ReasoningMarkers(
            THINK[0],
            THINK_END[0],
            begins=THINK[1:],
            ends=(*THINK_END[1:], *RESPONSE),  # an answer ends reasoning that was not closed
            boundaries=(*TOOLS, *CALLS),
            strays=(*RESPONSE_END, *MESSAGE_END, END_OF_MESSAGE),
            special=False,
        ),
        aliases=("kimi-k3",),
    ),
    ReasoningParser(
        "mistral", ReasoningMarkers("[THINK]", "[/THINK]", boundaries=("[TOOL_CALLS]",))
    ),
    ReasoningParser(
        "granite",
        ReasoningMarkers(
            "Here is my thought process:",
            "Here is my response:",
            begins=("Here's my thought process:",),
            ends=("Here's my response:",),
            special=False,
        ),
    ),
    ReasoningParser(
        "gemma4",
        ReasoningMarkers("<|channel>", "<channel|>", label="thought\n"),
        aliases=("gemma-4",),
    ),
    ReasoningParser("gpt_oss", family="harmony", aliases=("gpt-oss", "harmony", "openai_gptoss")),
    ReasoningParser("beam", family="beam"),
    ReasoningParser("muse_glimmer", family="muse_glimmer", aliases=("muse",)),
    ReasoningParser("muse_spark", family="muse_spark", aliases=("muse_spark_open",)),
    ReasoningParser("inkling", family="inkling"),
)

PARSERS: Final = {
    spelling: parser for parser in _PARSERS for spelling in (parser.name, *parser.aliases)
}
"""Every accepted spelling."""
