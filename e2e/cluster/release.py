"""A release as `./dev release` makes it, of the program that the tests run."""

import os
import re
import subprocess
import sys
from pathlib import Path

from cluster import roots
from harness.places import BUILD, LUNKEEPER, ROOT

DEBIAN = roots.root_for(LUNKEEPER)
VERSION = re.findall(r"project\(lunkeeper VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[0]
CHART = f"lunkeeper-{VERSION}.tgz"
IMAGE = f"lunkeeper-{VERSION}-{DEBIAN.architecture}.image.tar"
DEB = f"lunkeeper_{VERSION}_{DEBIAN.architecture}.deb"
BILL = f"lunkeeper-{VERSION}-{DEBIAN.architecture}.spdx.json"


def run(out: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    built = f"--arch={DEBIAN.architecture}={BUILD}"
    return subprocess.run(
        [sys.executable, ROOT / "packaging/release.py", built, f"--out={out}", *options],
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "PYTHONPATH": str(ROOT / "e2e")},
    )


def make(out: Path, *options: str) -> Path:
    done = run(out, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return out
