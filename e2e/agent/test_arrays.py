"""Several arrays behind one controller, from a file that may change."""

import time

import pytest

from agent.agents import AgentRig, page
from harness.cleanup import wait_until
from harness.csi import code_of
from harness.volume import MIB, Volume

# Far less than any deadline of a call to an array that is down.
AT_ONCE = 2


@pytest.fixture(scope="module")
def rig(folder, xfs_pool):
    with AgentRig(folder / "two", xfs_pool, arrays=2, nodes=1) as rig:
        yield rig


def names(rig):
    listed, token = [], ""
    while True:
        page_of = rig.controller.client.ListVolumes(max_entries=1, starting_token=token)
        listed += [entry.volume.volume_id for entry in page_of.entries]
        token = page_of.next_token
        if not token:
            return listed


def test_each_volume_is_where_its_class_says_and_all_are_listed(rig):
    first, second = (agent.array_name for agent in rig.agents)
    volumes = [
        Volume(rig, rig.nodes[0], f"v{i}", block=True, size=16 * MIB, parameters=parameters).create()
        for i, parameters in enumerate([{}, {"array": first}, {"array": second}])
    ]
    assert [volume.id.rpartition("-v")[0] for volume in volumes] == [first, first, second]
    assert sorted(names(rig)) == sorted(volume.id for volume in volumes)
    code, text = code_of(Volume(rig, rig.nodes[0], "w", block=True, parameters={"array": "elsewhere"}).create)
    assert code == "INVALID_ARGUMENT" and first in text and second in text
    segments = dict(rig.nodes[0].client.NodeGetInfo().accessible_topology.segments)
    assert segments == {f"array.lunkeeper.io/{name}": "reachable" for name in (first, second)}
    for volume in volumes:
        volume.delete()


def test_an_array_that_is_down_slows_nobody_else(rig):
    down = rig.agents[1]
    there = Volume(
        rig, rig.nodes[0], "there", block=True, size=16 * MIB, parameters={"array": down.array_name}
    ).create()
    down.kill()
    here = Volume(rig, rig.nodes[0], "here", block=True, size=16 * MIB)
    for call in (here.create, here.controller_publish, here.controller_unpublish, here.delete):
        began = time.monotonic()
        call()
        assert time.monotonic() - began < AT_ONCE
    code, text = code_of(there.controller_publish)
    assert code == "UNAVAILABLE" and f"array {down.array_name} at {down.address}" in text
    assert code_of(rig.controller.client.ListVolumes)[0] == "UNAVAILABLE", (
        "a list that leaves volumes out would be a lie"
    )
    assert rig.controller.ready()
    rig.start()
    wait_until(lambda: code_of(there.delete)[0] == "OK", 30, "the array is reached again")


def test_the_arrays_file_is_read_again_and_a_wrong_one_is_refused_by_line(rig):
    def good():
        return "lunkeeper_arrays_file_good 1" in page(rig.metrics_port, "/metrics")

    wait_until(good, 15, "the metric says so")
    entries = rig.entries()
    rig.write_arrays([*entries[:1], {**entries[1], "adress": "x"}])
    wait_until(lambda: not good(), 15, "the metric says that the file is wrong")
    assert f'{rig.arrays_file}: line 20: "adress"' in rig.controller.log.read_text()
    assert names(rig) == [], "both arrays still answer"

    rig.write_arrays(entries[:1])
    gone = Volume(rig, rig.nodes[0], "gone", block=True, parameters={"array": rig.agents[1].array_name})
    wait_until(lambda: code_of(gone.create)[0] == "INVALID_ARGUMENT", 15, "the second array is gone")
    wait_until(good, 15, "the metric says that the file is right again")
    rig.write_arrays(entries)
    wait_until(lambda: code_of(gone.create)[0] == "OK", 15, "the second array is back")
    gone.delete()


def test_a_controller_with_a_wrong_file_says_which_line_and_ends(rig):
    rig.controller.stop()
    good = rig.arrays_file.read_text()
    rig.arrays_file.write_text(good.replace('"name"', '"names"', 1))
    rig.controller.start()
    wait_until(lambda: not rig.controller.running(), 15, "it ends")
    assert rig.controller.process.returncode == 1
    assert 'line 4: "names"' in rig.controller.tail()
    rig.arrays_file.write_text(good)
    rig.start()
