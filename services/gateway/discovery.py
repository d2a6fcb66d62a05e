"""What can be served now: `/v1/models`, `/health`, `/live`, and the numbers of `/metrics`."""

from __future__ import annotations

from typing import Final

import msgspec
from prometheus_client import exposition

from services.gateway.exchange import Exchange
from services.gateway.gateway import Gateway
from services.gateway.messages import models as messages_models
from services.gateway.objects import Model, ModelList, to_json
from toolrail.api_keys import allowed
from toolrail.errors import CallerError
from toolrail.messages import ModelCard

MODEL_PREFIX: Final = "/v1/models/"

_SERVICES: Final = ("gateway", "preprocessor", "postprocessor")


class _Peer(msgspec.Struct, frozen=True):
    instance: str
    draining: bool


class _Health(msgspec.Struct, frozen=True):
    status: str
    models: tuple[str, ...]
    instances: dict[str, tuple[_Peer, ...]]


async def list_models(gateway: Gateway, exchange: Exchange) -> None:
    """`GET /v1/models`: the models that can be served end to end."""
    cards = [card for card in _servable(gateway) if _may_use(exchange, card.name)]
    if messages_models.is_wanted(exchange):
        await exchange.send(200, messages_models.model_list(cards))
        return
    await exchange.send(200, to_json(ModelList(data=tuple(map(_model, cards)))))


async def show_model(gateway: Gateway, exchange: Exchange) -> None:
    """`GET /v1/models/{id}`; the id may hold slashes."""
    name = exchange.path.removeprefix(MODEL_PREFIX)
    card = gateway.directory.card(name)
    if card is None or not (gateway.directory.servable(name) and _may_use(exchange, name)):
        raise CallerError(
            f"The model {name[:200]!r} does not exist",
            param="model",
            code="model_not_found",
            status=404,
        )
    if messages_models.is_wanted(exchange):
        await exchange.send(200, messages_models.model_object(card))
        return
    await exchange.send(200, to_json(_model(card)))


async def health(gateway: Gateway, exchange: Exchange) -> None:
    """`GET /health`: 200 if a request for at least one model can be answered, else 503."""
    models = tuple(card.name for card in _servable(gateway))
    status = "draining" if gateway.stopping.is_set() else "healthy" if models else "unavailable"
    instances = {
        service: tuple(
            _Peer(peer.instance, peer.draining) for peer in gateway.directory.instances(service)
        )
        for service in _SERVICES
    }
    instances["worker"] = tuple(
        _Peer(card.worker, draining=False)
        for name in models
        for card in gateway.directory.workers(name)
    )
    body = to_json(_Health(status, models, instances))
    await exchange.send(200 if status == "healthy" else 503, body)


async def live(_: Gateway, exchange: Exchange) -> None:
    """`GET /live`: 200 as long as this process answers at all."""
    await exchange.send(200, b'{"status":"live"}')


async def metrics(gateway: Gateway, exchange: Exchange) -> None:
    """`GET /metrics`: Prometheus text, or OpenMetrics if it is asked for."""
    gateway.door.need_metrics(exchange)
    render, content_type = exposition.choose_encoder(exchange.header(b"accept") or "")
    body = render(gateway.meters.registry)
    await exchange.send(200, body, headers=[(b"content-type", content_type.encode())])


def _may_use(exchange: Exchange, name: str) -> bool:
    """Whether the caller's key lets it see a model of that name."""
    return exchange.key is None or allowed(name, exchange.key.models)


def _servable(gateway: Gateway) -> list[ModelCard]:
    cards = [card for card in gateway.directory.cards() if gateway.directory.servable(card.name)]
    return sorted(cards, key=lambda card: card.name)


def _model(card: ModelCard) -> Model:
    return Model(id=card.name, created=card.created_s, max_model_len=card.context_length)
