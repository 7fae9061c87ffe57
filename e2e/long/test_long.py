"""Each long run as a test, in order. LONG=short: as short as can be, to see that each starts."""

import os
import re
import subprocess
import time

import pytest

from harness.places import LOGS
from long.runs import E2E, RUNS, Run

FULL = os.environ.get("LONG") != "short"


@pytest.mark.timeout(0)
@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name.replace(" ", "-"))
def test_run(run: Run) -> None:
    log = LOGS / f"long-{run.name.replace(' ', '-')}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    with open(log, "w") as out:
        done = subprocess.run(run.argv(), cwd=E2E, env=run.environment(FULL), stdout=out, stderr=out)
    text = log.read_text()
    print(f"{run.name}: {time.monotonic() - begin:.0f} s\n{text[-2000:]}")
    assert done.returncode == 0, f"see {log}\n{text[-4000:]}"
    last = text.splitlines()[-1]
    assert not run.is_python() or (re.search(r"\d+ passed", last) and "skipped" not in last), last
