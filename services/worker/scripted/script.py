"""The script: JSON lines that say what to answer to which prompt.

One row: `{"match": "weather", "text": "It rains.", "chunk_tokens": 1, "delay_ms": 0, "ttft_ms": 0,
"finish": "stop", "die_after": 3}`. `match` is a substring of the rendered prompt, "" matches every
prompt, the first row that matches is played. `text` is tokenized with the model's own tokenizer;
`token_ids` are taken as they are. `chunk_tokens`: ids a step, or a list of them whose last entry
repeats. `die_after`: the process is killed once that many ids have left, the first time the job is
tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from toolrail.errors import ConfigError

_Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_Milliseconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]

FIXED_SENTENCE: Final = "The quick brown fox jumps over the lazy dog."


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of the script."""

    match: str = ""
    text: str | None = None
    token_ids: tuple[_Count, ...] | None = None
    chunk_tokens: _Positive | Annotated[tuple[_Positive, ...], msgspec.Meta(min_length=1)] = 1
    delay_ms: _Milliseconds = 0
    ttft_ms: _Milliseconds = 0
    finish: Literal["stop", "length", "error"] = "stop"
    die_after: _Count | None = None

    def chunk_sizes(self) -> Sequence[int]:
        """Ids a step; the last entry repeats."""
        return (self.chunk_tokens,) if isinstance(self.chunk_tokens, int) else self.chunk_tokens


FIXED_ROW: Final = Row(text=FIXED_SENTENCE)
"""What is played when no row matches."""


def load(path: str) -> tuple[Row, ...]:
    """The rows of the file at `path`; none for "". Raises ConfigError."""
    if not path:
        return ()
    try:
        lines = Path(path).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("script", f"cannot read {path}: {error}") from error
    return parse(lines)


def parse(lines: Iterable[str]) -> tuple[Row, ...]:
    """The rows in `lines`; blank lines are skipped. Raises ConfigError naming the line."""
    decoder = msgspec.json.Decoder(Row)
    rows: list[Row] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise ConfigError("script", f"line {number}: {error}") from error
        if row.text is not None and row.token_ids is not None:
            raise ConfigError("script", f"line {number}: `text` and `token_ids` exclude each other")
        rows.append(row)
    return tuple(rows)
