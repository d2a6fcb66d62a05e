"""From bytes to typed records: JSON, UTF-8, types and ranges checked in one pass.

Duplicate keys: the last one counts, as everywhere. Numbers that JSON does not have (NaN, Infinity)
and lone surrogates are refused. What is wrong is said by `refusals`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Final, Generic, TypeVar, cast

import msgspec
from msgspec import Meta, Raw

from toolrail.openai.limits import (
    MAX_JSON_CONTAINERS,
    MAX_JSON_DEPTH,
    MAX_MESSAGES,
    MAX_PARTS,
    MAX_SCHEMA_BYTES,
    MAX_TOOLS,
)
from toolrail.openai.refusals import not_json, refusal, shortened, too_deep, wrong_shape

T = TypeVar("T")

_LONG_BYTES: Final = 1 << 20
"""From here on the lists of a body are counted before their members are made into records."""


@dataclass(frozen=True, slots=True)
class Kinds(Generic[T]):
    """Parts of a body that say by `type` what they are.

    Attributes:
        noun: what they are, in the plural.
        reason: why no other kinds are read.
        decoders: by kind.
    """

    noun: str
    reason: str
    decoders: Mapping[str, msgspec.json.Decoder[T]]


class _Lists(msgspec.Struct, frozen=True):
    """The lists of a body that may be long, their members unread."""

    messages: Annotated[list[Raw], Meta(max_length=MAX_MESSAGES)] | None = None
    tools: Annotated[list[Raw], Meta(max_length=MAX_TOOLS)] | None = None
    input: str | Annotated[list[Raw], Meta(max_length=MAX_MESSAGES)] | None = None


class _Message(msgspec.Struct, frozen=True):
    """A message, the parts of its content unread."""

    content: str | list[Raw] | None = None


class _Item(msgspec.Struct, frozen=True):
    """An item of Responses, the parts of its content or output unread."""

    content: str | list[Raw] | None = None
    output: str | list[Raw] | None = None


class _Messages(msgspec.Struct, frozen=True):
    messages: list[_Message] | None = None
    input: str | list[_Item] | None = None


_lists: Final = msgspec.json.Decoder(_Lists)
_messages: Final = msgspec.json.Decoder(_Messages)


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """`body` as the decoder's type. O(len(body)).

    Types made of records and `msgspec.Raw` stay cheap for any body: no generic JSON is built.

    Raises:
        CallerError: not UTF-8, not JSON, too deep, or not of that type.
    """
    try:
        if not body.isascii():
            body.decode()  # msgspec does not look into the strings that it skips
        if len(body) > _LONG_BYTES:
            # msgspec holds a list against its bound only when it has made all its members: 80,000
            # tools would hold the interpreter for a tenth of a second.
            _lists.decode(body)
            _check_parts(_messages.decode(body))
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise wrong_shape(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise not_json(str(error), "") from None
    except RecursionError:
        raise too_deep("") from None


def decode_at(decoder: msgspec.json.Decoder[T], raw: Raw, path: str) -> T:
    """A part of a body that was decoded as `Raw`, which stands at `path`. O(len(raw)).

    Raises:
        CallerError: it is too deep, or not of the decoder's type.
    """
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise wrong_shape(str(error), path) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise not_json(str(error), path) from None
    except RecursionError:
        raise too_deep(path) from None


def decode_kind(kinds: Kinds[T], kind: str, raw: Raw, path: str) -> T:
    """A part of a body as its `kind` has it, which stands at `path`. O(len(raw)).

    Raises:
        CallerError: it is of a kind that is not read, too deep, or not of its decoder's type.
    """
    decoder = kinds.decoders.get(kind)
    if decoder is None:
        names = "', '".join(kinds.decoders)
        raise refusal(
            f"{kinds.noun} of type '{shortened(kind)}' are not supported: {kinds.reason}. "
            f"Supported are '{names}'.",
            param=f"{path}.type",
            code="unsupported_value",
        )
    return decode_at(decoder, raw, path)


def _check_parts(body: _Messages) -> None:
    items = body.input if isinstance(body.input, list) else ()
    contents: dict[str, Iterable[object]] = {
        "messages": (message.content for message in body.messages or ()),
        "input": chain.from_iterable((item.content, item.output) for item in items),
    }
    for param, found in contents.items():
        lists = (cast("list[Raw]", content) for content in found if isinstance(content, list))
        if sum(map(len, lists)) > MAX_PARTS:
            raise refusal(
                f"The contents of '{param}' have too many parts: at most {MAX_PARTS:,} in all.",
                param=param,
                code="array_above_max_length",
            )


def decode_json(
    text: bytes | msgspec.Raw | str, param: str, *, max_bytes: int = MAX_SCHEMA_BYTES
) -> object:
    """Generic JSON of bounded size and depth: dict, list, str, int, float, bool or None.

    Raises:
        CallerError: not JSON, larger than `max_bytes`, or nested deeper than `MAX_JSON_DEPTH`.
    """
    data = text.encode(errors="surrogatepass") if isinstance(text, str) else bytes(text)
    if len(data) > max_bytes or data.count(b"[") + data.count(b"{") > MAX_JSON_CONTAINERS:
        raise refusal(
            f"'{param}' is too large: at most {max_bytes:,} bytes and {MAX_JSON_CONTAINERS:,} "
            "objects and arrays.",
            param=param,
            code="string_above_max_length",
        )
    try:
        value: object = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise not_json(str(error), param) from None
    except RecursionError:
        raise too_deep(param) from None
    if _deeper_than(value, MAX_JSON_DEPTH):
        raise too_deep(param)
    return value


def without_wide_integers(value: object, param: str) -> object:
    """`value`, with integers beyond 64 bits as floats: schemas travel in a format that ends there.

    Recursive: `decode_json` has bounded the depth.

    Raises:
        CallerError: one is beyond the floats too.
    """
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        return {name: without_wide_integers(members[name], param) for name in members}
    if isinstance(value, list):
        return [without_wide_integers(item, param) for item in cast("list[object]", value)]
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        try:
            return float(value)
        except OverflowError:
            raise refusal(f"'{param}' has a number that is out of range.", param=param) from None
    return value


def _deeper_than(value: object, limit: int) -> bool:
    """True when containers nest deeper than `limit`. Iterative; O(number of values)."""
    level: list[object] = [value] if isinstance(value, dict | list) else []
    depth = 0
    while level:
        depth += 1
        if depth > limit:
            return True
        below = chain.from_iterable(map(_values, level))
        level = [item for item in below if isinstance(item, dict | list)]
    return False


def _values(container: object) -> Iterable[object]:
    if isinstance(container, dict):
        return cast("dict[str, object]", container).values()
    return cast("list[object]", container)
