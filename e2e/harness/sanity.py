"""Runs csi-sanity and says what it did."""

import collections
import dataclasses
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import places

MIB = 1 << 20


def binary() -> str:
    found = shutil.which(
        "csi-sanity",
        path=os.pathsep.join(
            [str(places.ROOT / ".cache/bin"), os.environ.get("PATH", ""), str(Path.home() / "go/bin")]
        ),
    )
    assert found, "csi-sanity is not installed: ./dev setup"
    return found


@dataclasses.dataclass
class Outcome:
    passed: int
    failed: list[str]
    skipped: dict[str, int]  # {reason: number of specs}
    pending: list[str]
    output: str

    def text(self) -> str:
        lines = [
            f"{self.passed} passed, {len(self.failed)} failed, {sum(self.skipped.values())} skipped, "
            f"{len(self.pending)} switched off in csi-sanity itself"
        ]
        lines += [f"  skipped {count}: {reason}" for reason, count in sorted(self.skipped.items())]
        lines += [f"  switched off: {name}" for name in self.pending] + [
            f"  FAILED {name}" for name in self.failed
        ]
        return "\n".join(lines)

    def check(self) -> None:
        print(self.text())
        assert not self.failed, self.text() + "\n" + self.output[-6000:]
        assert self.passed > 50, self.text() + "\n" + self.output[-6000:]
        assert not self.skipped, self.text()


def run(
    folder: Path,
    endpoint: Path,
    *,
    controller: Path | None = None,
    block: bool = False,
    parameters: Mapping[str, str] | None = None,
    as_nobody: bool = False,
    left_out: str = "",
    seconds: int = 280,
) -> Outcome:
    """`left_out`: how the names of the cases begin that are not run."""
    report, yaml = folder / "report.json", folder / "parameters.yaml"
    limits = folder / "limits.yaml"
    limits.write_text('maxIops: "200"\nmaxBandwidth: "8Mi"\n')
    yaml.write_text("".join(f'{key}: "{value}"\n' for key, value in (parameters or {}).items()) or "{}\n")
    argv = [
        binary(),
        f"--csi.endpoint=unix://{endpoint}",
        f"--csi.mountdir={folder}/mount",
        f"--csi.stagingdir={folder}/staging",
        f"--csi.testvolumesize={512 * MIB}",
        f"--csi.testvolumeexpandsize={768 * MIB}",
        f"--csi.testvolumeaccesstype={'block' if block else 'mount'}",
        "--csi.testnodevolumeattachlimit",
        f"--csi.testvolumeparameters={yaml}",
        f"--csi.testvolumemutableparameters={limits}",
        f"--ginkgo.json-report={report}",
        "--ginkgo.no-color",
        f"--ginkgo.timeout={seconds}s",
    ]
    if left_out:
        argv.append(f"--ginkgo.skip=^{left_out}")
    if controller:
        argv.append(f"--csi.controllerendpoint=unix://{controller}")
    if as_nobody:
        argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *argv]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds + 20)
    assert report.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    return outcome_of(json.loads(report.read_text()), done.stdout, left_out)


def name_of(spec: dict[str, Any]) -> str:
    return " ".join([*(spec["ContainerHierarchyTexts"] or []), spec["LeafNodeText"]])


def outcome_of(report: list[dict[str, Any]], output: str, left_out: str) -> Outcome:
    states: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    for suite in report:
        for spec in suite["SpecReports"]:
            if spec["LeafNodeType"] == "It" and not (left_out and name_of(spec).startswith(left_out)):
                states[spec["State"]].append(spec)
    names = {state: [name_of(spec) for spec in specs] for state, specs in states.items()}
    reasons = collections.Counter(
        spec.get("Failure", {}).get("Message", "no reason") for spec in states.get("skipped", [])
    )
    failed = [
        name for state in names if state not in ("passed", "skipped", "pending") for name in names[state]
    ]
    return Outcome(len(states.get("passed", [])), failed, dict(reasons), names.get("pending", []), output)
