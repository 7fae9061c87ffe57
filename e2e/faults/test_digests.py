"""A volume of a class with digests, from CreateVolume to its I/O."""

import re
import subprocess

import pytest

from harness.checker import BlockChecker
from harness.cleanup import wait_until
from harness.csi import code_of
from harness.rig import Rig
from harness.volume import MIB, Volume


@pytest.fixture(scope="module")
def rig(folder, xfs_pool):
    with Rig(folder / "digests", xfs_pool) as rig:
        yield rig


def tgtadm(rig: Rig, *words: object) -> str:
    command = ["tgtadm", "-C", str(rig.control_port), "--lld", "iscsi", *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout


def target_of(rig: Rig, volume: Volume) -> str:
    shown = tgtadm(rig, "--op", "show", "--mode", "target")
    return re.findall(rf"^Target (\d+): \S*{re.escape(volume.id)}:", shown, re.MULTILINE)[0]


def agreed(rig: Rig, volume: Volume) -> tuple[str, str]:
    """What the volume's target agrees to; a node that asks for more is not let in."""
    shown = tgtadm(rig, "--op", "show", "--mode", "target", "--tid", target_of(rig, volume))
    header, data = (re.findall(rf"{name}=(\w+)", shown)[-1] for name in ("HeaderDigest", "DataDigest"))
    return header, data


def health(volume: Volume) -> str:
    return str(
        volume.node.client.NodeGetVolumeHealth(
            volume_id=volume.id,
            volume_publish_path=str(volume.target),
            staging_target_path=str(volume.staging),
        )
    )


@pytest.mark.parametrize(
    ("digests", "expected"),
    [("none", ("None", "None")), ("header", ("CRC32C", "None")), ("all", ("CRC32C", "CRC32C"))],
)
def test_a_volume_has_the_digests_of_its_class(rig, digests, expected):
    parameters = {"digests": digests}
    volume = Volume(rig, rig.nodes[0], f"digests-{digests}", block=True, size=16 * MIB, parameters=parameters)
    volume.up()
    assert agreed(rig, volume) == expected
    checker = BlockChecker(volume).start()
    checker.wait_for_writes(200)
    checker.stop_good()
    checker.verify()
    volume.down().delete()


def test_a_target_that_no_longer_agrees_is_not_used_until_it_does(rig):
    parameters = {"digests": "all"}
    volume = Volume(rig, rig.nodes[0], "refused", block=True, size=16 * MIB, parameters=parameters).up()
    checker = BlockChecker(volume).start()
    checker.wait_for_writes(50)
    target = target_of(rig, volume)
    update = ("--op", "update", "--mode", "target", "--tid", target, "--name", "DataDigest", "--value")
    tgtadm(rig, *update, "None")
    session = re.findall(r"Session: (\d+)", tgtadm(rig, "--op", "show", "--mode", "conn", "--tid", target))[0]
    tgtadm(rig, "--op", "delete", "--mode", "conn", "--tid", target, "--sid", session, "--cid", "0")
    why = "does not use data digests"
    wait_until(lambda: why in health(volume), 20, "the volume's health says why it waits")
    written = checker.acknowledged()
    tgtadm(rig, *update, "CRC32C")
    wait_until(lambda: why not in health(volume), 20, "the volume is used again")
    checker.wait_for_writes(50)
    assert checker.acknowledged() > written
    checker.stop_good()
    checker.verify()
    volume.down().delete()


def test_digests_change_while_no_node_has_the_volume(rig):
    volume = Volume(rig, rig.nodes[0], "changed", block=True, size=16 * MIB).up()
    code, text = code_of(lambda: volume.modify(digests="all"))
    assert code == "FAILED_PRECONDITION" and rig.nodes[0].id in text, f"{code}: {text}"
    volume.unpublish().unstage()
    volume.modify(digests="all")
    volume.stage().publish()
    assert agreed(rig, volume) == ("CRC32C", "CRC32C")
    volume.down().delete()
