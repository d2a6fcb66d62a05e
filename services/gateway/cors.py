"""Which web pages may read answers: cross-origin resource sharing, off unless origins are named.

Keys travel in headers that a page sets itself, never in cookies, so credentials are not allowed and
`*` is safe to name where the address is open to everybody anyway. What a page may not read is still
answered: CORS keeps browsers from it, not other clients.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from services.gateway.exchange import Exchange, Header
from toolrail.errors import ConfigError

_ALLOWED_HEADERS: Final = b"authorization, content-type, x-api-key, x-request-id"
"""What a preflight allows if it asks for nothing; else it allows what it asks for."""

_EXPOSED: Final = (
    b"x-request-id, request-id, retry-after, x-toolrail-enforcement, "
    b"x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, "
    b"x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"
)
_MAX_AGE_S: Final = b"600"


class Cors:
    """The origins that may read answers."""

    def __init__(self, origins: str) -> None:
        """`origins`: `scheme://host[:port]`, comma-separated, or `*`. Raises ConfigError."""
        named = [origin.strip() for origin in origins.split(",") if origin.strip()]
        for origin in named:
            if origin != "*" and ("://" not in origin or origin.count("/") != 2):
                raise ConfigError("cors_origins", f"{origin!r} is no origin: scheme://host[:port]")
        self._any = "*" in named
        self._origins = frozenset(origin.lower() for origin in named)

    @property
    def on(self) -> bool:
        """Whether any origin is named."""
        return bool(self._origins)

    def headers(self, origin: str | None) -> list[tuple[str, bytes]]:
        """What an answer says to a page of `origin`; None: no page asked."""
        if not self.on:
            return []
        found: list[tuple[str, bytes]] = []
        if origin is not None and (allowed := self._allowed(origin)):
            found += (
                ("access-control-allow-origin", allowed),
                ("access-control-expose-headers", _EXPOSED),
            )
        if not self._any:
            found.append(("vary", b"origin"))  # also where it is refused: caches must not mix them
        return found

    def preflight(self, exchange: Exchange, methods: Iterable[str]) -> list[Header] | None:
        """What the answer to a preflight says beside `headers`; None if it is none.

        A page of another origin gets an answer that allows it nothing.
        """
        origin = exchange.header(b"origin")
        asked = exchange.header(b"access-control-request-method")
        if not self.on or exchange.method != "OPTIONS" or origin is None or asked is None:
            return None
        if not self._allowed(origin):
            return []
        headers = exchange.header(b"access-control-request-headers") or ""
        return [
            (b"access-control-allow-methods", ", ".join(methods).encode()),
            (b"access-control-allow-headers", headers.encode("latin-1") or _ALLOWED_HEADERS),
            (b"access-control-max-age", _MAX_AGE_S),
        ]

    def _allowed(self, origin: str) -> bytes | None:
        if self._any:
            return b"*"
        return origin.encode("latin-1") if origin.lower() in self._origins else None
