"""The request side of Responses: from a body to the one internal form."""

from __future__ import annotations

from toolrail.openai.responses.preflight import check_responses as check_responses  # noqa: PLC0414
