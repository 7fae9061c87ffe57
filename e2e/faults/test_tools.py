"""The checker itself must find errors."""

import json
import subprocess

from harness import places

BLOCK = 4096


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
