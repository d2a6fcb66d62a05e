from __future__ import annotations

import json
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from toolrail.api_keys import KeyRecord, allowed, hash_of, id_of, load_keys, new_key
from toolrail.cli import main
from toolrail.errors import ConfigError

RECORD = {"id": "0123456789ab", "name": "alice", "hash": "sha256:" + "0" * 64}


def test_a_key_finds_its_record_and_no_other_key_is_it() -> None:
    key, key_id = new_key()
    other, _ = new_key()
    record = KeyRecord(id=key_id, name="a", hash=hash_of(key))
    assert id_of(key) == key_id
    assert record.holds(key)
    assert not record.holds(other)
    assert not record.holds(key[:-1])
    assert key not in repr(record)


@pytest.mark.parametrize(
    "text", ["", "tr_", "sk-123", "tr_0123456789ab_short", "tr_0123456789ab_" + "é" * 43, "tr_x_y"]
)
def test_what_is_not_a_key_has_no_id(text: str) -> None:
    assert id_of(text) is None


def test_a_key_expires() -> None:
    record = KeyRecord(**RECORD, expires=datetime(2027, 1, 1, tzinfo=UTC))
    assert not record.expired(datetime(2026, 12, 31, tzinfo=UTC))
    assert record.expired(datetime(2027, 1, 1, tzinfo=UTC))
    assert not KeyRecord(**RECORD).expired(datetime(2999, 1, 1, tzinfo=UTC))


def test_models_are_patterns() -> None:
    assert allowed("anything", None)
    assert not allowed("anything", ())
    assert allowed("qwen3-coder", ["demo", "qwen*"])
    assert not allowed("Qwen3", ["demo", "qwen*"])


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("k.toml", "keys = 3", "keys"),
        ("k.toml", "[[keys]", "line 1"),
        ("k.json", "[]", "object"),
        ("k.json", json.dumps({"keys": [RECORD, RECORD]}), "twice"),
        ("k.json", json.dumps({"keys": [RECORD | {"request_per_minute": 3}]}), "request_per"),
        ("k.json", json.dumps({"keys": [RECORD | {"requests_per_minute": 0}]}), ">= 1"),
        ("k.json", json.dumps({"keys": [RECORD | {"hash": "tr_secret"}]}), "hash"),
        ("k.json", json.dumps({"keys": [RECORD | {"expires": "2027-01-01T00:00:00"}]}), "timezone"),
    ],
)
def test_a_file_that_is_wrong_says_what_and_no_secret(
    tmp_path: Path, name: str, text: str, complaint: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load_keys(path)
    assert complaint in str(raised.value)
    assert "tr_secret" not in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        load_keys(tmp_path / "none.toml")


def test_the_command_shows_the_key_once_and_writes_what_the_file_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "keys.toml"
    flags = ["--model", "a*", "--model", "b", "--tokens-per-minute", "9", "--owner", "team"]
    shown = []
    for name, more in (("alice", flags), ("bob", ["--expires", "2027-01-31T00:00:00Z"])):
        assert main(["key", "new", name, *more]) == 0
        out, err = capsys.readouterr()
        with path.open("a") as file:
            file.write(out)
        shown.append(next(word for word in err.split() if word.startswith("tr_")))
    assert tomllib.loads(path.read_text())["keys"][0]["name"] == "alice"
    keys = load_keys(path)
    for key, name in zip(shown, ("alice", "bob"), strict=True):
        assert key not in path.read_text()
        record = keys[id_of(key) or ""]
        assert record.holds(key)
        assert record.name == name
    assert keys[id_of(shown[0]) or ""].models == ("a*", "b")
    assert keys[id_of(shown[0]) or ""].owner == "team"


def test_the_command_writes_json_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["key", "new", "carol", "--json", "--metrics"]) == 0
    entry = json.loads(capsys.readouterr().out)
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [entry]}))
    assert load_keys(path)[entry["id"]].metrics


def test_the_command_refuses_a_record_that_the_file_would_not_take(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["key", "new", "", "--requests-per-minute", "0"]) == 2
    assert "tr_" not in capsys.readouterr().out
