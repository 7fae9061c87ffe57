"""Kubernetes, CSI sidecars, helm and CoreDNS, built from Go modules into .cache/kube, once a go.mod.

KUBERNETES_VERSION chooses the cluster's Kubernetes by its minor version: that of tools/go.mod, or one that
has a folder in there, such as kubernetes-1.35. The folder has Kubernetes' own programs alone, and they lie
in a folder of .cache/kube beside the others; all else is the same for each version.
"""

import dataclasses
import fcntl
import hashlib
import json
import os
import re
import subprocess
from pathlib import Path

from harness.places import ROOT

TOOLS = ROOT / "e2e/cluster/tools"
KUBE = ROOT / ".cache/kube"
BIN = KUBE / "bin"
SNAPSHOT_CRDS = KUBE / "snapshot-crds"
OF_KUBERNETES = (
    *("kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet"),
)
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
CHART_TESTING = "github.com/helm/chart-testing/v3"
BUILD_SECONDS = 3600
ALL, HELM, OWN = "tool", "helm.sh/helm/v3/cmd/helm", ("coredns", "blocks")


@dataclasses.dataclass(frozen=True)
class Module:
    """A folder with a go.mod, and the folder that its programs are built into."""

    folder: Path
    bin: Path

    def versions(self) -> dict[str, str]:
        """{module: version} as go.mod has them."""
        return dict(re.findall(r"^\s*(?:require )?(\S+) (v\S+)", self.text(), re.MULTILINE))

    def text(self) -> str:
        return (self.folder / "go.mod").read_text()

    def kubernetes(self) -> str:
        """Its Kubernetes, as v1.36.3."""
        return self.versions()["k8s.io/kubernetes"]


TOOLS_MODULE = Module(TOOLS, BIN)
CT_MODULE = Module(TOOLS / "chart-testing", KUBE / "chart-testing")


def _minor_of(version: str) -> str:
    return version.lstrip("v").rpartition(".")[0]


NEWEST = _minor_of(TOOLS_MODULE.kubernetes())
OLDER = {
    minor: Module(folder, KUBE / minor)
    for folder in sorted(TOOLS.glob("kubernetes-*"), reverse=True)
    if (minor := folder.name.partition("-")[2])
}
MINOR_VERSIONS = [NEWEST, *OLDER]  # that there are tests for
CHOSEN = os.environ.get("KUBERNETES_VERSION") or NEWEST
if CHOSEN not in MINOR_VERSIONS:
    raise SystemExit(f"KUBERNETES_VERSION={CHOSEN}: want one of {', '.join(MINOR_VERSIONS)}")
KUBERNETES = OLDER.get(CHOSEN, TOOLS_MODULE)


def path(name: str) -> Path:
    return (KUBERNETES.bin if name in OF_KUBERNETES else BIN) / name


def search_path() -> str:
    """Of all programs, for a shell."""
    return ":".join(str(folder) for folder in dict.fromkeys((KUBERNETES.bin, BIN)))


def versions() -> dict[str, str]:
    """{module: version} of all that a cluster consists of."""
    return {**TOOLS_MODULE.versions(), "k8s.io/kubernetes": KUBERNETES.kubernetes()}


def _stamp(module: Module) -> str:
    content = hashlib.sha256(_linker_flags(module).encode())
    for name in ("go.mod", "go.sum", *(f"{program}/main.go" for program in OWN if module is TOOLS_MODULE)):
        content.update((module.folder / name).read_bytes())
    return content.hexdigest()


def _linker_flags(module: Module) -> str:
    """Sets the programs' versions: a kubelet without one is refused, and helm would think it is old."""
    if module is CT_MODULE:
        return "-s -w"
    kubernetes, helm = module.kubernetes(), TOOLS_MODULE.versions()["helm.sh/helm/v3"]
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


def build(package: str, module: Module = TOOLS_MODULE) -> None:
    """Builds what `package` names: one program, or ALL that go.mod lists."""
    module.bin.mkdir(parents=True, exist_ok=True)
    with (module.bin / ".lock").open("w") as lock:  # clones share the folder
        fcntl.flock(lock, fcntl.LOCK_EX)
        _build_once(package, module)


def _build_once(package: str, module: Module) -> None:
    stamp = module.bin / f".{package.strip('./').replace('/', '_')}.stamp"
    if stamp.exists() and stamp.read_text() == _stamp(module):
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
            _linker_flags(module),
            "-o",
            f"{module.bin}/",
            package,
        ],
        cwd=module.folder,
        check=True,
        timeout=BUILD_SECONDS,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=readonly"},
    )
    if package == ALL and module is TOOLS_MODULE:
        _keep_snapshot_crds()
    stamp.write_text(_stamp(module))


def _sources(name: str, module: Module) -> Path:
    """Where Go keeps what a module is built from."""
    told = subprocess.run(
        ["go", "list", "-m", "-f", "{{.Dir}}", name],
        cwd=module.folder,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
    return Path(told.strip())


def _keep_snapshot_crds() -> None:
    """They come with the modules' sources."""
    SNAPSHOT_CRDS.mkdir(parents=True, exist_ok=True)
    for name, files in SNAPSHOT_CLIENTS.items():
        for source in (_sources(name, TOOLS_MODULE) / "config/crd").glob(files):
            (SNAPSHOT_CRDS / source.name).write_bytes(source.read_bytes())


def _install_linters() -> None:
    """The ones that ct runs, from the Python package index, into a folder of their own."""
    wanted = CT_MODULE.folder / "requirements.txt"
    stamp = CT_MODULE.bin / ".linters.stamp"
    home = (CT_MODULE.bin / "python").resolve()  # is in its scripts, and a clone that has made it may go
    made = f"{home}\n{wanted.read_text()}"
    if stamp.exists() and stamp.read_text() == made:
        return
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--clear", home], check=True, timeout=120)
    install = (home / "bin/pip", "install", "--quiet", "--require-hashes", "--requirement", wanted)
    subprocess.run(install, check=True, timeout=300)
    stamp.write_text(made)


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


def build_ct() -> None:
    """What `ct lint` needs."""
    build_helm()
    build(ALL, CT_MODULE)
    _install_linters()


def lint_chart(chart: Path) -> subprocess.CompletedProcess[str]:
    """`ct lint`, with the rules that chart-testing brings."""
    rules = _sources(CHART_TESTING, CT_MODULE) / "etc"
    command = [
        str(CT_MODULE.bin / "ct"),
        "lint",
        f"--config={ROOT}/charts/ct.yaml",
        f"--charts={chart}",
        f"--chart-yaml-schema={rules}/chart_schema.yaml",
        f"--lint-conf={rules}/lintconf.yaml",
    ]
    path = f"{CT_MODULE.bin}/python/bin:{BIN}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, env=environment)


def build_all() -> None:
    """All that the chosen cluster needs."""
    for package in (HELM, ALL, *(f"./{program}" for program in OWN)):
        build(package)
    if KUBERNETES is not TOOLS_MODULE:
        build(ALL, KUBERNETES)
