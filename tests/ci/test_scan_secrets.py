"""The scan for secrets finds one of every kind, in the tree and in the history, and shows none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.ci.loading import ROOT, script

scan: Final = script("scan_secrets")

HEX: Final = "3f9c2ab81d04e6577a0b9c8d7e6f5a41"
WORD: Final = "Zq7Rk2Lm9Xv4Tb8Nc3Wd6Hs1Jf5Gp0YzQeUiOaKl"

# Written in two halves, so that the scan of this file finds nothing.
PLANTED: Final[Mapping[str, str]] = {
    "Toolrail key": "tr_" + HEX[:12] + "_" + (WORD * 2)[:43],
    "NATS seed": "SU" + "A" + ("MK5Q7ZX2" * 7)[:55],
    "Hugging Face token": "hf" + "_" + WORD[:34],
    "Anthropic key": "sk-ant" + "-api03-" + WORD,
    "OpenAI project key": "sk-proj" + "-" + WORD,
    "Google key": "AI" + "za" + WORD[:35],
    "GitHub fine-grained token": "github" + "_pat_" + (WORD * 2)[:62],
    "Artifactory Credentials": " AK" + "C" + WORD[:20] + " ",
    "AWS Access Key": "AK" + "IA" + "QW3ERT7YUIOP5ASD",
    "Azure Storage Account access key": "Account" + "Key=" + (WORD * 3)[:86] + "==",
    "Basic Auth Credentials": "https://someone:" + "correct9horse" + "@db.invalid",
    "Cloudant Credentials": "cloudant" + "_password = " + HEX * 2,
    "Discord Bot Token": "M" + WORD[:23] + "." + WORD[:6] + "." + WORD[:27],
    "GitHub Token": "gh" + "p_" + WORD[:36],
    "GitLab Token": "gl" + "pat-" + WORD[:24],
    "Base64 High Entropy String": '"' + WORD + 'q+/9"',
    "IBM Cloud IAM Key": "ibm_cloud" + "_iam_api_key = " + (WORD * 2)[:44],
    "IBM COS HMAC Credentials": "cos_hmac" + "_secret_access_key = " + (HEX * 2)[:48],
    "JSON Web Token": "ey" + "JhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmVk",
    "Secret Keyword": "pass" + 'word = "correct9horse"',
    "Mailchimp Access Key": HEX + "-us" + "12",
    "NPM tokens": "//registry.invalid/:_auth" + "Token=" + "npm_" + WORD[:36],
    "OpenAI Token": "sk-" + WORD[:20] + "T3Blbk" + "FJ" + WORD[20:40],
    "Private Key": "-----BEGIN " + "PRIVATE KEY-----",
    "PyPI Token": "pypi-AgEIcHlwaS5v" + "cmc" + (WORD * 2)[:72],
    "SendGrid API Key": "S" + "G." + WORD[:22] + "." + (WORD * 2)[:43],
    "Slack Token": "xo" + "xb-1234567890-" + "a1b2c3d4e5f6",
    "SoftLayer Credentials": "softlayer" + "_api_key = " + HEX * 2,
    "Square OAuth Secret": "sq0" + "csp-" + (WORD * 2)[:43],
    "Stripe Access Key": "sk_" + "live_" + WORD[:24],
    "Telegram Bot Token": "1234567890" + ":" + WORD[:35],
    "Twilio API Key": "S" + "K" + HEX,
}


def kinds_in(path: str, text: str) -> set[str]:
    return {finding.kind for finding in scan.secrets_in(path, path, text)}


def test_one_of_every_kind_is_planted() -> None:
    assert set(PLANTED) == set(scan.DETECTORS)


@pytest.mark.parametrize("kind", PLANTED)
def test_a_secret_of_each_kind_is_found(kind: str) -> None:
    assert kind in kinds_in("services/a.py", f"# first\nvalue = 1\n{PLANTED[kind]}\n")


def test_ordinary_code_holds_none() -> None:
    text = (ROOT / "services" / "gateway" / "keys.py").read_text(encoding="utf-8")
    assert kinds_in("services/gateway/keys.py", text) == set()


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.invalid", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


def run(folder: Path) -> tuple[int, str]:
    command = [sys.executable, str(ROOT / ".ci" / "scan_secrets.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, done.stdout


@pytest.mark.security
def test_a_secret_stays_found_when_it_has_left_the_tree(tmp_path: Path) -> None:
    git(tmp_path, "init", "--initial-branch=main")
    file = tmp_path / "a.txt"
    file.write_text("nothing\n", encoding="utf-8")
    git(tmp_path, "add", "a.txt")
    git(tmp_path, "commit", "-m", "first")
    assert run(tmp_path) == (0, "secrets: none in 3 texts\n")

    secret = PLANTED["GitHub Token"]
    file.write_text(secret + "\n", encoding="utf-8")
    git(tmp_path, "commit", "-am", "second")
    file.write_text("nothing\n", encoding="utf-8")
    git(tmp_path, "commit", "-am", "third")

    status, said = run(tmp_path)
    assert status == 1
    assert said.startswith("secrets: a.txt in ")
    assert said.endswith(": GitHub Token: ghp_… (40 characters)\n")

    known = tmp_path / ".ci" / "not-secrets.toml"
    known.parent.mkdir()
    known.write_text(f'[[not_secret]]\ntext = "{secret}"\nreason = "r"\n', encoding="utf-8")
    assert run(tmp_path)[0] == 0
    known.write_text('[[not_secret]]\npath = "b*"\nreason = "r"\n', encoding="utf-8")
    assert "b* is said to be no secret, and is nowhere" in run(tmp_path)[1]
