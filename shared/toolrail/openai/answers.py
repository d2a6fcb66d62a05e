"""What the request demands of the answer's text: nothing, JSON, or a bare constraint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, assert_never

import msgspec

from toolrail.errors import CallerError
from toolrail.openai.decode import decode_json
from toolrail.openai.functions import json_schema
from toolrail.openai.limits import MAX_GUIDED_CHARS
from toolrail.openai.refusals import refusal
from toolrail.openai.wire import (
    ChatBody,
    Extensions,
    Guided,
    JsonObjectFormat,
    JsonSchemaFormat,
    StructuredOutputs,
    TextFormat,
    WireResponseFormat,
    given,
)
from toolrail.tools import JsonSchema

ANY_OBJECT: Final[Mapping[str, object]] = {"type": "object"}


@dataclass(frozen=True, slots=True)
class FreeAnswer:
    """Any text."""


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    """`response_format`: the answer (not reasoning, not calls) is JSON of this schema."""

    schema: JsonSchema
    name: str = ""
    strict: bool = False


@dataclass(frozen=True, slots=True)
class GuidedAnswer:
    """A guided-decoding field: all output, from the first token on.

    Attributes:
        kind: which constraint.
        value: schema, regular expression, EBNF grammar, or the choices.
        param: the field it came from.
    """

    kind: Literal["json", "regex", "choice", "grammar"]
    value: JsonSchema | str | tuple[str, ...]
    param: str


Answer: TypeAlias = FreeAnswer | JsonAnswer | GuidedAnswer


def answer(body: ChatBody) -> Answer:
    """The one demand of the request.

    Raises:
        CallerError: two demands, or one that is malformed.
    """
    guided = _guided(body, "") + (_guided(body.nvext, "nvext.") if body.nvext else [])
    guided += _structured(body.structured_outputs)
    if len(guided) > 1:
        fields = "' and '".join(entry.param for entry in guided)
        raise refusal(
            f"'{fields}' cannot be combined: one constraint holds the output.",
            param=guided[1].param,
        )
    wanted = _response_format(body.response_format)
    if not guided:
        return wanted
    if isinstance(wanted, JsonAnswer):
        raise refusal(
            f"'{guided[0].param}' and 'response_format' cannot be combined: one constraint holds "
            "the output.",
            param=guided[0].param,
        )
    return guided[0]


def _response_format(wire: WireResponseFormat | None) -> FreeAnswer | JsonAnswer:
    match wire:
        case None | TextFormat():
            return FreeAnswer()
        case JsonObjectFormat():
            return JsonAnswer(ANY_OBJECT)
        case JsonSchemaFormat(declared):
            schema = json_schema(
                declared.schema,
                "response_format.json_schema.schema",
                f"response_format '{declared.name}'",
            )
            return JsonAnswer(
                ANY_OBJECT if schema is None else schema, declared.name, declared.strict is True
            )
        case _:
            assert_never(wire)


def _guided(fields: Guided | Extensions, prefix: str) -> list[GuidedAnswer]:
    _check_backend(fields, prefix)
    found: list[GuidedAnswer] = []
    if given(fields.guided_json):
        param = f"{prefix}guided_json"
        found.append(GuidedAnswer("json", _guided_schema(fields.guided_json, param), param))
    if fields.guided_regex is not None:
        found.append(GuidedAnswer("regex", fields.guided_regex, f"{prefix}guided_regex"))
    if fields.guided_choice is not None:
        param = f"{prefix}guided_choice"
        if sum(map(len, fields.guided_choice)) > MAX_GUIDED_CHARS:
            raise refusal(
                f"The choices of '{param}' exceed {MAX_GUIDED_CHARS:,} characters together.",
                param=param,
                code="string_above_max_length",
            )
        found.append(GuidedAnswer("choice", tuple(fields.guided_choice), param))
    if fields.guided_grammar is not None:
        found.append(GuidedAnswer("grammar", fields.guided_grammar, f"{prefix}guided_grammar"))
    return found


def _structured(fields: StructuredOutputs | None) -> list[GuidedAnswer]:
    """The same by vLLM's newer name."""
    if fields is None:
        return []
    if fields.json_object and given(fields.json):
        raise refusal(
            "'structured_outputs.json' and 'structured_outputs.json_object' cannot be combined.",
            param="structured_outputs.json_object",
        )
    schema = b'{"type":"object"}' if fields.json_object else b""
    found = _guided(
        Guided(
            guided_json=fields.json if given(fields.json) else msgspec.Raw(schema),
            guided_regex=fields.regex,
            guided_choice=fields.choice,
            guided_grammar=fields.grammar,
        ),
        "",
    )
    return [replace(one, param=f"structured_outputs.{one.kind}") for one in found]


def _guided_schema(raw: msgspec.Raw, param: str) -> JsonSchema:
    """A schema, or (as vLLM allows) the JSON text of one."""
    value = decode_json(raw, param)
    if isinstance(value, str):
        value = decode_json(value, param)
    if isinstance(value, dict | bool):
        return value  # pyright: ignore[reportUnknownVariableType]: JSON objects have string keys
    raise refusal(
        f"Invalid type for '{param}': expected a JSON Schema or its JSON text.",
        param=param,
        code="invalid_type",
    )


def _check_backend(fields: Guided | Extensions, prefix: str) -> None:
    if fields.guided_decoding_backend not in (None, "", "auto", "xgrammar"):
        raise _unsupported(
            f"{prefix}guided_decoding_backend", "the grammar engine is 'xgrammar' and no other"
        )
    if fields.guided_whitespace_pattern is not None:
        raise _unsupported(
            f"{prefix}guided_whitespace_pattern", "JSON whitespace is bounded by the deployment"
        )


def _unsupported(param: str, reason: str) -> CallerError:
    return refusal(
        f"'{param}' is not supported: {reason}.", param=param, code="unsupported_parameter"
    )
