"""`toolrail check`: is this request in order? The server's own parse and strict preflight.

No model is looked up and nothing is compiled; `toolrail tag` shows what the grammar engine says.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from toolrail.cli.apis import READ, Api
from toolrail.cli.rows import (
    UnreadableError,
    error_object,
    flags,
    rows,
    unreadable,
    write,
)
from toolrail.errors import CallerError
from toolrail.openai.inputs import refuse_grammars
from toolrail.openai.setting import schema_params
from toolrail.structural_tag import TagOptions

_DESCRIPTION = """Validates requests as the server does before it prepares them.

Reads rows {"id", "api": "chat" | "responses" | "messages", "request"} from standard input and
answers each with {"id", "ok": true} or
{"id", "ok": false, "status", "error": {"message", "type", "param", "code"}}.
"""


class _Row(msgspec.Struct, frozen=True):
    request: msgspec.Raw
    api: Api = "chat"


def check(argv: Sequence[str]) -> int:
    """The exit status: 0 unless the input cannot be read."""
    flags("check", _DESCRIPTION, argv)
    try:
        for row_id, row in rows(_Row):
            write({"id": row_id, **_answer(row)})
    except UnreadableError as error:
        return unreadable("check", error)
    return 0


def _answer(row: _Row | CallerError) -> dict[str, object]:
    try:
        if isinstance(row, CallerError):
            raise row
        request = READ[row.api](bytes(row.request))
        # As a deployment with the default options answers.
        refuse_grammars(request.tools, TagOptions(), schema_params(request))
    except CallerError as error:
        return {"ok": False, "status": error.status, "error": error_object(error)}
    return {"ok": True}
