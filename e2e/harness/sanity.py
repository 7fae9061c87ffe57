"""Runs csi-sanity and says what it did."""

import collections
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess

from harness import places

# What a spec may be skipped for: the capabilities that later versions bring.
LATER = ("modify", "group", "health")
MIB = 1 << 20


def binary():
    found = shutil.which("csi-sanity", path=os.pathsep.join(
        [str(places.ROOT / ".cache/bin"), os.environ.get("PATH", ""), str(pathlib.Path.home() / "go/bin")]))
    assert found, "csi-sanity is not installed: ./dev setup"
    return found


@dataclasses.dataclass
class Outcome:
    passed: int
    failed: list
    skipped: dict  # {reason: number of specs}
    pending: list
    output: str

    def unexpected_skips(self):
        return {reason: count for reason, count in self.skipped.items()
                if not any(word in reason.lower() for word in LATER)}

    def text(self):
        lines = [f"{self.passed} passed, {len(self.failed)} failed, {sum(self.skipped.values())} skipped, "
                 f"{len(self.pending)} switched off in csi-sanity itself"]
        lines += [f"  skipped {count}: {reason}" for reason, count in sorted(self.skipped.items())]
        lines += [f"  switched off: {name}" for name in self.pending] + [f"  FAILED {name}" for name in self.failed]
        return "\n".join(lines)

    def check(self):
        print(self.text())
        assert not self.failed, self.text() + "\n" + self.output[-6000:]
        assert self.passed > 50, self.text() + "\n" + self.output[-6000:]
        assert not self.unexpected_skips(), self.text()


def run(folder, endpoint, *, controller=None, block=False, parameters=None, as_nobody=False, seconds=280):
    folder = pathlib.Path(folder)
    report, yaml = folder / "report.json", folder / "parameters.yaml"
    yaml.write_text("".join(f'{key}: "{value}"\n' for key, value in (parameters or {}).items()) or "{}\n")
    argv = [binary(), f"--csi.endpoint=unix://{endpoint}", f"--csi.mountdir={folder}/mount", f"--csi.stagingdir={folder}/staging",
            f"--csi.testvolumesize={512 * MIB}", f"--csi.testvolumeexpandsize={768 * MIB}",
            f"--csi.testvolumeaccesstype={'block' if block else 'mount'}", "--csi.testnodevolumeattachlimit",
            f"--csi.testvolumeparameters={yaml}", f"--ginkgo.json-report={report}", "--ginkgo.no-color",
            f"--ginkgo.timeout={seconds}s"]
    if controller:
        argv.append(f"--csi.controllerendpoint=unix://{controller}")
    if as_nobody:
        argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *argv]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds + 20)
    assert report.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    return outcome_of(json.loads(report.read_text()), done.stdout)


def outcome_of(report, output):
    states = collections.defaultdict(list)
    for suite in report:
        for spec in suite["SpecReports"]:
            if spec["LeafNodeType"] == "It":
                states[spec["State"]].append(spec)
    names = {state: [" ".join([*spec["ContainerHierarchyTexts"], spec["LeafNodeText"]]) for spec in specs]
             for state, specs in states.items()}
    reasons = collections.Counter(spec.get("Failure", {}).get("Message", "no reason") for spec in states.get("skipped", []))
    failed = [name for state in names if state not in ("passed", "skipped", "pending") for name in names[state]]
    return Outcome(len(states.get("passed", [])), failed, dict(reasons), names.get("pending", []), output)
