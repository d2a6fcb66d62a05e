"""The request side of Responses: from a body to the one internal form.

`wire` and `items` are the shapes, `tools` and `conversation` make of them what chat requests are
made of, `request` puts it together. What a request refers to (`previous_response_id`,
`item_reference`) is looked up by whoever has a store.
"""

from __future__ import annotations

from toolrail.openai.responses.request import check_responses as check_responses
