"""The tools of tests and benchmarks must find what they look for."""

import contextlib
import itertools
import json
import pathlib
import subprocess

import pytest

from bench import comparison
from bench.comparison import Figure
from harness import places

BLOCK = 4096
OLD, NEW = pathlib.Path("old"), pathlib.Path("new")


def run(mode, device, record, *more):
    done = subprocess.run(
        [places.BLOCK_CHECKER, mode, f"--device={device}", f"--record={record}", *more],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, json.loads(done.stdout)


def test_the_checker_sees_an_older_and_a_broken_block(folder):
    device, record = folder / "device", folder / "record"
    device.write_bytes(bytes(64 * BLOCK))
    assert run("write", device, record, "--seconds=1", "--threads=4")[0] == 0
    older = device.read_bytes()
    assert run("write", device, record, "--seconds=1", "--threads=4")[0] == 0
    assert run("verify", device, record)[0] == 0
    with open(device, "r+b") as out:
        out.seek(5 * BLOCK)
        out.write(older[5 * BLOCK : 6 * BLOCK])
        out.seek(9 * BLOCK + 100)
        out.write(b"torn")
    code, counters = run("verify", device, record)
    assert (code, counters["stale"], counters["garbage"]) == (1, 1, 1)


@pytest.mark.parametrize("factor,passes", [(1.0, True), (0.96, True), (0.9, False), (1.5, True)])
def test_a_comparison_fails_a_build_that_is_slower_than_the_spread_plus_3_percent(capsys, factor, passes):
    """The two old samples of each round differ by 2 %."""
    figure = Figure("reads", "I/Os/s", higher_is_better=True)
    speeds = itertools.cycle([0.99, 1.01])

    @contextlib.contextmanager
    def start(binary):
        chance = next(speeds) if binary == OLD else factor
        speed = 1000 * chance
        yield [lambda: {figure: speed}]

    assert comparison.compare("test", start, OLD, NEW, rounds=4) == passes
    assert ("WORSE" in capsys.readouterr().out) != passes
