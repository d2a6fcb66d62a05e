"""`toolrail key`: makes API keys. The key is shown once; what is kept of it goes into a file."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Final

import msgspec

from toolrail.api_keys import KeyRecord, hash_of, new_key
from toolrail.errors import ConfigError

_DESCRIPTION: Final = """Makes an API key.

The key itself is written to standard error, once, and kept nowhere. What the gateway needs of it is
written to standard output, ready for the file that --api-keys-file names:

    toolrail key new alice --model 'qwen*' --requests-per-minute 60 >> keys.toml
"""
_NUMBERS: Final = ("requests_per_minute", "tokens_per_minute", "concurrent_requests", "weight")


def key(argv: Sequence[str]) -> int:
    """The exit status: 0, or 2 where the command line cannot work."""
    options = _parser().parse_args(argv)
    fresh, key_id = new_key()
    record: dict[str, object] = {"id": key_id, "name": options.name, "hash": hash_of(fresh)}
    if options.owner:
        record["owner"] = options.owner
    if options.expires:
        record["expires"] = options.expires
    if options.model:
        record["models"] = options.model
    if options.metrics:
        record["metrics"] = True
    record |= {name: value for name in _NUMBERS if (value := getattr(options, name)) is not None}
    try:
        msgspec.convert(record, KeyRecord)
    except msgspec.ValidationError as error:
        raise ConfigError("key new", str(error)) from None
    print(_json(record) if options.json else _toml(record))
    print(f"The key, shown this once:\n\n    {fresh}\n", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="toolrail key",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="new")
    new = commands.add_parser("new", help="make a key", allow_abbrev=False)
    new.add_argument("name", help="for people and metrics; letters, digits, space and ._@:+-")
    new.add_argument("--owner", help="whom it acts for, if several keys are one's (default: NAME)")
    new.add_argument("--model", action="append", help="a model it may use, * and ? allowed; repeat")
    new.add_argument("--expires", metavar="TIME", help="such as 2027-01-31T00:00:00Z")
    new.add_argument("--metrics", action="store_true", help="let it read /metrics")
    for name in _NUMBERS:
        new.add_argument(f"--{name.replace('_', '-')}", type=int, metavar="N")
    new.add_argument("--json", action="store_true", help="the entry as JSON instead of TOML")
    return parser


def _json(record: dict[str, object]) -> str:
    return json.dumps(record)


def _toml(record: dict[str, object]) -> str:
    # JSON's strings, numbers, booleans and flat arrays are TOML's; a time stands without quotes.
    lines = [
        f"{name} = {value if name == 'expires' else json.dumps(value)}"
        for name, value in record.items()
    ]
    return "\n".join(["", "[[keys]]", *lines])
