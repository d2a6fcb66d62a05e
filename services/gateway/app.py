"""The ASGI application: routes, and the one boundary at which an exception becomes an answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from opentelemetry.trace import INVALID_SPAN, Span

from services.gateway import discovery, ids, tracing
from services.gateway.access_log import log_request
from services.gateway.answer import Outcome
from services.gateway.chat import chat_completions
from services.gateway.exchange import (
    CLIENT_LEFT,
    X_REQUEST_ID,
    ErrorShape,
    ErrorStatus,
    Exchange,
    Header,
    Receive,
    Scope,
    Send,
)
from services.gateway.failures import error_body, failure, failure_of, http_status
from services.gateway.gateway import Gateway
from services.gateway.messages import errors as messages_errors
from services.gateway.messages import models as messages_models
from services.gateway.messages.count import count_tokens
from services.gateway.messages.surface import create_message
from services.gateway.metrics import FAULTS
from services.gateway.responses import retrieval
from services.gateway.responses.surface import create_response
from toolrail.errors import CallerError, ToolrailError
from toolrail.messages import Failed
from toolrail.telemetry import exemplar, semconv

log: Final = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[Gateway, Exchange], Awaitable[Outcome | None]]


@dataclass(frozen=True, slots=True)
class Route:
    """A path and what answers it.

    Attributes:
        label: stands for all paths of the route in metrics.
        handlers: by method.
        error_body: the error object of its API.
        error_status: the status of a failure in its API.
        id_header: what clients of its API know a request's id by, beside `x-request-id`.
        public: whether it needs no API key.
        shared: several APIs have it: clients of Messages, who say so, are answered in its words.
    """

    label: str
    handlers: Mapping[str, Handler]
    error_body: ErrorShape = error_body
    public: bool = False
    error_status: ErrorStatus = http_status
    id_header: bytes = X_REQUEST_ID
    shared: bool = False

    @property
    def audited(self) -> bool:
        """Whether its requests leave a record: all but those that say nothing."""
        return not self.public and self.label not in _UNAUDITED


_UNAUDITED: Final = frozenset({"/metrics", "/v1/models", "/v1/models/{id}"})


def _route(label: str, *, public: bool = False, shared: bool = False, **handlers: Handler) -> Route:
    if "GET" in handlers:
        handlers["HEAD"] = handlers["GET"]  # the server leaves the body out
    return Route(label, handlers, public=public, shared=shared)


def _messages_route(label: str, **handlers: Handler) -> Route:
    return _in_words_of_messages(Route(label, handlers))


def _in_words_of_messages(route: Route) -> Route:
    return replace(
        route,
        error_body=messages_errors.error_body,
        error_status=messages_errors.error_status,
        id_header=b"request-id",
    )


ROUTES: Final[Mapping[str, Route]] = {
    route.label: route
    for route in (
        _route("/v1/chat/completions", POST=chat_completions),
        _route("/v1/responses", POST=create_response),
        _messages_route("/v1/messages", POST=create_message),
        _messages_route("/v1/messages/count_tokens", POST=count_tokens),
        _route("/v1/models", shared=True, GET=discovery.list_models),
        _route("/health", public=True, GET=discovery.health),
        _route("/live", public=True, GET=discovery.live),
        _route("/metrics", GET=discovery.metrics),
    )
}
_UNTRACED: Final = frozenset({"/health", "/live", "/metrics"})
"""Asked every few seconds by machines: their traces would drown the others."""
_MODEL: Final = _route("/v1/models/{id}", shared=True, GET=discovery.show_model)
_RESPONSE: Final = _route("/v1/responses/{id}", GET=retrieval.retrieve, DELETE=retrieval.delete)
_CANCEL: Final = _route("/v1/responses/{id}/cancel", POST=retrieval.cancel)
_INPUT_ITEMS: Final = _route("/v1/responses/{id}/input_items", GET=retrieval.input_items)
_OF_RESPONSE: Final[Mapping[str, Route]] = {
    "": _RESPONSE,
    retrieval.CANCEL: _CANCEL,
    retrieval.INPUT_ITEMS: _INPUT_ITEMS,
}
_OTHER: Final = Route("other", {}, shared=True)
_OTHER_OF_MESSAGES: Final = _messages_route("other")
_BELOW_MESSAGES: Final = "/v1/messages/"


def route_of(path: str) -> Route:
    """The route of a path; `other`, which has no handlers, for paths that have none."""
    route = ROUTES.get(path)
    if route is not None:
        return route
    if path.startswith(discovery.MODEL_PREFIX) and len(path) > len(discovery.MODEL_PREFIX):
        return _MODEL
    name, slash, what = path.removeprefix(retrieval.PREFIX).partition("/")
    if name and path.startswith(retrieval.PREFIX):
        return _OF_RESPONSE.get(slash + what, _OTHER)
    return _OTHER_OF_MESSAGES if path.startswith(_BELOW_MESSAGES) else _OTHER


class App:
    """The gateway as an ASGI application."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise ValueError(f"no {scope['type']} here")  # the ASGI way to decline
        exchange = Exchange(scope, receive, send, request_id=ids.new_request_id())
        route = route_of(exchange.path)
        if route.shared and messages_models.is_wanted(exchange):
            route = _in_words_of_messages(route)
        exchange.error_body = route.error_body
        exchange.error_status = route.error_status
        exchange.id_header = route.id_header
        telemetry, meters = self._gateway.telemetry, self._gateway.meters
        began = time.perf_counter()
        with (
            meters.in_flight.labels(route.label).track_inprogress(),
            telemetry.attached(exchange.trace_headers()),
            self._span(_method_label(exchange, route), route.label) as span,
        ):
            outcome = await self._answer(route, exchange)
            self._count(route, exchange, outcome)
            if outcome is not None:
                log_request(exchange, route.label, outcome, time.perf_counter() - began)
            self._gateway.auditor.end(exchange, outcome)
            tracing.describe(span, exchange, outcome)
            leads = exemplar(span)
        meters.duration.labels(route.label).observe(time.perf_counter() - began, leads)

    def _span(self, method: str, label: str) -> AbstractContextManager[Span]:
        if label in _UNTRACED:
            return nullcontext(INVALID_SPAN)
        attributes = {semconv.HTTP_REQUEST_METHOD: method, semconv.HTTP_ROUTE: label}
        return self._gateway.telemetry.span(
            f"{method} {label}", kind="server", attributes=attributes
        )

    async def _answer(self, route: Route, exchange: Exchange) -> Outcome | None:
        door = self._gateway.door
        try:
            for name, value in door.cors.headers(exchange.header(b"origin")):
                exchange.add_header(name, value)
            handler = route.handlers.get(exchange.method)
            if handler is None:
                return await self._refuse(route, exchange)
            # Whoever may not use the API is refused here, before anything of the body is read.
            if not route.public:
                door.identify(exchange)
            if route.audited:
                exchange.audit = self._gateway.auditor.open(exchange, route.label)
            with door.visit(exchange) as visit:
                outcome = await handler(self._gateway, exchange)
                visit.tokens = 0 if outcome is None else outcome.tokens
            return outcome
        except ToolrailError as error:
            return await self._fail(exchange, failure_of(error, request_id=exchange.request_id))
        except Exception:  # the boundary: a bug is one request's failure
            log.exception("a request failed", extra={"request_id": exchange.request_id})
            self._gateway.meters.internal_errors.inc()
            return await self._fail(exchange, failure("internal", "internal error"))
        except BaseException:  # cut off at the end of the drain: that leaves a record, too
            self._gateway.auditor.end(exchange, None)
            raise

    async def _refuse(self, route: Route, exchange: Exchange) -> Outcome | None:
        preflight = self._gateway.door.cors.preflight(exchange, route.handlers)
        if preflight is not None:
            await exchange.send(200, b"", headers=preflight)
            return None
        request = f"{exchange.method[:16]} {exchange.path[:200]}"
        if not route.handlers:
            error = CallerError(f"Unknown URL: {request}", code="unknown_url", status=404)
            return await self._fail(exchange, failure_of(error))
        error = CallerError(f"Not allowed: {request}", code="method_not_allowed", status=405)
        allow = (b"allow", ", ".join(route.handlers).encode())
        return await self._fail(exchange, failure_of(error), headers=[allow])

    async def _fail(
        self, exchange: Exchange, failed: Failed, *, headers: Iterable[Header] = ()
    ) -> Outcome:
        await exchange.fail(failed, headers=headers)
        return Outcome(ids.completion_id(exchange.request_id), failed=failed)

    def _count(self, route: Route, exchange: Exchange, outcome: Outcome | None) -> None:
        meters = self._gateway.meters
        method = _method_label(exchange, route)
        meters.requests.labels(route.label, method, str(exchange.status or CLIENT_LEFT)).inc()
        if exchange.key is not None:
            first = str(exchange.status or CLIENT_LEFT)[0]
            meters.key_answers.labels(exchange.key.name, f"{first}xx").inc()
        if outcome is None:
            return
        meters.meet(outcome.model)
        if outcome.left:
            meters.disconnects.labels(outcome.left).inc()
        if outcome.failed is not None:
            stage = "stream" if exchange.status == 200 else "status"
            code = outcome.failed.code
            meters.errors.labels(FAULTS[code], outcome.model, code, stage).inc()
        if outcome.first_event_s is not None:
            meters.time_to_first_event.labels(outcome.model).observe(
                outcome.first_event_s, exemplar()
            )
        if outcome.tally.usage is not None:
            meters.count(outcome.model, outcome.tally)


def _method_label(exchange: Exchange, route: Route) -> str:
    """The method, if the route knows it: anything can be sent as a method."""
    return exchange.method if exchange.method in route.handlers else "other"
