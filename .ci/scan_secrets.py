"""Look for secrets in every tracked file and in every line ever added to one: `make secrets`.

The forms come from detect-secrets, and a few that it lacks from `FORMS`, our own keys among them. A
whole text is searched at once, not line by line as detect-secrets does, which takes a tenth of the
time. Where only a name (`password = …`) or its randomness gives a secret away, tests are left out:
they are full of made-up ones.

What looks like a secret and is none stands in `not-secrets.toml` with the reason. A real one has to
be revoked first: taking it out of the tree does not take it out of the history.
"""

from __future__ import annotations

import fnmatch
import functools
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.plugins.base import BasePlugin, RegexBasedDetector
from detect_secrets.plugins.high_entropy_strings import HighEntropyStringsPlugin

ROOT = Path(__file__).resolve().parent.parent
GIT_TIMEOUT_S = 120

FORMS: Final[Mapping[str, str]] = {
    "Toolrail key": r"\btr_[0-9a-f]{12}_[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])",
    "NATS seed": r"\bS[UAOCNX][A-Z2-7]{56}\b",
    "Hugging Face token": r"\bhf_[A-Za-z0-9]{34,}\b",
    "Anthropic key": r"\bsk-ant-[a-z0-9]+-[A-Za-z0-9_-]{40,}",
    "OpenAI project key": r"\bsk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{40,}",
    "Google key": r"\bAIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])",
    "GitHub fine-grained token": r"\bgithub_pat_[A-Za-z0-9_]{60,}",
}

UNUSED: Final = frozenset(
    {
        "HexHighEntropyString",  # revisions and digests are everywhere
        "IPPublicDetector",  # no secret
    }
)
GUESSING: Final = frozenset({"Base64HighEntropyString", "BasicAuthDetector", "KeywordDetector"})
"""Detectors that go by a name or by randomness alone."""

GUESSED: Final = (".py", ".toml", ".yaml", ".yml", ".conf", ".sh", ".ci/run", "Dockerfile")
"""Names of files, or their ends, in which those search."""


@dataclass(frozen=True)
class NotSecret:
    """A text, or all that is found in files of a path (with `*`), that only looks like a secret."""

    reason: str
    text: str = ""
    path: str = ""

    def covers(self, path: str, text: str) -> bool:
        """Whether it speaks of this text in a file of this path."""
        return text == self.text if self.text else fnmatch.fnmatchcase(path, self.path)


@dataclass(frozen=True)
class Finding:
    """A text that looks like a secret, and where."""

    where: str
    kind: str
    text: str

    def shown(self) -> str:
        """A line that does not repeat the secret."""
        return f"{self.where}: {self.kind}: {self.text[:4]}… ({len(self.text)} characters)"


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    known = [NotSecret(**entry) for entry in read_known(root / ".ci" / "not-secrets.toml")]
    texts = [*tracked(root), *history(root)]
    found = [
        (path, finding) for where, path, text in texts for finding in secrets_in(where, path, text)
    ]
    left = sorted(
        finding.shown()
        for path, finding in found
        if not any(entry.covers(path, finding.text) for entry in known)
    )
    unused = [
        f"{entry.text or entry.path} is said to be no secret, and is nowhere"
        for entry in known
        if not any(entry.covers(path, finding.text) for path, finding in found)
    ]
    for fault in [*left, *unused]:
        print(f"secrets: {fault}")
    if not left and not unused:
        print(f"secrets: none in {len(texts)} texts")
    return 1 if left or unused else 0


def read_known(path: Path) -> list[dict[str, str]]:
    """The entries of the file of what is no secret."""
    if not path.exists():
        return []
    return tomllib.loads(path.read_text(encoding="utf-8")).get("not_secret", [])


# What is searched: (where, path, text).


def tracked(root: Path) -> Iterator[tuple[str, str, str]]:
    """Every tracked file as it is now."""
    for path in git(root, "ls-files", "-z").split("\0"):
        if path and (root / path).is_file():
            yield path, path, (root / path).read_text(encoding="utf-8", errors="replace")


def history(root: Path) -> Iterator[tuple[str, str, str]]:
    """For each commit and file, the lines that it added and the commit's message."""
    if git(root, "rev-parse", "--is-shallow-repository").strip() == "true":
        print("secrets: NOT RUN: the history, since this clone is shallow")
        return
    log = git(
        root, "log", "--patch", "--unified=0", "--no-color", "--no-ext-diff", "--format=%x00%H%n%B"
    )
    for commit in log.split("\0")[1:]:
        revision, _, rest = commit.partition("\n")
        message, *files = re.split(r"^diff --git .*$", rest, flags=re.MULTILINE)
        yield f"message of {revision[:12]}", "", message
        for patch in files:
            head, _, hunks = patch.partition("\n@@")
            path = head.rpartition("\n+++ b/")[2].strip()
            added = (line[1:] for line in hunks.splitlines() if line.startswith("+"))
            if text := "\n".join(added):
                yield f"{path} in {revision[:12]}", path, text


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *arguments],
        capture_output=True,
        timeout=GIT_TIMEOUT_S,
        check=True,
    )
    return done.stdout.decode(errors="replace")


# How it is searched.


def secrets_in(where: str, path: str, text: str) -> Iterator[Finding]:
    """What looks like a secret in a text of the file `path`."""
    guess = path.endswith(GUESSED) and not path.startswith("tests/")
    for kind, (guessing, search) in DETECTORS.items():
        if guess or not guessing:
            yield from (Finding(where, kind, secret) for secret in set(search(text)))


def detectors() -> Mapping[str, tuple[bool, Callable[[str], Iterable[str]]]]:
    """Kind → whether it guesses, and what finds it in a text."""
    found: dict[str, tuple[bool, Callable[[str], Iterable[str]]]] = {
        kind: (False, functools.partial(matches, [re.compile(form)]))
        for kind, form in FORMS.items()
    }
    for kind, plugin in get_mapping_from_secret_type_to_class().items():
        if plugin.__name__ not in UNUSED:
            made = cast("BasePlugin", plugin())
            found[kind] = (plugin.__name__ in GUESSING, searching(made))
    return found


def searching(plugin: BasePlugin) -> Callable[[str], Iterable[str]]:
    """What finds all that one of detect-secrets' detectors knows, each whole, not a group of it."""
    if isinstance(plugin, HighEntropyStringsPlugin):
        return functools.partial(random_ones, plugin)
    if type(plugin).analyze_string is RegexBasedDetector.analyze_string:
        return functools.partial(matches, cast("RegexBasedDetector", plugin).denylist)
    return plugin.analyze_string


def random_ones(plugin: HighEntropyStringsPlugin, text: str) -> Iterator[str]:
    for quoted in plugin.analyze_string(text):
        if plugin.calculate_shannon_entropy(quoted) > plugin.entropy_limit:
            yield quoted


def matches(expressions: Iterable[re.Pattern[str]], text: str) -> Iterator[str]:
    for expression in expressions:
        for found in expression.finditer(text):
            yield found[0]


DETECTORS: Final = detectors()


if __name__ == "__main__":
    raise SystemExit(main())
