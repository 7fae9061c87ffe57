"""A log is a pipe in a container, and its reader may die first."""

from pathlib import Path

from harness.rig import Rig

SIGPIPE_BIT = 1 << 12


def ignores_sigpipe(pid):
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(status["SigIgn"], 16) & SIGPIPE_BIT)


def test_no_server_dies_of_a_log_that_nobody_reads(folder, xfs_pool):
    with Rig(folder / "pipe", xfs_pool, split=True) as rig:
        for server in rig.servers():
            assert ignores_sigpipe(server.pid), server
        assert ignores_sigpipe(rig.nodes[0].datapath.pid)
        assert not ignores_sigpipe(rig.tgtd()), "programs that a server starts have signals as usual"
