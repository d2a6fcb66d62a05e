"""A Responses request, parsed and checked once, as the one internal form.

In two steps, since a request may refer to what was stored: `read_responses` says what it needs of
that, `responses_request` goes on once it is there. Checks here need no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

import msgspec
from msgspec import Raw

from toolrail.errors import CallerError
from toolrail.openai.answers import ANY_OBJECT, Answer, FreeAnswer, JsonAnswer
from toolrail.openai.chat import ChatRequest, Origin, template_kwargs
from toolrail.openai.decode import decode
from toolrail.openai.functions import json_schema
from toolrail.openai.limits import MAX_MESSAGES
from toolrail.openai.refusals import refusal, shortened
from toolrail.openai.responses.conversation import conversation
from toolrail.openai.responses.echo import echo
from toolrail.openai.responses.items import (
    AdditionalToolsItem,
    MessageItem,
    Placed,
    ReferenceItem,
    read_item,
    read_items,
)
from toolrail.openai.responses.tools import Offered, chosen
from toolrail.openai.responses.wire import (
    LOGPROBS,
    JsonObjectFormat,
    JsonSchemaFormat,
    Reasoning,
    ResponsesBody,
    body_decoder,
)
from toolrail.openai.sampling import wishes_of
from toolrail.openai.strict import check_strict
from toolrail.openai.wire import given

_PREVIOUS: Final = "previous_response_id"

_REFUSED: Final = {
    "access_programs": "there are no access programs here",
    "background_options": "background responses run as soon as there is room",
    "context_management": "conversations are not compacted here, see 'truncation'",
    "conversation": "there are no conversation objects here, use 'previous_response_id'",
    "image": "the models served here read text",
    "moderation": "there is no moderation here",
    "prompt": "no prompt templates are stored here",
    "prompt_cache_options": "the prefix cache has no breakpoints and no lifetimes to choose",
}


@dataclass(frozen=True, slots=True)
class Past:
    """What was stored and a request refers to.

    Attributes:
        items: of the previous responses, oldest first, what went in and what came out.
        named: items that are referred to by name.
    """

    items: Sequence[Raw] = ()
    named: Mapping[str, Raw] = field(default_factory=dict[str, Raw])


@dataclass(frozen=True, slots=True)
class Draft:
    """A request whose fields are typed and ranged; what it refers to is not there yet."""

    raw: bytes
    body: ResponsesBody
    items: tuple[Placed, ...]
    without_hosted: bool = False

    @property
    def previous(self) -> str | None:
        """The response that this one follows."""
        return self.body.previous_response_id

    @property
    def references(self) -> tuple[str, ...]:
        """Names of the items that are referred to."""
        return tuple(item.id for item, _ in self.items if isinstance(item, ReferenceItem))


def check_responses(body: bytes) -> ChatRequest:
    """The request, with the strict preflight and without a look at what was stored.

    Raises:
        CallerError: the request is at fault.
    """
    return responses_request(read_responses(body), None)


def read_responses(raw: bytes, *, without_hosted: bool = False) -> Draft:
    """The fields of the request in `raw`, typed and ranged.

    `without_hosted`: tools that the hosted API runs itself, and their items, are left out.

    Raises:
        CallerError: with the path of the field at fault.
    """
    body = decode(body_decoder, raw)
    _refuse_unsupported(body)
    if body.input is None and body.previous_response_id is None:
        raise refusal(
            "Missing required parameter: 'input'.", param="input", code="missing_required_parameter"
        )
    if isinstance(body.input, str):
        items: tuple[Placed, ...] = ((MessageItem("user", body.input), "input"),)
    else:
        raws = ((raw, f"input[{index}]") for index, raw in enumerate(body.input or ()))
        items = tuple(read_items(raws, without_hosted=without_hosted))
    if not items and body.previous_response_id is None:
        raise refusal("'input' must not be empty.", param="input", code="empty_array")
    return Draft(raw, body, items, without_hosted)


def responses_request(draft: Draft, past: Past | None) -> ChatRequest:
    """The one internal form of the request, every field checked against the others.

    `past` None: what was stored is not known; then it is taken for granted.

    Raises:
        CallerError: with the path of the field at fault.
    """
    body = draft.body
    offered = _offered(draft)
    choice = chosen(body.tool_choice, offered)
    wanted = _answer(body)
    items = _resolved(draft, past)
    whole = past is not None or not (draft.previous or draft.references)
    return ChatRequest(
        model=body.model,
        messages=conversation(body.instructions, items, whole=whole),
        tools=tuple(offered.tools),
        choice=choice,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        max_calls=body.max_tool_calls,
        answer=wanted,
        wishes=wishes_of(
            body,
            ("max_output_tokens", body.max_output_tokens),
            top_logprobs=_top_logprobs(body),
        ),
        stream=bool(body.stream),
        include_usage=True,
        template_kwargs=template_kwargs(body.chat_template_kwargs),
        model_fields=_model_fields(body),
        reasoning_effort=body.reasoning.effort if body.reasoning else None,
        truncate=body.truncation == "auto",
        origin=Origin(
            conversation="input",
            answer="text.format",
            schemas=offered.schemas,
            namespaces=offered.namespaces,
            echo=echo(draft.raw, body),
        ),
    )


def _offered(draft: Draft) -> Offered:
    offered = Offered(without_hosted=draft.without_hosted)
    offered.add(draft.body.tools or (), "tools")
    for item, path in draft.items:
        if isinstance(item, AdditionalToolsItem):
            offered.add(item.tools, f"{path}.tools", empty_namespaces=True)
    return offered


def _resolved(draft: Draft, past: Past | None) -> list[Placed]:
    """All items: those of the past, then those of the request, references replaced."""
    items: list[Placed] = []
    if past is not None:
        raws = ((raw, _PREVIOUS) for raw in past.items)
        items += read_items(raws, without_hosted=draft.without_hosted)
    for item, path in draft.items:
        if not isinstance(item, ReferenceItem):
            items.append((item, path))
        elif past is not None:
            raw = past.named.get(item.id)
            if raw is None:
                raise item_not_found(item.id, path)
            items.append((read_item(raw, path), path))
    if len(items) > MAX_MESSAGES:
        raise refusal(
            f"The conversation has more than {MAX_MESSAGES:,} items.",
            param=_PREVIOUS if len(draft.items) <= MAX_MESSAGES else "input",
            code="array_above_max_length",
        )
    return items


def item_not_found(item_id: str, path: str) -> CallerError:
    """The 400 for a reference to what is not stored, or is somebody else's."""
    return refusal(
        f"Item '{shortened(item_id)}' is not found: items can be referred to while their response "
        "is stored ('store': true). Send the item itself.",
        param=f"{path}.id",
        code="item_not_found",
    )


def _answer(body: ResponsesBody) -> Answer:
    wanted = body.text.format if body.text else None
    match wanted:
        case JsonSchemaFormat(name, schema, _, strict):
            owner, param = f"text format '{name}'", "text.format.schema"
            found = json_schema(schema, param, owner)
            check_strict(found, strict=strict, owner=owner, param=param)
            return JsonAnswer(ANY_OBJECT if found is None else found, name, strict is True)
        case JsonObjectFormat():
            return JsonAnswer(ANY_OBJECT)
        case _:
            return FreeAnswer()


def _top_logprobs(body: ResponsesBody) -> int | None:
    """How many alternatives; asking for some asks for logprobs, as `include` does."""
    if body.top_logprobs or LOGPROBS in (body.include or ()):
        return body.top_logprobs or 0
    return None


def _model_fields(body: ResponsesBody) -> dict[str, bool]:
    found = {
        "preserve_thinking": body.preserve_thinking,
        "allow_missing_thinking": body.allow_missing_thinking,
    }
    return {name: value for name, value in found.items() if value is not None}


def _refuse_unsupported(body: ResponsesBody) -> None:
    for name, reason in _REFUSED.items():
        if given(cast("msgspec.Raw", getattr(body, name))):
            raise _unsupported(name, reason)
    if body.text is not None and body.text.verbosity not in (None, "medium"):
        raise _unsupported(
            "text.verbosity", "open models have no such switch", code="unsupported_value"
        )
    _refuse_reasoning(body.reasoning or Reasoning())
    if body.stream_options is not None:
        if not body.stream:
            raise refusal(
                "'stream_options' is only allowed when 'stream' is true.", param="stream_options"
            )
        if body.stream_options.include_obfuscation:
            raise _unsupported("stream_options.include_obfuscation", "it is not offered here")
    if body.background and body.store is False:
        raise refusal(
            "'background' needs 'store': the answer is fetched later.",
            param="background",
            code="unsupported_value",
        )


def _refuse_reasoning(reasoning: Reasoning) -> None:
    if reasoning.context not in (None, "auto"):
        raise _unsupported(
            "reasoning.context",
            "the model's chat template decides what of past reasoning is shown",
            code="unsupported_value",
        )
    if reasoning.mode not in (None, "standard"):
        raise _unsupported("reasoning.mode", "there is one mode", code="unsupported_value")


def _unsupported(param: str, reason: str, *, code: str = "unsupported_parameter") -> CallerError:
    return refusal(f"'{param}' is not supported: {reason}.", param=param, code=code)
