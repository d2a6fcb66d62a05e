"""What the machines of `parsing.turn` and `parsing.guided` must know of a family: its markers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from toolrail.parsing import ParseSpec
from toolrail.parsing.blocks import Block, Reading
from toolrail.syntax import ReasoningMarkers

MarkerKind: TypeAlias = Literal["open", "begin", "end", "stray", "inner", "boundary"]


@dataclass(frozen=True, slots=True)
class Grammar:
    """What the turn machine must know of a family.

    Attributes:
        reasoning: markers of the configured reasoning parser, or None.
        openers: markers that begin tool markup.
        strays: control strings that are eaten where they are not expected (closers).
        inner: control strings of calls that are eaten as well, but end no broken call.
        block: the reader for an opener. `careful`: only what is certainly a call may begin.
        resume: the reader that goes on after the closer at which a broken call ended, or None.
        lead: framing eaten before an opener: all of it or nothing, or any end of it if
            `lead_in_part`.
        separator: framing eaten after tool markup, as much of it as is there.
        prose_after_opener: as in `syntax.Syntax`.
        words: openers that are prose as well: literal where no call follows, whatever
            `prose_after_opener` says of the others.
        first: a block that is tried where visible text begins, for calls that need no opener
            there; BAD with `begun` false says that the text is prose.
        header: an opener with what its header begins with (`<|tool_call_begin|>functions.`), which
            around a guided payload are one marker, or "".
        prefix: what a header begins with after its opener (`call:`), which before a guided payload
            may stand without the opener, or "".
    """

    openers: tuple[str, ...]
    block: Callable[[str, Reading], Block]
    reasoning: ReasoningMarkers | None = None
    strays: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()
    resume: Callable[[str, Reading], Block | None] | None = None
    lead: str = ""
    lead_in_part: bool = False
    separator: str = ""
    prose_after_opener: Literal["dropped", "kept", "literal"] = "dropped"
    words: tuple[str, ...] = ()
    header: str = ""
    prefix: str = ""
    first: Callable[[Reading], Block] | None = None


def waits(grammar: Grammar, spec: ParseSpec) -> bool:
    """Whether the first text may turn out to have been reasoning."""
    reasoning = grammar.reasoning
    return reasoning is not None and reasoning.unopened and spec.starts_in == "none"


def marker_kinds(grammar: Grammar, spec: ParseSpec) -> dict[str, MarkerKind]:
    """What each marker that may stand in prose is."""
    kinds: dict[str, MarkerKind] = dict.fromkeys(grammar.inner, "inner")
    kinds.update(dict.fromkeys(grammar.strays, "stray"))
    kinds.update(dict.fromkeys(grammar.openers, "open"))
    reasoning = grammar.reasoning
    if reasoning is not None:
        kinds.update(dict.fromkeys(reasoning.strays, "stray"))
    if reasoning is not None and spec.starts_in != "response":
        kinds.update(dict.fromkeys((reasoning.begin, *reasoning.begins), "begin"))
        kinds.update(dict.fromkeys((reasoning.end, *reasoning.ends), "end"))
    kinds.pop("", None)
    return kinds


def reasoning_markers(grammar: Grammar, kinds: Mapping[str, MarkerKind]) -> list[str]:
    """The markers that matter inside reasoning."""
    reasoning = grammar.reasoning
    if reasoning is None or reasoning.calls_inside:
        return [*kinds, *(reasoning.boundaries if reasoning else ())]
    own = [m for m, kind in kinds.items() if kind in ("begin", "end")]
    return [*own, *reasoning.strays, *reasoning.boundaries]


def led_openers(grammar: Grammar) -> dict[str, str]:
    """The openers with the framing that may stand before them, and the openers they are."""
    ends = range(len(grammar.lead) if grammar.lead_in_part else 1) if grammar.lead else ()
    return {grammar.lead[at:] + opener: opener for at in ends for opener in grammar.openers}
