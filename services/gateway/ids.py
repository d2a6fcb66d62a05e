"""Identifiers that clients see, and the ones they may bring."""

from __future__ import annotations

import re
import secrets
from typing import Final

_CLIENT_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+=@-]{0,127}")
"""What is echoed of a client's x-request-id: it ends up in headers, logs and traces."""


def new_request_id() -> str:
    """A fresh id for one request on the bus, never taken from the client.

    The work queue and the workers drop a repeated request id as a duplicate; a client that sends
    the same x-request-id twice must not lose its second request to that.
    """
    return secrets.token_hex(16)


def completion_id(request_id: str) -> str:
    """The `id` of a chat completion; holds the request id, so that a report names the request."""
    return f"chatcmpl-{request_id}"


def new_call_id() -> str:
    """A call id that is unique across turns: `call_` and 24 url-safe random characters.

    Always ours, also where the model wrote one: ids on the wire count from zero each turn
    (kimi_k2: `functions.f:0`) and would collide in the history.
    """
    return "call_" + secrets.token_urlsafe(18)


def client_request_id(header: str | None) -> str | None:
    """The client's x-request-id if it is fit to be echoed, else None."""
    if header is not None and _CLIENT_ID.fullmatch(header):
        return header
    return None
