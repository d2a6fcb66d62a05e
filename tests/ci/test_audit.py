"""The audit of dependencies: what it finds, what it lets pass, and when it could not look."""

from __future__ import annotations

import datetime
import gzip
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from tests.ci.loading import ROOT, script

audit: Final = script("audit")
TODAY: Final = datetime.date(2026, 6, 1)

PIP: Final = {
    "dependencies": [
        {"name": "good", "version": "1", "vulns": []},
        {
            "name": "bad",
            "version": "2",
            "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["3"]}],
        },
    ],
    "fixes": [],
}


def accepted(until: int = 2027, *, package: str = "bad", name: str = "CVE-1") -> Any:
    return audit.Accepted(package, name, "a reason", datetime.date(until, 1, 1))


def judged(*entries: Any, report: Any = PIP, complete: bool = True) -> list[str]:
    return audit.judged([audit.read_pip_audit(report)], entries, TODAY, complete=complete)


def test_an_advisory_fails_the_audit() -> None:
    assert judged() == ["bad: CVE-1, PYSEC-1: in 2, mended in 3"]


@pytest.mark.parametrize("name", ["CVE-1", "PYSEC-1"])
def test_an_accepted_one_does_not_by_any_of_its_names(name: str) -> None:
    assert judged(accepted(name=name)) == []


def test_an_acceptance_is_of_one_package() -> None:
    assert len(judged(accepted(package="other"))) == 2


def test_an_acceptance_that_has_expired_fails() -> None:
    assert judged(accepted(2026)) == [
        "the acceptance of CVE-1 in bad ended on 2026-01-01: a reason"
    ]


def test_an_acceptance_of_nothing_fails_where_all_was_looked_at() -> None:
    clean = {"dependencies": []}
    assert judged(accepted(), report=clean) == ["CVE-1 is accepted in bad and not there"]
    assert judged(accepted(), report=clean, complete=False) == []


def test_a_package_that_was_left_out_fails() -> None:
    report = {"dependencies": [{"name": "odd", "skip_reason": "not found"}]}
    assert judged(report=report) == ["left out: odd: not found"]


def test_npm_packages_that_were_left_out_fail() -> None:
    report = {"vulnerabilities": {}, "metadata": {"dependencies": {"total": 3}}}
    assert audit.read_npm_audit(report, 3).left_out == []
    assert audit.read_npm_audit(report, 5).left_out == ["2 of 5 npm packages"]


def test_a_registry_without_advisories_is_told_from_one_that_has_none_to_report() -> None:
    with pytest.raises(audit.UnreachableError, match="405 Method Not Allowed"):
        audit.read_npm_audit({"message": "405 Method Not Allowed"}, 1)


def test_every_acceptance_in_the_tree_can_be_read() -> None:
    audit.read_accepted(ROOT / ".ci" / "advisories.toml")


# The real pip-audit and the real npm, asking a server that knows some advisories.


class Advisories(BaseHTTPRequestHandler):
    """Answers as OSV and as an npm registry; `known` names the packages that have an advisory."""

    known: frozenset[str] = frozenset()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        asked = json.loads(body)
        self.answer(self.osv(asked) if self.path == "/v1/query" else self.npm(asked))

    def do_GET(self) -> None:
        self.send_error(404)

    def osv(self, asked: Any) -> Any:
        name = asked["package"]["name"]
        if name not in self.known:
            return {}
        there = {"package": {"name": name, "ecosystem": "PyPI"}, "versions": [asked["version"]]}
        there["ranges"] = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "9"}]}]
        then = "2020-01-01T00:00:00Z"
        return {
            "vulns": [{"id": "CVE-2", "modified": then, "published": then, "affected": [there]}]
        }

    def npm(self, asked: Any) -> Any:
        found = {"id": 1, "url": "https://a.invalid/GHSA-1", "title": "t", "severity": "high"}
        return {
            name: [found | {"vulnerable_versions": "*"}] for name in asked if name in self.known
        }

    def answer(self, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Advisories.known = frozenset()
    with ThreadingHTTPServer(("127.0.0.1", 0), Advisories) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def run(folder: Path, server: str) -> tuple[int, str]:
    (folder / "pins.txt").write_text("msgspec==0.1\nanyio==4.0\n", encoding="utf-8")
    (folder / "accepted.toml").touch()
    command = [sys.executable, str(ROOT / ".ci" / "audit.py"), "--pins", str(folder / "pins.txt")]
    command += ["--accepted", str(folder / "accepted.toml"), "--osv-url", f"{server}/v1/query"]
    command += ["--npm-registry", server, "--npm", str(ROOT / "tests" / "clients" / "node")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    return done.returncode, done.stdout


@pytest.mark.security
def test_the_tools_find_advisories(tmp_path: Path, server: str) -> None:
    Advisories.known = frozenset({"jinja2", "lodash", "msgspec", "zod"})
    status, said = run(tmp_path, server)
    assert status == 1
    assert "audit: msgspec: CVE-2: in 0.1, mended in 9" in said
    assert "audit: zod: GHSA-1: in *: t" in said
    assert "left out" not in said
    assert "NOT RUN" not in said


@pytest.mark.security
def test_servers_that_know_nothing_are_not_taken_at_their_word(tmp_path: Path, server: str) -> None:
    status, said = run(tmp_path, server)
    assert status == 2
    assert said.count("NOT RUN") == 2
