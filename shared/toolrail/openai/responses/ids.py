"""Names of responses and of their items: an item's name holds its response's.

So an item that a client refers to by name alone (`item_reference`) is found without an index, and
whoever cannot guess the name of a response cannot guess those of its items.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple, TypeAlias

Prefix: TypeAlias = Literal["rs", "msg", "fc", "ctc", "fco", "ctco", "at"]
"""What an item is: reasoning, message, function call, custom call, their outputs, tools."""

_RESPONSE: Final = re.compile(r"resp_(?P<request>[0-9a-f]{32})\Z")
_ITEM: Final = re.compile(
    r"[a-z]{2,4}_(?P<request>[0-9a-f]{32})(?P<side>[oi])(?P<index>[0-9a-f]{4})\Z"
)


class ItemPlace(NamedTuple):
    """Where an item stands: in the output of a response, or in its own input."""

    response_id: str
    output: bool
    position: int


def response_id(request_id: str) -> str:
    """The `id` of the response to a request."""
    return f"resp_{request_id}"


def is_response_id(name: str) -> bool:
    """Whether a response of ours could be called that."""
    return _RESPONSE.match(name) is not None


def output_item_id(prefix: Prefix, request_id: str, index: int) -> str:
    """The `id` of the item at `index` of the output."""
    return f"{prefix}_{request_id}o{index:04x}"


def input_item_id(prefix: Prefix, response_id: str, index: int) -> str:
    """The `id` of the item at `index` of what a request brought, where it brought none."""
    return f"{prefix}_{response_id.removeprefix('resp_')}i{index:04x}"


def item_place(item_id: str) -> ItemPlace | None:
    """Where the item is, or None when the name is none of ours."""
    found = _ITEM.match(item_id)
    if found is None:
        return None
    return ItemPlace(
        response_id(found["request"]), found["side"] == "o", int(found["index"], base=16)
    )
