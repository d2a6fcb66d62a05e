"""JSON lines in, JSON lines out: what `check`, `tag` and `prompt` share.

One answer a line, in order, written at once, so that a pipe can be used as a dialogue. A line that
is no row ends the command with status 1: the input cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from toolrail.errors import CallerError, FaultError
from toolrail.openai.refusals import wrong_shape

R = TypeVar("R")

UNREADABLE: Final = 1
"""Exit status when the input is not rows."""

NO_ID: Final = msgspec.Raw(b"null")
"""A row's `id` is any JSON; it comes back as it is."""


class UnreadableError(Exception):
    """A line is no row; the message says which and why."""


def rows(row_type: type[R]) -> Iterator[tuple[msgspec.Raw, R | CallerError]]:
    """The rows on standard input with their ids; empty lines are skipped.

    A line that is JSON and no row of this type is a `CallerError` in the row's place.

    Raises:
        UnreadableError: a line is not JSON.
    """
    decoder = msgspec.json.Decoder(row_type)
    for number, line in enumerate(sys.stdin.buffer, start=1):
        if not line.strip():
            continue
        row_id = NO_ID
        try:
            row_id = _identified.decode(line).id
            bytes(row_id).decode()  # it goes out again; what else is not UTF-8 is the row's fault
            yield row_id, decoder.decode(line)
        except msgspec.ValidationError as error:
            yield row_id, wrong_shape(str(error))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UnreadableError(f"line {number}: {error}") from error


class _Identified(msgspec.Struct, frozen=True):
    id: msgspec.Raw = NO_ID


_identified: Final = msgspec.json.Decoder(_Identified)


def write(answer: Mapping[str, object]) -> None:
    """One answer on standard output."""
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


def unreadable(command: str, error: UnreadableError) -> int:
    """Says so on standard error; the exit status."""
    print(f"toolrail {command}: {error}", file=sys.stderr)
    return UNREADABLE


def error_object(error: CallerError) -> dict[str, object]:
    """The published error object of a refused request."""
    return {
        "message": error.message,
        "type": "invalid_request_error",
        "param": error.param,
        "code": error.code,
    }


def fault_object(error: FaultError) -> dict[str, object]:
    """The error object of a fault that is not the request's."""
    return {"message": str(error), "type": "server_error", "param": None, "code": error.code}


def flags(command: str, description: str, argv: Sequence[str], **switches: str) -> frozenset[str]:
    """The switches given, of those offered with their help texts; `--help` ends the process."""
    parser = argparse.ArgumentParser(
        prog=f"toolrail {command}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, text in switches.items():
        parser.add_argument(f"--{name.replace('_', '-')}", action="store_true", help=text)
    parsed = parser.parse_args(argv)
    return frozenset(name for name in switches if getattr(parsed, name))
