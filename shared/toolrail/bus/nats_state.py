"""What the server says of a stream: its bounds, and what is in it now."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from toolrail.bus.connection import FOREIGN, Connection, translated
from toolrail.errors import FaultError

_ABSENT: Final = 404
_NANOSECONDS: Final = 1_000_000_000


class StreamConfig(msgspec.Struct, frozen=True):
    """Its bounds, as JetStream names them; -1 and 0: none."""

    subjects: list[str] = []
    discard: str = "old"
    max_bytes: int = -1
    max_msg_size: int = -1
    max_age: int = 0

    @property
    def max_age_s(self) -> float:
        """How long messages are kept; 0: for ever."""
        return self.max_age / _NANOSECONDS


class StreamContent(msgspec.Struct, frozen=True):
    """What is in it; `first_ts`: when the oldest message came."""

    messages: int = 0
    bytes: int = 0
    first_ts: datetime | None = None


class StreamState(msgspec.Struct, frozen=True):
    """A stream as it is."""

    config: StreamConfig
    state: StreamContent


class _Error(msgspec.Struct, frozen=True):
    code: int
    description: str = ""


class _Answer(msgspec.Struct, frozen=True):
    config: StreamConfig = StreamConfig()
    state: StreamContent = StreamContent()
    error: _Error | None = None


_answer: Final = msgspec.json.Decoder(_Answer)


async def state_of(connection: Connection, stream: str, *, timeout_s: float) -> StreamState | None:
    """The stream; None: there is none.

    Not nats-py's `stream_info`, which leaves out how old the oldest message is.

    Raises:
        FaultError: it cannot be asked; with a DeadlineError this user may not.
    """
    try:
        asked = await connection.client.request(
            f"$JS.API.STREAM.INFO.{stream}", b"", timeout=timeout_s
        )
        answer = _answer.decode(asked.data)
    except FOREIGN as error:
        raise translated(error, stream) from error
    except msgspec.MsgspecError as error:
        raise FaultError(f"what the server says of {stream} cannot be read") from error
    if answer.error is None:
        return StreamState(answer.config, answer.state)
    if answer.error.code == _ABSENT:
        return None
    raise FaultError(f"{stream}: {answer.error.description}")
