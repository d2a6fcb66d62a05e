"""Check the compose files with dclint and the Kubernetes files with kustomize: `make lint-compose`.

dclint comes from npm, in the exact versions of `.ci/dclint`, into the cache; kustomize is kubectl's
own. Where npm cannot be reached or there is no kubectl, that is said in one line, "NOT RUN", and
ends with status 75. Any other failure is ours.
"""

from __future__ import annotations

import collections
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import kubernetes_validate
import node_packages
import yaml

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / ".ci" / "dclint"
DCLINT = "node_modules/dclint/bin/dclint.cjs"
INSTALL_S = 180.0
LINT_S = 120.0
NOT_RUN = 75

# Images are built here and named, too; files are read by people: like with like, not by letters.
# The one address that is a variable is taken for none.
UNWANTED = (
    "no-build-and-image",
    "no-unbound-port-interfaces",
    "require-quotes-in-ports",
    "service-keys-order",
    "services-alphabetical-order",
    "top-level-properties-order",
)


OVERLAY = """\
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../gpu]
components: [../keda, ../monitoring]
images:
  - {name: toolrail-gateway, newName: registry.example/toolrail-gateway, newTag: "1"}
"""


def main() -> int:
    try:
        statuses = (linted(), rendered())
    except subprocess.TimeoutExpired as error:
        print(f"compose: NOT RUN: the rest, since it took over {error.timeout} s", flush=True)
        return NOT_RUN
    return next((s for s in statuses if s not in (0, NOT_RUN)), max(statuses))


def linted() -> int:
    """What dclint says of the compose files."""
    try:
        dclint = node_packages.installed(SOURCES, DCLINT, INSTALL_S) / DCLINT
    except (OSError, node_packages.NotInstalledError) as error:
        print(f"compose: NOT RUN: dclint, since npm could not install it: {error}", flush=True)
        return NOT_RUN
    files = sorted(map(str, (ROOT / "compose").glob("compose*.yaml")))
    assert len(files) > 5
    command = [node_packages.NODE, dclint, "--max-warnings", "0", "--color", "false", *files]
    for rule in UNWANTED:
        command += ["--disable-rule", rule]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, timeout=LINT_S, check=False)
    print(f"compose: dclint read {len(files)} files", flush=True)
    return done.returncode


def rendered() -> int:
    """What kubectl makes of the kustomizations, against Kubernetes' schemas."""
    kubectl = shutil.which("kubectl")
    version = [kubectl or "kubectl", "version", "--client", "--output=json"]
    try:
        told = subprocess.run(version, capture_output=True, timeout=LINT_S, check=True)
        kustomize = json.loads(told.stdout)["kustomizeVersion"]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        print("compose: NOT RUN: kustomize, since no kubectl of these years is here", flush=True)
        return NOT_RUN
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "kubernetes"
        shutil.copytree(ROOT / "compose" / "kubernetes", copy)
        own = copy / "own"
        own.mkdir()
        (own / "kustomization.yaml").write_text(OVERLAY)
        for name in ("base", "gpu", "own"):
            command = [kubectl or "", "kustomize", copy / name]
            done = subprocess.run(command, capture_output=True, timeout=LINT_S, check=False)
            if done.returncode:
                print(f"compose: kustomize {name}: {done.stderr.decode()}", flush=True)
                return 1
            check_objects([each for each in yaml.safe_load_all(done.stdout) if each], name)
    print(f"compose: kustomize {kustomize} rendered base and overlays", flush=True)
    return 0


def check_objects(objects: list[dict[str, Any]], name: str) -> None:
    for each in objects:
        if each["kind"] not in ("ScaledObject", "PodMonitor"):
            kubernetes_validate.validate(each, "1.31", strict=True)
    kinds = collections.Counter(each["kind"] for each in objects)
    assert kinds["Deployment"] == 4, kinds
    # With KEDA, one scaler for each deployment, and no second one beside it.
    own = name == "own"
    scalers = (kinds["HorizontalPodAutoscaler"], kinds["ScaledObject"], kinds["PodMonitor"])
    assert scalers == ((0, 4, 1) if own else (3, 0, 0)), kinds


if __name__ == "__main__":
    sys.exit(main())
