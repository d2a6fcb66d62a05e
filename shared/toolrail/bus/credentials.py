"""How a process shows the NATS server who it is, and makes sure who the server is."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TypedDict

from toolrail.errors import ConfigError
from toolrail.settings import CommonSettings


class ConnectOptions(TypedDict, total=False):
    """Arguments of nats-py's `connect`."""

    nkeys_seed_str: str
    inbox_prefix: str
    tls: ssl.SSLContext


def connect_options(settings: CommonSettings) -> ConnectOptions:
    """What the settings say of user, inbox and TLS.

    Raises:
        ConfigError: a file is not there or is not what it should be; names the setting, never what
            the file holds.
    """
    options: ConnectOptions = {}
    if settings.nats_nkey_file:
        options["nkeys_seed_str"] = _seed(settings.nats_nkey_file)
    if settings.nats_inbox_prefix:
        options["inbox_prefix"] = settings.nats_inbox_prefix
    if settings.nats_tls_ca or settings.nats_tls_cert:
        options["tls"] = _tls(settings)
    return options


def _seed(path: str) -> str:
    try:
        seed = Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeError) as error:
        raise ConfigError("nats_nkey_file", f"cannot be read: {type(error).__name__}") from None
    if not seed.startswith("SU") or not seed.isalnum():
        raise ConfigError("nats_nkey_file", "is not the seed of an nkey user")
    return seed


def _tls(settings: CommonSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.nats_tls_ca or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError("nats_tls_ca", f"cannot be used: {type(error).__name__}") from None
    if settings.nats_tls_cert:
        try:
            context.load_cert_chain(settings.nats_tls_cert, settings.nats_tls_key or None)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError("nats_tls_cert", f"cannot be used: {type(error).__name__}") from None
    return context
