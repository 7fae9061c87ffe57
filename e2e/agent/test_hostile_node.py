"""A node that was broken into: a fence by hand holds the machine, whatever its instance, and the node gets
only what its pods use.
"""

import time

from agent.agents import AgentRig
from agent.coordinated import CoordinatedRig
from harness.checker import Zombie
from harness.cleanup import wait_until
from harness.csi import code_of
from harness.leaks import Leaks
from harness.volume import MIB, Volume


def test_a_node_that_is_fenced_by_hand_gets_nothing_as_another_instance(folder, xfs_pool):
    with AgentRig(folder / "hostile", xfs_pool) as rig:
        leaks, node, client = Leaks(rig), rig.nodes[0], rig.controller.client
        other, later = f"{node.name}.00000000000000aa", f"{node.name}.00000000000000bb"
        neighbour = f"{node.name}.more.00000000000000aa"  # a machine whose name begins like this one's
        volumes = [Volume(rig, node, name, block=True, size=16 * MIB).create() for name in ("own", "stolen")]

        def publish(volume, node_id):
            return client.ControllerPublishVolume(
                volume_id=volume.id, node_id=node_id, volume_capability=volume.capability
            ).publish_context

        zombies = [
            Zombie(rig.folder, name, dict(publish(volume, node_id))).start()
            for name, volume, node_id in zip(("one", "two"), volumes, (node.id, other), strict=True)
        ]
        try:
            for zombie in zombies:
                zombie.wait_for("acked", 1)
            rig.fence(node.name)
            for zombie in zombies:
                zombie.wait_for("refused", 1)  # it still tries
        finally:
            for zombie in zombies:
                zombie.kill()
        for volume in volumes:
            for node_id in (node.id, other, later):
                code, text = code_of(lambda: publish(volume, node_id))
                assert code == "FAILED_PRECONDITION" and "its machine is fenced" in text, f"{code}: {text}"
            publish(volume, neighbour)
            client.ControllerUnpublishVolume(volume_id=volume.id, node_id=neighbour)
        rig.unfence(node.name)
        publish(volumes[0], later)
        client.ControllerUnpublishVolume(volume_id=volumes[0].id, node_id=later)
        for volume in volumes:
            volume.delete()
        assert not leaks.found(), leaks.found()


def test_a_node_is_given_what_its_pods_use_and_nothing_else(folder, xfs_pool):
    with CoordinatedRig(folder / "uses", xfs_pool, nodes=2) as rig:
        hostile, other = rig.nodes
        volume = Volume(rig, other, "data", block=True, size=16 * MIB).create()
        unclaimed = Volume(rig, hostile, "unclaimed", block=True, size=16 * MIB).create()
        rig.claim(volume)
        volume.node = hostile

        def is_refused(asked):
            """Until the controller has watched for ten seconds it gives what it is asked for."""
            code, text = code_of(asked.stage)
            if code == "OK":
                asked.unstage()
                return False
            assert code == "FAILED_PRECONDITION" and "knows no pod there" in text, f"{code}: {text}"
            return True

        for asked in (volume, unclaimed):
            wait_until(lambda asked=asked: is_refused(asked), 60, rig.controller.tail, pause=1)
        begun = time.monotonic()
        assert is_refused(volume) and time.monotonic() - begun >= 1

        volume.node = other
        volume.up().down()
        rig.claim(unclaimed)
        unclaimed.up()
        rig.api.merge(f"/api/v1/namespaces/db/pods/{unclaimed.name}", status={"phase": "Succeeded"})
        unclaimed.up().down()  # it has it, so it may go on asking
        wait_until(lambda: is_refused(unclaimed), 20, rig.controller.tail)
        for each in (volume, unclaimed):
            each.delete()
