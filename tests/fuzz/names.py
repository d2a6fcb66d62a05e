"""What callers name: keys, ids, models, traces; and the files and texts that are only looked at."""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

import msgspec
from hypothesis import strategies as st

from services.gateway.ids import client_request_id
from services.gateway.keys import Keyring, UnauthorizedError, keys_in
from tests.fuzz.target import Target, mutated, raised
from tests.openai.test_fuzz import JSON
from toolrail import telemetry
from toolrail.api_keys import id_of, load_keys
from toolrail.bus import subjects
from toolrail.errors import ConfigError
from toolrail.openai.responses.ids import is_response_id, item_place
from toolrail.redaction import Redactor

_KEY_ID: Final = "0123456789ab"
_KEY: Final = f"tr_{_KEY_ID}_" + "aB3_-dE6fG9" * 3 + "hJ2kL5mN8p"
_ODD: Final = st.text(max_size=12) | st.sampled_from(
    ["*", ">", ".", " ", "\r\n", "\x00", "a.b", ""]
)
_NEAR: Final = mutated(st.just(_KEY.encode())).map(lambda data: data.decode("latin-1"))


def _keys(given: tuple[str | None, str | None]) -> None:
    keyring = Keyring(None)
    found = keys_in(*given)
    assert all(key and key == key.strip() for key in found)
    assert len(found) <= 2
    for key in found:
        assert id_of(key) is None or re.fullmatch(r"[0-9a-f]{12}", id_of(key) or "")
    error = raised(UnauthorizedError, lambda: keyring.identify(found))
    assert error, "a keyring without keys lets somebody in"
    assert error.status == 401
    assert _KEY not in str(error)


def _names(name: str) -> None:
    token = subjects.model_token(name)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,60}", token), token
    assert subjects.model_token(name + "x") != token
    for subject in (subjects.work(name), subjects.dead(name), subjects.cancel(name)):
        assert re.fullmatch(r"[A-Za-z0-9_.-]+", subject)
        assert subject.count(".") == 3
    echoed = client_request_id(name)
    assert echoed is None or (echoed.isascii() and echoed.isprintable() and " " not in echoed)


def _stored(name: str) -> None:
    if is_response_id(name):
        assert re.fullmatch(r"resp_[0-9a-f]{32}", name)
    place = item_place(name)
    if place is not None:
        assert is_response_id(place.response_id)
        assert 0 <= place.position < 1 << 16


def _trace(given: tuple[str, str]) -> None:
    parent, state = given
    with telemetry.attached({"traceparent": parent, "tracestate": state}):
        found = telemetry.current_trace_id()
        passed_on = telemetry.headers()
    assert found == "" or (re.fullmatch(r"[0-9a-f]{32}", found) and found in parent)
    assert all(value.isprintable() for value in passed_on.values()), passed_on
    assert telemetry.current_trace_id() == ""


def _key_file(given: tuple[str, bytes]) -> None:
    name, data = given
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        error = raised(ConfigError, lambda: load_keys(path))
        assert error is None or error.field == "api_keys_file"


_REDACTOR: Final = Redactor()


def _redacted(text: str) -> None:
    clean = _REDACTOR.text(text, Counter())
    assert _KEY not in clean
    assert _REDACTOR.text(clean, Counter()) == clean


def _document(data: bytes) -> None:
    """A body, whole or cut: what comes of it is JSON that holds none of the secrets."""
    clean = msgspec.json.encode(_REDACTOR.body(data, Counter()))
    assert _KEY.encode() not in clean
    assert msgspec.json.encode(_REDACTOR.body(clean, Counter())) == clean


_RECORD: Final[dict[str, Any]] = {
    "id": _KEY_ID,
    "name": "n",
    "hash": "sha256:" + "0" * 64,
    "models": ["a*"],
    "expires": "2030-01-01T00:00:00Z",
    "requests_per_minute": 5,
}
_TOML: Final = f'[[keys]]\nid = "{_KEY_ID}"\nname = "n"\nhash = "sha256:{"0" * 64}"\n'.encode()
_HEADERS: Final = st.none() | st.one_of(
    _ODD,
    _NEAR,
    st.builds("{} {}".format, st.sampled_from(["Bearer", "bearer ", "Basic", "\tBEARER"]), _NEAR),
)
_PARENT: Final = mutated(st.just(b"00-" + b"ab" * 16 + b"-" + b"cd" * 8 + b"-01"))
_SECRETS: Final = st.sampled_from(
    [_KEY, "a@b.example", "4111111111111111", "password: x", "Bearer y"]
)

_GLUE: Final = st.sampled_from(
    [" ", "\n", "\t", '"', "'", "é", "(", ",", ":", "\\", "\r\n", "\u2028"]
)
_TEXTS: Final = st.lists(
    st.tuples(_GLUE, _SECRETS | st.text(max_size=6)).map("".join), max_size=5
).map(lambda parts: "".join(parts) + " ")
_DOCUMENTS: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=6,
).map(lambda value: json.dumps(value).encode())


def _cut(given: tuple[bytes, int]) -> bytes:
    data, at = given
    return data[: len(data) - at]


TARGETS: Final = (
    Target("keys", st.tuples(_HEADERS, _HEADERS), _keys, bounded=200),
    Target("names", _ODD | st.lists(_ODD, max_size=4).map("".join), _names, bounded=200),
    Target(
        "stored-ids",
        mutated(
            st.sampled_from(
                [b"resp_" + b"0a" * 16, b"msg_" + b"0a" * 16 + b"o0001", b"rs_" + b"f" * 37]
            )
        ).map(lambda data: data.decode("latin-1"))
        | _ODD,
        _stored,
        found=("resp_" + "0" * 32 + "\n", "msg_" + "0" * 32 + "o" + "١" * 4),
        bounded=200,
    ),
    Target(
        "traces",
        st.tuples(
            _PARENT.map(lambda data: data.decode("latin-1")) | _ODD,
            _ODD | st.sampled_from(["a=b", "a=b," * 40, "a=" + "x" * 300, "=,=", "a=\r\nx: y"]),
        ),
        _trace,
        bounded=200,
    ),
    Target(
        "key-files",
        st.tuples(
            st.just("keys.json"),
            mutated(st.just(json.dumps({"keys": [_RECORD]}).encode()))
            | JSON.map(lambda value: json.dumps({"keys": [_RECORD | {"name": value}]}).encode())
            | JSON.map(lambda value: json.dumps(value).encode()),
        )
        | st.tuples(st.just("keys.toml"), mutated(st.just(_TOML)) | st.binary(max_size=20)),
        _key_file,
        bounded=100,
    ),
    Target(
        "redaction",
        st.lists(_SECRETS | _ODD | st.text(max_size=8), max_size=8).map(" ".join),
        _redacted,
        bounded=100,
    ),
    Target(
        "redaction-of-bodies",
        st.tuples(_DOCUMENTS, st.integers(0, 12)).map(_cut),
        _document,
        found=(f'{{"a": "x\\n{_KEY}'.encode(),),
        bounded=80,
    ),
)
