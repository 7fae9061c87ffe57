"""`lunkeeper reassign`: a cluster was made again under another name, and gets the volumes of the old one."""

import os

import pytest

from agent.agents import AgentRig
from agent.test_tools import run
from harness.cleanup import wait_until
from harness.csi import code_of
from harness.rig import CLUSTER
from harness.volume import MIB, Volume, from_snapshot


@pytest.fixture(scope="module")
def rig(folder, xfs_pool):
    with AgentRig(folder / "reassign", xfs_pool) as rig:
        yield rig


def begin_new_cluster(rig, name):
    """A controller with the certificate of another cluster, and the same arrays."""
    rig.certificate, rig.key = rig.authority.issue(
        f"controller-{name}", f"DNS:controller.{name}.cluster.lunkeeper.io"
    )
    rig.write_arrays(rig.entries())
    rig.controller.kill()
    rig.start()


def test_a_new_cluster_gets_the_volumes_once_the_old_one_is_silent_and_its_nodes_are_fenced(rig):
    agent, words = rig.agents[0], ("reassign", f"--from={CLUSTER}", "--to=new")
    used = Volume(rig, rig.nodes[0], "used", block=True, size=16 * MIB).up(with_controller=True)
    with open(used.target, "r+b", buffering=0) as device:
        device.write(b"kept".ljust(4096))
        os.fsync(device.fileno())
    snapshot = used.snapshot("moment")
    code, _, errors = run(agent, *words)
    assert code == 1 and "called this agent" in errors and "so it lives" in errors, errors
    rig.controller.kill()

    def refused():
        """By what is in use, once the old cluster has been silent for long enough."""
        code, _, errors = run(agent, *words)
        assert code == 1, "a volume that is in use was given away"
        return errors if "in use" in errors else None

    errors = wait_until(refused, 60, "the old cluster is taken for dead", pause=1)
    assert f"{used.id} by node {rig.nodes[0].id}" in errors and "--fence" in errors
    code, planned, errors = run(agent, *words, "--fence", "--dry-run")
    assert code == 0 and "would be fenced" in planned and "1 volumes, 1 snapshots" in planned, errors
    code, done, errors = run(agent, *words, "--fence")
    assert code == 0 and f"node {rig.nodes[0].id} of cluster {CLUSTER} is fenced" in done, errors
    code, _, errors = run(agent, *words)
    assert code == 1 and f"nothing of cluster {CLUSTER}" in errors and "new (1 volumes" in errors, errors
    used.unpublish().unstage()

    rig.start()  # the old cluster comes back: the volume is none of its own
    assert code_of(used.controller_publish)[0] == "NOT_FOUND"
    used.delete()
    rig.controller.client.DeleteSnapshot(snapshot_id=snapshot)

    begin_new_cluster(rig, "new")
    used.controller_publish().stage().publish()
    assert used.target.read_bytes()[:4] == b"kept"
    used.down(with_controller=True)
    source = from_snapshot(snapshot)
    restored = Volume(rig, rig.nodes[0], "restored", block=True, size=16 * MIB, source=source)
    restored.up(with_controller=True)
    assert restored.target.read_bytes()[:4] == b"kept"
    restored.down(with_controller=True).delete()
    rig.controller.client.DeleteSnapshot(snapshot_id=snapshot)
    used.delete()
