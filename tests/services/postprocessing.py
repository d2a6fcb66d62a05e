"""Doubles for the postprocessor's tests: a tokenizer of single bytes, and a toy parser."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from services.postprocessor.choice import Choice, Plan
from services.postprocessor.stop import StopStrings
from toolrail.events import (
    ArgumentsDelta,
    CallEnd,
    CallStart,
    Event,
    ReasoningDelta,
    TextDelta,
)
from toolrail.messages import Output, TokenDelta
from toolrail.parsing import ParseSpec, StreamParser
from toolrail.reasoning.prefixed import PlainParser
from toolrail.tokens import Tokenizer

EOS = "<|im_end|>"
TOOL_TAGS = ("<tool_call>", "</tool_call>")


def tokenizer_json() -> str:
    """One id per byte, and special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = tokenizers.Tokenizer(
        models.BPE(vocab={c: n for n, c in enumerate(alphabet)}, merges=[])
    )
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([EOS, *TOOL_TAGS, "<s>"])
    return inner.to_str()


TOKENIZER = Tokenizer.from_json(tokenizer_json())
EOS_ID = TOKENIZER.special_tokens[EOS]


def ids(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER.encode_now(text))


class ToyParser:
    """`{reasoning}`, `[name:arguments]`, text. A call holds nothing, so that cuts show."""

    def __init__(self) -> None:
        self._state = "text"
        self._name = ""
        self._index = -1

    def feed(self, text: str) -> list[Event]:
        return [event for character in text for event in self._one(character)]

    def finish(self, *, cut: bool = False) -> list[Event]:
        del cut
        return [CallEnd(self._index, complete=False)] if self._state == "arguments" else []

    def _one(self, character: str) -> Iterable[Event]:
        match self._state, character:
            case "text", "{":
                self._state = "reasoning"
            case "text", "[":
                self._state, self._name = "name", ""
            case "text", _:
                yield TextDelta(character)
            case "reasoning", "}":
                self._state = "text"
            case "reasoning", _:
                yield ReasoningDelta(character)
            case "name", ":":
                self._state = "arguments"
                self._index += 1
                yield CallStart(self._index, self._name)
            case "name", _:
                self._name += character
            case "arguments", "]":
                self._state = "text"
                yield CallEnd(self._index)
            case "arguments", "!":
                raise RuntimeError("a bug of the parser")
            case _:
                yield ArgumentsDelta(self._index, character)


def plan(
    output: Output | None = None,
    *,
    keep: Sequence[str] = (),
    markers: Sequence[str] = (),
    tools: Iterable[str] = ("f",),
    reasons: bool = True,
) -> Plan:
    output = output or Output()
    return Plan(
        tokenizer=TOKENIZER,
        output=output,
        stop=StopStrings(output.stop),
        keep=keep,
        ends=frozenset({EOS_ID}),
        markers=markers,
        tools=frozenset(tools),
        reasons=reasons,
    )


def choice(
    output: Output | None = None, parser: StreamParser | None = None, *, reasons: bool = True
) -> Choice:
    return Choice(plan(output, reasons=reasons), parser or ToyParser())


def plain_choice(output: Output | None = None) -> Choice:
    return Choice(plan(output, reasons=False), PlainParser(ParseSpec()))


def delta(
    text: str | Sequence[int],
    seq: int = 0,
    *,
    request_id: str = "r",
    choice: int = 0,
    epoch: int = 0,
    finish: str | None = None,
    **fields: object,
) -> TokenDelta:
    token_ids = ids(text) if isinstance(text, str) else tuple(text)
    return TokenDelta(request_id, choice, epoch, seq, token_ids, finish, **fields)  # type: ignore[arg-type]
