"""The strict preflight of a Responses request: functions, namespace members, text format.

All submitted functions are checked, also those that `allowed_tools` leaves out. The other fields of
the body are not read here: Responses is not served yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta, Raw

from toolrail.openai.decode import decode
from toolrail.openai.functions import json_schema
from toolrail.openai.limits import MAX_MODEL_CHARS, MAX_SCHEMAS_BYTES, MAX_TOOLS
from toolrail.openai.refusals import refusal
from toolrail.openai.strict import check_strict
from toolrail.openai.wire import ABSENT, Name


class _Function(msgspec.Struct, frozen=True, tag_field="type", tag="function"):
    name: Name
    parameters: Raw = ABSENT
    strict: bool | None = None
    description: str | None = None


class _Custom(msgspec.Struct, frozen=True, tag_field="type", tag="custom"):
    name: Name
    description: str | None = None


class _Namespace(msgspec.Struct, frozen=True, tag_field="type", tag="namespace"):
    name: Name
    tools: Annotated[list[_Function | _Custom], Meta(min_length=1, max_length=MAX_TOOLS)]
    description: str | None = None


_Tool: TypeAlias = _Function | _Custom | _Namespace


class _TextFormat(msgspec.Struct, frozen=True):
    type: str
    name: str = ""
    schema: Raw = ABSENT
    strict: bool | None = None


class _Text(msgspec.Struct, frozen=True):
    format: _TextFormat | None = None


class _Body(msgspec.Struct, frozen=True):
    model: Annotated[str, Meta(min_length=1, max_length=MAX_MODEL_CHARS)]
    input: str | list[Raw] = ""
    tools: Annotated[list[_Tool], Meta(max_length=MAX_TOOLS)] | None = None
    text: _Text | None = None


_decoder: Final = msgspec.json.Decoder(_Body)


def check_responses(body: bytes) -> None:
    """Returns if the request's tools and text format may pass.

    Raises:
        CallerError: one is malformed, or says `strict: true` and breaks a rule.
    """
    request = decode(_decoder, body)
    _check_tools(request.tools or (), "tools")
    wanted = request.text.format if request.text else None
    if wanted is not None and wanted.type == "json_schema":
        owner, param = f"text format '{wanted.name}'", "text.format.schema"
        schema = json_schema(wanted.schema, param, owner)
        check_strict(schema, strict=wanted.strict, owner=owner, param=param)


def _check_tools(tools: Sequence[_Tool], path: str) -> int:
    """Checks the tools; the bytes of their schemas."""
    size = 0
    names: set[str] = set()
    for index, tool in enumerate(tools):
        at = f"{path}[{index}]"
        if tool.name in names:
            raise refusal(
                f"Two tools are named '{tool.name}': names must be unique.", param=f"{at}.name"
            )
        names.add(tool.name)
        match tool:
            case _Function():
                owner, param = f"function '{tool.name}'", f"{at}.parameters"
                schema = json_schema(tool.parameters, param, owner)
                check_strict(schema, strict=tool.strict, owner=owner, param=param)
                size += memoryview(tool.parameters).nbytes
            case _Namespace():
                size += _check_tools(tool.tools, f"{at}.tools")
            case _Custom():
                pass
        if size > MAX_SCHEMAS_BYTES:
            raise refusal(
                f"The parameters of all tools together exceed {MAX_SCHEMAS_BYTES:,} bytes.",
                param=path,
                code="string_above_max_length",
            )
    return size
