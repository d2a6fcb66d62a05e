"""Whether what we answer is what OpenAI's published document describes, member by member.

Stricter than the document itself: it lets objects have any further members, here every one that it
does not name must be in `OURS`, the list of what we add on purpose.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final

import httpx
from jsonschema import Draft202012Validator

from tests.published import document

OURS: Final = frozenset(
    {
        # The reasoning of a chat message, under either name that APIs of open models give it.
        "message.reasoning_content",
        "message.reasoning",
        "delta.reasoning_content",
        "delta.reasoning",
        # As vLLM tells it.
        ".max_model_len",
        "data.max_model_len",
        # The hosted API tells it, the document does not.
        ".store",
        "response.store",
        # Newer than the document: openai-python 3.57 requires it.
        "input_tokens_details.cache_write_tokens",
    }
)
"""Members that our answers have and the document does not."""

_COMPONENT: Final = "#/components/schemas/"
_OPEN: Final = "#/open/"


def check(component: str, value: Any) -> None:
    """Fails unless `value` is what the component describes, but for the members in `OURS`.

    A value that differs from an earlier one in texts and numbers alone is not looked at again.
    """
    shape = (component, _shape(value))
    if shape not in _passed:
        errors = list(_validator(component).iter_errors(_without(value)))
        assert not errors, f"{component}: " + "; ".join(_told(error) for error in errors[:3])
        _passed.add(shape)


def check_chunks(events: Sequence[Any]) -> None:
    """Fails unless these are the events of a chat completion stream, `[DONE]` at its end."""
    *chunks, done = events
    assert done == "[DONE]"
    for chunk in chunks:
        check_chunk(chunk)


def check_chunk(chunk: Any) -> None:
    """Fails unless this is a chunk of a chat completion, or the error that ends it.

    Custom calls, which the published chunk does not know, are looked at by their own tests.
    """
    if "error" in chunk:
        check("ErrorResponse", chunk)
        return
    choices = [choice | {"delta": _functions(choice["delta"])} for choice in chunk["choices"]]
    check("CreateChatCompletionStreamResponse", chunk | {"choices": choices})


def _functions(delta: Mapping[str, Any]) -> Any:
    calls = [call for call in delta.get("tool_calls", ()) if "custom" not in call]
    rest = {key: value for key, value in delta.items() if key != "tool_calls"}
    return rest | ({"tool_calls": calls} if calls else {})


def check_answer(response: httpx.Response) -> None:
    """A hook of an `httpx.Client`: fails where a JSON answer of ours is not as published."""
    path = response.request.url.path
    if path.startswith("/v1/messages") or not path.startswith("/v1/"):
        return
    if response.headers.get("content-type") != "application/json":
        return
    response.read()
    answer = response.json()
    kind = "error" if "error" in answer and "object" not in answer else answer["object"]
    component = _ANSWERS.get("items" if path.endswith("/input_items") else kind)
    if component is not None and response.request.method != "HEAD":
        check(component, answer)


def check_response_events(events: Sequence[Mapping[str, Any]]) -> None:
    """Fails unless each is one of the events of Responses."""
    for event in events:
        check(_EVENTS[event["type"]], event)


_passed: set[tuple[str, object]] = set()

_TELLING: Final = frozenset(
    {"type", "object", "role", "status", "finish_reason", "reason", "code", "effort", "mode"}
)
"""Members whose text the document knows."""


def _shape(value: Any, key: str = "") -> object:
    """What decides whether a value passes: its members, their types, texts of closed sets."""
    if isinstance(value, dict):
        return tuple((name, _shape(member, name)) for name, member in value.items())
    if isinstance(value, list):
        return frozenset(_shape(member, key) for member in value)
    return value if key in _TELLING else type(value)


@functools.cache
def _validator(component: str) -> Draft202012Validator:
    return Draft202012Validator({**_schemas(), "$ref": _COMPONENT + component})


@functools.cache
def _schemas() -> dict[str, Any]:
    """All components twice: `open` where they are a part of a whole, closed where they are one."""
    schemas = document()["components"]["schemas"]
    closed = {name: _translated(schema, whole=True) for name, schema in schemas.items()}
    parts = {name: _translated(schema, whole=False) for name, schema in schemas.items()}
    return {"components": {"schemas": closed}, "open": parts}


def _translated(schema: Any, *, whole: bool) -> Any:
    """The schema in the words of JSON Schema 2020-12, closed to members that it does not name."""
    if not isinstance(schema, dict):
        return schema
    said: dict[str, Any] = {}
    for key, value in schema.items():
        match key:
            case "$ref":
                said[key] = value if whole else value.replace(_COMPONENT, _OPEN)
            case "properties":
                said[key] = {name: _translated(of, whole=True) for name, of in value.items()}
            case "allOf":
                said[key] = [_translated(part, whole=False) for part in value]
            case "anyOf" | "oneOf":
                said[key] = [_translated(member, whole=whole) for member in value]
            case "items":
                said[key] = _translated(value, whole=True)
            case "nullable" | "discriminator":
                pass
            case _:
                said[key] = value
    describes = bool(schema.get("properties")) or "allOf" in schema
    if whole and describes and "additionalProperties" not in schema:
        said["unevaluatedProperties"] = False
    return {"anyOf": [said, {"type": "null"}]} if schema.get("nullable") else said


def _without(value: Any, path: str = "") -> Any:
    if isinstance(value, dict):
        return {
            key: _without(member, key)
            for key, member in value.items()
            if f"{path}.{key}" not in OURS
        }
    if isinstance(value, list):
        return [_without(member, path) for member in value]
    return value


def _told(error: Any) -> str:
    deepest = min(error.context, key=lambda e: -len(e.path), default=error)
    return f"{deepest.json_path}: {deepest.message[:300]}"


_ANSWERS: Final[Mapping[str, str]] = {
    "error": "ErrorResponse",
    "chat.completion": "CreateChatCompletionResponse",
    "response": "Response",
    "items": "ResponseItemList",
    "list": "ListModelsResponse",
    "model": "Model",
}
"""What an answer must be, by its `object`."""

_EVENTS: Final[Mapping[str, str]] = {
    "error": "ResponseErrorEvent",
    "response.created": "ResponseCreatedEvent",
    "response.queued": "ResponseQueuedEvent",
    "response.in_progress": "ResponseInProgressEvent",
    "response.completed": "ResponseCompletedEvent",
    "response.incomplete": "ResponseIncompleteEvent",
    "response.failed": "ResponseFailedEvent",
    "response.output_item.added": "ResponseOutputItemAddedEvent",
    "response.output_item.done": "ResponseOutputItemDoneEvent",
    "response.content_part.added": "ResponseContentPartAddedEvent",
    "response.content_part.done": "ResponseContentPartDoneEvent",
    "response.output_text.delta": "ResponseTextDeltaEvent",
    "response.output_text.done": "ResponseTextDoneEvent",
    "response.reasoning_text.delta": "ResponseReasoningTextDeltaEvent",
    "response.reasoning_text.done": "ResponseReasoningTextDoneEvent",
    "response.function_call_arguments.delta": "ResponseFunctionCallArgumentsDeltaEvent",
    "response.function_call_arguments.done": "ResponseFunctionCallArgumentsDoneEvent",
    "response.custom_tool_call_input.delta": "ResponseCustomToolCallInputDeltaEvent",
    "response.custom_tool_call_input.done": "ResponseCustomToolCallInputDoneEvent",
}
