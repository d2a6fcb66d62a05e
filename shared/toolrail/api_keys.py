"""API keys: their form, how they are kept, and the file that lists them.

A key is `tr_<id>_<secret>`. The id says which record it is and is no secret; the secret is 256
random bits. Only the SHA-256 of the whole key is kept: a key like that cannot be guessed from its
hash, so a slow hash would protect nothing and cost every request its time. A record of the file:

    [[keys]]
    id = "3f9c2ab81d04"
    name = "alice"
    hash = "sha256:9b1d…"
    models = ["demo"]
    requests_per_minute = 60
"""

from __future__ import annotations

import datetime
import fnmatch
import hashlib
import hmac
import re
import secrets
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from toolrail.errors import ConfigError

_FORM: Final = re.compile(r"tr_(?P<id>[0-9a-f]{12})_[A-Za-z0-9_-]{43}")
MAX_WEIGHT: Final = 1000
_ID_BYTES: Final = 6
_SECRET_BYTES: Final = 32

_Limit: TypeAlias = Annotated[int, Meta(ge=1, le=1 << 40)]
_Name: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._@:+-]{0,127}\Z")]


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept of a key, and what it may do. An unknown field is refused: it may be a limit.

    Attributes:
        id: the part of the key that finds this record.
        name: for people and metrics.
        hash: `sha256:` and the hex digest of the whole key.
        owner: whom it acts for; several keys may share one. None: `name`.
        expires: from then on the key is refused.
        models: names it may use, with `*` and `?`; None: all.
        metrics: whether it may read `/metrics`.
        requests_per_minute: None: no bound; likewise the next two.
        tokens_per_minute: of prompts and answers together.
        concurrent_requests: answered at once.
        weight: its owner's share of the workers while requests wait, against other owners'.
    """

    id: Annotated[str, Meta(pattern=r"^[0-9a-f]{12}\Z")]
    name: _Name
    hash: Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
    owner: _Name | None = None
    expires: Annotated[datetime.datetime, Meta(tz=True)] | None = None
    models: tuple[Annotated[str, Meta(min_length=1)], ...] | None = None
    metrics: bool = False
    requests_per_minute: _Limit | None = None
    tokens_per_minute: _Limit | None = None
    concurrent_requests: _Limit | None = None
    weight: Annotated[int, Meta(ge=1, le=MAX_WEIGHT)] = 1

    def holds(self, key: str) -> bool:
        """Whether `key` is this one, in a time that does not tell how wrong it is."""
        return hmac.compare_digest(self.hash, hash_of(key))

    def expired(self, now: datetime.datetime) -> bool:
        """Whether it is refused at `now` (with a time zone)."""
        return self.expires is not None and now >= self.expires


class _File(msgspec.Struct, forbid_unknown_fields=True):
    keys: tuple[KeyRecord, ...] = ()


_json: Final = msgspec.json.Decoder(_File)


def new_key() -> tuple[str, str]:
    """A fresh key and its id; the key itself is kept nowhere."""
    key_id = secrets.token_hex(_ID_BYTES)
    return f"tr_{key_id}_{secrets.token_urlsafe(_SECRET_BYTES)}", key_id


def id_of(key: str) -> str | None:
    """The id in a key; None when it does not have the form of one."""
    found = _FORM.fullmatch(key)
    return found["id"] if found else None


def hash_of(key: str) -> str:
    """What is kept of a key."""
    return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def allowed(model: str, patterns: Sequence[str] | None) -> bool:
    """Whether a name is among `patterns`; None allows all."""
    return patterns is None or any(fnmatch.fnmatchcase(model, pattern) for pattern in patterns)


def load_keys(path: Path) -> Mapping[str, KeyRecord]:
    """The records of a key file by id: TOML, or JSON where the name ends in `.json`. Reads it.

    Raises:
        ConfigError: it cannot be read, or is not a list of records. Its text is not repeated.
    """
    try:
        data = path.read_bytes()
        if path.suffix == ".json":
            found = _json.decode(data)
        else:
            found = msgspec.convert(tomllib.loads(data.decode()), _File)
    except OSError as error:
        raise ConfigError("api_keys_file", f"cannot read {path}: {error.strerror}") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise ConfigError("api_keys_file", f"{path} is not a file of keys: {error}") from None
    keys = {record.id: record for record in found.keys}
    if len(keys) < len(found.keys):
        raise ConfigError("api_keys_file", f"{path} has an id twice")
    return keys
