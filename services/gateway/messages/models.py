"""`GET /v1/models` and `/v1/models/{id}` for clients that say `anthropic-version`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from services.gateway.exchange import Exchange
from services.gateway.objects import to_json
from toolrail.messages import ModelCard

_VERSION: Final = b"anthropic-version"


class _Model(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="model"):
    id: str
    display_name: str
    created_at: datetime
    lifecycle: str = "active"
    max_input_tokens: int


class _Page(msgspec.Struct, frozen=True, kw_only=True):
    data: tuple[_Model, ...]
    has_more: bool = False
    first_id: str | None
    last_id: str | None


def is_wanted(exchange: Exchange) -> bool:
    """Whether the caller speaks this API."""
    return exchange.header(_VERSION) is not None


def model_list(cards: Sequence[ModelCard]) -> bytes:
    """All of them on one page, as JSON."""
    models = tuple(map(_model, cards))
    return to_json(
        _Page(
            data=models,
            first_id=models[0].id if models else None,
            last_id=models[-1].id if models else None,
        )
    )


def model_object(card: ModelCard) -> bytes:
    """One of them, as JSON."""
    return to_json(_model(card))


def _model(card: ModelCard) -> _Model:
    return _Model(
        id=card.name,
        display_name=card.name,
        created_at=datetime.fromtimestamp(card.created_s, UTC),
        max_input_tokens=card.context_length,
    )
