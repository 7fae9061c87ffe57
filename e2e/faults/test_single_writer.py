"""A volume of which one pod may write: a single target path, asked for as often as kubelet likes."""

import subprocess

import pytest

from harness.rig import Rig
from harness.volume import MIB, Volume


@pytest.fixture
def rig(folder, xfs_pool):
    with Rig(folder / "single", xfs_pool) as rig:
        yield rig


@pytest.mark.store
@pytest.mark.parametrize("block", [True, False])
def test_a_single_writers_publish_is_repeated_while_its_target_is_bound_elsewhere(rig, block):
    mode = "SINGLE_NODE_SINGLE_WRITER"
    volume = Volume(rig, rig.nodes[0], "single", block=block, fs="ext4", size=64 * MIB, mode=mode)
    volume.up()
    bound = volume.target.parent / f"bound-{block}"  # as kubelet binds a raw device, and a subPath
    bound.touch() if block else bound.mkdir()
    subprocess.run(["mount", "--bind", volume.target, bound], check=True)
    try:
        volume.publish()
    finally:
        subprocess.run(["umount", bound], check=True)
    volume.down().delete()
