"""`toolrail nats`: users with least rights for a NATS server, and the streams that they share."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, cast

import anyio
import nkeys  # pyright: ignore[reportMissingTypeStubs]

from toolrail.bus import access
from toolrail.bus.nats import NatsBus
from toolrail.errors import ConfigError, FaultError
from toolrail.flags import load
from toolrail.settings import CommonSettings

_DESCRIPTION: Final = """Secures the bus.

`toolrail nats users DIR` makes a NATS user for each service and writes
    DIR/users.conf      their public keys and rights: `include "users.conf"` in the server's file
    DIR/SERVICE.nk      the seed of each, for that service's --nats-nkey-file: secret
    DIR/SERVICE.env     that service's settings as variables
Users that are there already keep their keys; their rights are written anew.

`toolrail nats setup [service flags]` makes the streams, as the user `setup`; run it before the
services start and after each update of them. It may be repeated.
"""


def nats(argv: Sequence[str]) -> int:
    """The exit status: 0; 1: no server, or not allowed; 2: the command line cannot work."""
    parser = argparse.ArgumentParser(
        prog="toolrail nats",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("what", choices=("users", "setup"))
    options, rest = parser.parse_known_args(list(argv))
    if options.what == "setup":
        return anyio.run(_setup, load(CommonSettings, rest, os.environ))
    if len(rest) != 1 or rest[0].startswith("-"):
        parser.error("users takes one directory")
    _users(Path(rest[0]))
    return 0


def _users(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        public = {user: _user(directory, user) for user in access.USERS}
        (directory / "users.conf").write_text(access.server_configuration(public), "utf-8")
    except OSError as error:
        raise ConfigError("users", f"{error.filename}: {error.strerror}") from None
    print(f"{directory / 'users.conf'}: {', '.join(public)}")


def _user(directory: Path, user: str) -> str:
    """The public key of the user; made now unless its seed is there."""
    path = directory / f"{user}.nk"
    if not path.exists():
        _write_secret(path, _new_seed())
    variables = {
        "TOOLRAIL_NATS_NKEY_FILE": str(path.resolve()),
        "TOOLRAIL_NATS_INBOX_PREFIX": access.inbox_prefix(user),
        "TOOLRAIL_NATS_SETUP": "true" if user == access.SETUP else "false",
    }
    lines = "".join(f"{name}={value}\n" for name, value in variables.items())
    (directory / f"{user}.env").write_text(lines, "utf-8")
    return _public_key(path)


def _write_secret(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as out:
        out.write(text + "\n")


def _new_seed() -> str:
    chance = secrets.token_bytes(32)
    seed = nkeys.encode_seed(chance, nkeys.PREFIX_BYTE_USER)  # pyright: ignore[reportUnknownMemberType]
    return seed.decode("ascii")


def _public_key(path: Path) -> str:
    try:
        pair = nkeys.from_seed(path.read_bytes().strip())  # pyright: ignore[reportUnknownMemberType]
    except nkeys.NkeysError:
        raise ConfigError("users", f"{path} is not the seed of an nkey user") from None
    return cast("bytes", pair.public_key).decode("ascii")  # typed as what it is made from


async def _setup(settings: CommonSettings) -> int:
    try:
        bus = await NatsBus.connect(settings)
    except FaultError as error:
        print(f"toolrail nats: {error}", file=sys.stderr)
        return 1
    await bus.close()
    print("streams and buckets are there")
    return 0
