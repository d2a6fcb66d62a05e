"""`POST /v1/messages/count_tokens`: the tokens of a prompt that is not answered."""

from __future__ import annotations

import time

from services.gateway.answer import Outcome
from services.gateway.answering import check_json
from services.gateway.exchange import Exchange
from services.gateway.gateway import Gateway
from services.gateway.hand_over import HandOver
from services.gateway.messages.objects import TokenCount, message_id
from services.gateway.objects import to_json
from toolrail.errors import QueueFullError
from toolrail.messages import Failed, Prepare


async def count_tokens(gateway: Gateway, exchange: Exchange) -> Outcome:
    """Have the prompt rendered and tokenized, and say how long it is."""
    check_json(exchange)
    settings, bodies = gateway.settings, gateway.bodies
    outcome = Outcome(message_id(exchange.request_id))
    with gateway.admission.slot():
        body = await exchange.body(
            max_bytes=settings.max_body_bytes, timeout_s=settings.body_timeout_s, budget=bodies
        )
        try:
            if exchange.client_left:
                outcome.left = "hand_over"
                return outcome
            if not gateway.auditor.take_body(exchange, body, "messages"):
                raise QueueFullError("too many audit records are held")
            now_ms = int(time.time() * 1000)
            hand_over = HandOver(
                gateway.bus,
                gateway.directory,
                gateway.peers,
                settings.hand_over_timeout_s,
                next_term=lambda: 0,  # nothing is handed on, so nobody can be listened to twice
            )
            reply = await hand_over(
                Prepare(
                    request_id=exchange.request_id,
                    deadline_ms=now_ms + int(settings.request_timeout_s * 1000),
                    api="messages",
                    body=body,
                    reply_subject=gateway.streams.reply_subject,
                    received_ms=now_ms,
                    models=None if exchange.key is None else exchange.key.models,
                    count_only=True,
                )
            )
        finally:
            bodies.give_back(len(body))
    if isinstance(reply, Failed):
        outcome.failed = reply
        await exchange.send_error(reply)
    else:
        await exchange.send(200, to_json(TokenCount(reply.prompt_tokens)))
    return outcome
