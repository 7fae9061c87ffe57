"""csi-sanity against real targets, and against the fakes as a user without rights.

Each run lists what it skipped.
"""

import os
import shutil

import pytest

from harness import places, sanity, store
from harness.cleanup import wait_until
from harness.csi import Client
from harness.leaks import Leaks
from harness.processes import Daemon
from harness.rig import Rig

# csi-sanity publishes one volume more than a node may have, to see it refused.
MOST_VOLUMES = 6


@pytest.mark.parametrize(
    ("split", "block"),
    [
        pytest.param(False, False, id="all-mount", marks=pytest.mark.store),
        pytest.param(False, True, id="all-block"),
        pytest.param(True, False, id="split-mount"),
        pytest.param(True, True, id="split-block"),
    ],
)
def test_every_case_passes(folder, xfs_pool, split, block):
    run = folder / f"{'split' if split else 'all'}-{'block' if block else 'mount'}"
    limit = [f"--max-volumes-per-node={MOST_VOLUMES}"]
    with Rig(run, xfs_pool, split=split, array_options=limit, node_options=limit if split else []) as rig:
        leaks = Leaks(rig)
        outcome = sanity.run(
            run,
            rig.nodes[0].server.socket,
            controller=rig.controller.socket if split else None,
            block=block,
            parameters={} if block else {"fsType": "xfs"},
            left_out="GroupController" if store.ON_CEPH else "",  # no groups there
        )
        outcome.check()
        assert not leaks.found()


@pytest.mark.files
def test_every_case_passes_on_fakes_without_rights(folder):
    run = folder / "fake"
    run.mkdir()
    # Root's own folders may be closed to others; this one is not.
    for program in (places.FAKE, sanity.binary()):
        shutil.copy(program, run)
    os.chmod(folder, 0o755)
    shutil.chown(run, 65534, 65534)
    socket = run / "csi.sock"
    fake = Daemon(
        "lunkeeper-fake",
        [
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            run / "lunkeeper-fake",
            f"--endpoint=unix://{socket}",
            f"--max-volumes-per-node={MOST_VOLUMES}",
        ],
        log=run / "fake.log",
        environment={"TMPDIR": str(run)},
        dies_with_us=True,
    ).start()
    try:
        client = Client(socket)
        wait_until(lambda: socket.exists() or not fake.running(), 20, fake.tail)
        assert fake.running() and client.Probe(seconds=10).ready.value, fake.tail()
        for parameters, block in (({"fsType": "xfs"}, False), ({}, True)):
            sanity.run(run, socket, block=block, parameters=parameters, as_nobody=True).check()
        client.close()
    finally:
        fake.kill()
