"""What `toolrail doctor` looks at in a model: card, vocabulary, template, parser, grammar engine.

No I/O here: the command fetches, these judge. Each finding says what to do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from toolrail.chat_template import ChatTemplate
from toolrail.errors import CallerError, ConfigError, FaultError
from toolrail.events import Turn, assemble
from toolrail.families import Dialect, dialect
from toolrail.grammar import GrammarError, Vocabulary
from toolrail.messages import Instance, ModelCard
from toolrail.openai.habits import Habits, habits
from toolrail.parsing import ParseSpec
from toolrail.structural_tag import TagOptions
from toolrail.tokens import Tokenizer
from toolrail.tools import Tool, ToolPolicy

Level: TypeAlias = Literal["ok", "warn", "fail"]

_SKEW_S: Final = 2.0
_PROBE: Final = "doctor_probe"
_VALUE: Final = "Value41"
_SCHEMA: Final[Mapping[str, object]] = {
    "type": "object",
    "properties": {"key": {"type": "string", "description": "A key."}},
    "required": ["key"],
    "additionalProperties": False,
}
_TOOL: Final[Mapping[str, object]] = {
    "type": "function",
    "function": {"name": _PROBE, "description": "A probe.", "parameters": _SCHEMA},
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `advice` is empty where there is nothing to do."""

    level: Level
    about: str
    text: str
    advice: str = ""


def of_instances(
    service: str, instances: Sequence[Instance], alive: Mapping[str, bool], now_s: float
) -> Iterator[Finding]:
    """The processes of one service: some are there, they answer, their clocks agree."""
    ready = [known for known in instances if known.ready and not known.draining]
    if not ready:
        yield Finding(
            "fail", service, "no instance is registered and ready", f"start services.{service}"
        )
    for known in instances:
        about = f"{service} {known.instance}"
        if not alive.get(known.instance, False):
            advice = "it is stuck, or just died: its registration expires within seconds"
            yield Finding("warn", about, "is registered and does not answer", advice)
        elif known.started_ms / 1000 > now_s + _SKEW_S:
            ahead = known.started_ms / 1000 - now_s
            advice = "keep the clocks of all hosts by NTP: deadlines are absolute times"
            yield Finding("fail", about, f"its clock is {ahead:.0f} s ahead of this one", advice)
        else:
            state = "draining" if known.draining else "answers"
            yield Finding("ok", about, state)


def of_model(card: ModelCard, tokenizer: Tokenizer, template: ChatTemplate) -> Iterator[Finding]:
    """Whether card, vocabulary, template, parser and grammar engine agree."""
    about = f"model {card.name}"
    try:
        speaks = dialect(
            card.tool_parser, card.reasoning_parser, parser_version=card.parser_version
        )
    except ConfigError as error:
        yield Finding("fail", about, str(error), "restart its workers with parsers that exist")
        return
    yield from _of_vocabulary(about, card, tokenizer)
    yield from _of_markers(about, speaks, tokenizer)
    if speaks.family is None:
        advice = "with --tool-call-parser it could call tools"
        yield Finding("warn", about, "no tool parser is configured", advice)
        return
    yield from _of_template(about, speaks, template)
    yield _of_grammar(about, speaks, card, tokenizer)


def _of_vocabulary(about: str, card: ModelCard, tokenizer: Tokenizer) -> Iterator[Finding]:
    if tokenizer.vocab_size > card.vocab_size:
        text = f"the tokenizer has {tokenizer.vocab_size} tokens, the model {card.vocab_size}"
        yield Finding("fail", about, text, "the tokenizer's files are not this model's")
    if not card.eos_token_ids:
        advice = "generation_config.json or config.json must name eos_token_id"
        yield Finding("fail", about, "no token ends its answers", advice)
    elif max(card.eos_token_ids) >= card.vocab_size:
        yield Finding("fail", about, "a token that ends its answers is not in its vocabulary")
    else:
        yield Finding("ok", about, f"vocabulary of {card.vocab_size} tokens")


def _of_markers(about: str, speaks: Dialect, tokenizer: Tokenizer) -> Iterator[Finding]:
    markers = [marker.text for marker in speaks.markers if marker.special]
    split = [text for text in markers if len(tokenizer.encode_now(text)) != 1]
    if split:
        advice = "the parser may be another family's, or the tokenizer lacks its added tokens"
        text = f"not single tokens in its vocabulary: {', '.join(split)}"
        yield Finding("warn", about, text, advice)
    elif markers:
        yield Finding("ok", about, f"its {len(markers)} control markers are single tokens")


def _of_template(about: str, speaks: Dialect, template: ChatTemplate) -> Iterator[Finding]:
    advice = "give a template that does: --custom-jinja-template"
    question: Mapping[str, object] = {"role": "user", "content": "Question43"}
    try:
        prompt = template.render([question], [_TOOL])
    except (CallerError, FaultError) as error:
        yield Finding("fail", about, f"its chat template fails with tools: {error}", advice)
        return
    if _PROBE not in prompt:
        yield Finding("fail", about, "its chat template does not show tools to the model", advice)
        return
    yield Finding("ok", about, "its chat template shows tools")
    reads = habits(template, speaks.prompt)
    turn = _past_turn(speaks, template, reads, question, prompt)
    if turn is None:
        yield Finding("warn", about, "its chat template does not show past calls", advice)
    elif [call.name for call in turn.calls] == [_PROBE] and _says(turn, _VALUE):
        yield Finding("ok", about, "the parser reads calls as the template writes them")
    else:
        text = "the parser does not read a call as the template writes it"
        yield Finding("fail", about, text, "choose the parser of this model: docs/families.md")


def _past_turn(
    speaks: Dialect,
    template: ChatTemplate,
    reads: Habits,
    question: Mapping[str, object],
    prompt: str,
) -> Turn | None:
    """A past call as the template writes it, read by the parser; None when it is not written."""
    arguments: object = {"key": _VALUE}
    if reads.arguments == "text":
        arguments = json.dumps(arguments)
    call = {
        "id": "call_12345678",
        "type": "function",
        "function": {"name": _PROBE, "arguments": arguments},
    }
    answer = {"role": "assistant", "content": reads.no_text, "tool_calls": [call]}
    try:
        before = template.render([question], [_TOOL], add_generation_prompt=False)
        text = template.render([question, answer], [_TOOL], add_generation_prompt=False)
    except (CallerError, FaultError):
        return None
    # Behind the generation prompt if the template writes the same there, else behind the question.
    begins = next((each for each in (prompt, before) if text.startswith(each)), None)
    if begins is None or _VALUE not in text[len(begins) :]:
        return None
    written = text[len(begins) :]
    tools = (Tool(_PROBE, _SCHEMA),)
    spec = ParseSpec(speaks.tool_parser, speaks.reasoning_parser, tools)
    parser = speaks.parser(spec)
    return assemble([*parser.feed(written), *parser.finish()])


def _says(turn: Turn, value: str) -> bool:
    return all(value in call.arguments for call in turn.calls)


def _of_grammar(about: str, speaks: Dialect, card: ModelCard, tokenizer: Tokenizer) -> Finding:
    policy = ToolPolicy("required", (Tool(_PROBE, _SCHEMA, strict=True),))
    tag = speaks.tag(policy, "none", card.structural_tag or TagOptions())
    if tag is None:
        advice = "its calls are read and not held; arguments are checked when complete"
        return Finding("warn", about, "its family has no structural tag", advice)
    try:
        Vocabulary(tokenizer.token_bytes()).compile(
            json.dumps({"type": "structural_tag", "format": tag})
        )
    except GrammarError as error:
        advice = "the grammar engine of this installation is not the one that the tags are for"
        return Finding("fail", about, f"a forced call does not compile: {error}", advice)
    return Finding("ok", about, "a forced call compiles against its vocabulary")
