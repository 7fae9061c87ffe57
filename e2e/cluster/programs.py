"""Kubernetes, CSI sidecars, helm and CoreDNS, built from Go modules into .cache/kube, once a go.mod."""

import fcntl
import hashlib
import json
import os
import re
import subprocess
from pathlib import Path

from harness.places import ROOT

TOOLS = ROOT / "e2e/cluster/tools"
BIN = ROOT / ".cache/kube/bin"
SNAPSHOT_CRDS = ROOT / ".cache/kube/snapshot-crds"
# The modules with the definitions of snapshots, groups of them, and the service of changed blocks.
SNAPSHOT_CLIENTS = {
    "github.com/kubernetes-csi/external-snapshotter/client/v8": "*snapshot.storage.k8s.io_*.yaml",
    "github.com/kubernetes-csi/external-snapshot-metadata/client": "cbt.storage.k8s.io_*.yaml",
}
# Of the kinds that the chart can ask for and that the test cluster lacks: where their definitions are.
OPERATORS = {
    "github.com/cert-manager/cert-manager@v1.21.2": ["deploy/crds/cert-manager.io_certificates.yaml"],
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": [
        f"example/prometheus-operator-crd/monitoring.coreos.com_{kind}.yaml"
        for kind in ("prometheusrules", "servicemonitors")
    ],
}
BUILD_SECONDS = 3600
ALL, HELM, OWN = "tool", "helm.sh/helm/v3/cmd/helm", ("coredns", "blocks")


def path(name: str) -> Path:
    return BIN / name


def versions() -> dict[str, str]:
    """{module: version} as go.mod has them."""
    return dict(re.findall(r"^\s*(\S+) (v\S+)", (TOOLS / "go.mod").read_text(), re.MULTILINE))


def _stamp() -> str:
    content = hashlib.sha256(_linker_flags().encode())
    for name in ("go.mod", "go.sum", *(f"{program}/main.go" for program in OWN)):
        content.update((TOOLS / name).read_bytes())
    return content.hexdigest()


def _linker_flags() -> str:
    """Sets the programs' versions: a kubelet without one is refused, and helm would think it is old."""
    kubernetes, helm = versions()["k8s.io/kubernetes"], versions()["helm.sh/helm/v3"]
    major, minor, _ = kubernetes.lstrip("v").split(".")
    stamped = {
        "k8s.io/component-base/version.gitVersion": kubernetes,
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "helm.sh/helm/v3/internal/version.version": helm,
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor": major,
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor": minor,
        "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor": major,
        "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor": minor,
    }
    return " ".join(["-s -w", *(f"-X {symbol}={value}" for symbol, value in stamped.items())])


def build(package: str) -> None:
    """Builds what `package` names: one program, or ALL that go.mod lists."""
    BIN.mkdir(parents=True, exist_ok=True)
    with (BIN / ".lock").open("w") as lock:  # clones share the folder
        fcntl.flock(lock, fcntl.LOCK_EX)
        _build_once(package)


def _build_once(package: str) -> None:
    stamp = BIN / f".{package.strip('./').replace('/', '_')}.stamp"
    if stamp.exists() and stamp.read_text() == _stamp():
        return
    # One package at a time and static: the programs go into images that have no libraries. Debug
    # information, which is stripped anyway, would take the compiler an eighth longer.
    subprocess.run(
        [
            "nice",
            "go",
            "build",
            "-p",
            "1",
            "-trimpath",
            "-gcflags=all=-dwarf=false",
            "-ldflags",
            _linker_flags(),
            "-o",
            f"{BIN}/",
            package,
        ],
        cwd=TOOLS,
        check=True,
        timeout=BUILD_SECONDS,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=readonly"},
    )
    if package == ALL:
        _keep_snapshot_crds()
    stamp.write_text(_stamp())


def _keep_snapshot_crds() -> None:
    """They come with the modules' sources."""
    SNAPSHOT_CRDS.mkdir(parents=True, exist_ok=True)
    for module, names in SNAPSHOT_CLIENTS.items():
        folder = subprocess.run(
            ["go", "list", "-m", "-f", "{{.Dir}}", module],
            cwd=TOOLS,
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout.strip()
        for source in Path(folder, "config/crd").glob(names):
            (SNAPSHOT_CRDS / source.name).write_bytes(source.read_bytes())


def operator_crds() -> list[Path]:
    """Their files, in Go's own cache."""
    found: list[Path] = []
    for module, names in OPERATORS.items():
        told = subprocess.run(
            ["go", "mod", "download", "-json", module],
            check=True,
            capture_output=True,
            text=True,
            timeout=300,
        ).stdout
        found += [Path(json.loads(told)["Dir"], name) for name in names]
    return found


def build_helm() -> None:
    build(HELM)


def build_all() -> None:
    for package in (HELM, ALL, *(f"./{program}" for program in OWN)):
        build(package)
