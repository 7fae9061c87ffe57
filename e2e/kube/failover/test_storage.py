"""The storage fails, or a part of the way to it. What is healthy stays where it is."""

import pytest

from cluster import deploy, faults
from cluster.storage import PORTAL_PORT
from harness.cleanup import wait_until
from kube.failover.watching import MOVES_SECONDS, OVER_SECONDS, Placed
from kube.workloads import block_container, wait_for_event
from kube.writer import Writer

AWAY_SECONDS = 40  # longer than any fence takes, shorter than the 120 s after which a device fails for good
BACK_SECONDS = 240  # a pod whose device has failed crash-loops until it is replaced

SECOND, HOME, POOL = "rack2", "node-1", "/srv/rack2"  # the second array, and where it is


@pytest.fixture
def everywhere(place, failover):
    """A writer on each node, and a function that says whether all their pods are still the same."""
    writers = [place(f"db-{node}", node=node) for node in failover.cluster.nodes]
    uids = [each.uid() for each in writers]
    return writers, lambda: all(each.stays(uid) for each, uid in zip(writers, uids, strict=True))


def all_go_on(writers, seconds):
    for each in writers:
        each.writer.goes_on(seconds=seconds)


def test_the_portal_is_lost_for_all_nodes_and_nobody_is_fenced(everywhere, failover):
    """The array's agent answers on, as where data has a network of its own."""
    (writers, all_stay), storage = everywhere, failover.cluster.storage
    faults.cut_off(storage, ports=[PORTAL_PORT])
    try:
        stood = [each.now_a_zombie() for each in writers]
        failover.stays_quiet(AWAY_SECONDS, all_stay)
        for wrote_nothing in stood:
            wrote_nothing()
    finally:
        faults.heal(storage)
    all_go_on(writers, OVER_SECONDS)
    failover.stays_quiet(5, all_stay)
    for each in writers:
        each.lost_nothing()


def test_the_portal_is_lost_for_one_node_and_its_pod_moves(place, failover):
    """The node still reaches the controllers, and the array's agent."""
    db = place()
    other = place("other", node=next(name for name in failover.cluster.nodes if name != db.node))
    uid = other.uid()
    faults.cut_off(db.host, ports=[PORTAL_PORT])
    wrote_nothing = db.now_a_zombie()
    db.moves(seconds=3 * MOVES_SECONDS)
    assert set(failover.fences()) == {db.node}
    faults.heal(db.host)
    failover.wait_until_over(db.node)
    wrote_nothing()
    assert other.stays(uid)
    for each in (db, other):
        each.writer.goes_on()
        each.lost_nothing()


def stubborn_writer(workloads):
    """A pod that goes on when its writes fail. It never flushes, so it has always something to lose."""
    write = "block_checker write --device=/dev/data --record=/tmp/record --threads=1 --blocks=64"
    script = f"while :; do {write} --flush-every=0 --pause-ms=10; sleep 1; done"
    container = {**block_container(), "command": ["sh", "-c", script]}
    claim = {"size": "64Mi", "volumeMode": "Block"}
    workloads.stateful_set("stubborn", claim=claim, containers=[container])
    return workloads.wait_for_pod("stubborn-0")["metadata"]["uid"]


@pytest.mark.timeout(900)
def test_the_storage_host_loses_its_power_and_comes_back(everywhere, failover, workloads):
    """What its cache lost fails for good, and the pods of that are replaced. No node is fenced."""
    (writers, all_stay), storage = everywhere, failover.cluster.storage
    uid = stubborn_writer(workloads)
    storage.power_off()
    try:
        failover.stays_quiet(AWAY_SECONDS / 2, all_stay)
    finally:
        storage.boot()
    all_go_on(writers, BACK_SECONDS)
    wait_for_event(workloads, "stubborn-0", "Kicked", "its device failed for good")
    assert workloads.wait_for_pod("stubborn-0")["metadata"]["uid"] != uid
    workloads.shell("stubborn-0", "dd if=/dev/zero of=/dev/data bs=4k count=1 conv=notrunc,fsync")
    failover.stays_quiet(5)
    for each in writers:
        each.lost_nothing()


@pytest.fixture
def second_array(cluster, workloads):
    """A class of volumes on another array, which one of the nodes serves."""
    home = cluster.nodes[HOME]
    home.enter("mkdir", "-p", POOL, check=True)
    (first,) = deploy.values(cluster)["arrays"]
    local = {"name": SECOND, "node": HOME, "path": POOL}
    deploy.install(cluster, arrays=[{**first, "default": True}], localArray=local)
    yield workloads.storage_class(parameters={"array": SECOND})
    workloads.delete("statefulset", "--all")
    workloads.delete("pvc", "--all")
    wait_until(lambda: not volumes_there(cluster), OVER_SECONDS, "no volume is left there", pause=0.3)
    cluster.kubectl("delete", f"daemonset/lunkeeper-array-{SECOND}", f"--namespace={deploy.NAMESPACE}")
    deploy.install(cluster)
    cluster.kubectl("label", "nodes", "--all", f"array.lunkeeper.io/{SECOND}-")
    secrets = (f"lunkeeper-array-{SECOND}-tls", "lunkeeper-controller-tls")
    cluster.kubectl("delete", "secret", *secrets, f"--namespace={deploy.NAMESPACE}")
    home.enter("rm", "-rf", POOL, check=True)
    home.enter("sh", "-c", f"rm -f /var/lib/lunkeeper/*{SECOND}*", check=True)


def volumes_there(cluster):
    handles = [volume["spec"]["csi"]["volumeHandle"] for volume in cluster.kubectl.items("pv")]
    return [handle for handle in handles if handle.startswith(f"{SECOND}-v")]


@pytest.mark.timeout(900)
def test_one_of_two_arrays_is_lost_with_the_node_that_serves_it(second_array, place, failover, workloads):
    """That node's pod on the other array moves. A pod elsewhere, with its volume on the lost one, waits."""
    db = place(node=HOME)
    claim = {"size": "64Mi", "volumeMode": "Block", "storage_class": second_array}
    with workloads.new_pods_go_to("node-3"):
        writer = Writer(workloads, "far", claim, block=True, owner="StatefulSet").goes_on(seconds=180)
    far = Placed(failover, workloads, writer)
    uid = far.uid()
    db.host.power_off()
    db.moves(seconds=3 * MOVES_SECONDS)
    assert set(failover.fences()) == {HOME}, failover.tell()
    assert far.stays(uid)
    db.host.boot()
    far.writer.goes_on(seconds=BACK_SECONDS)
    failover.wait_until_over(HOME)
    assert far.node == "node-3"
    for each in (db, far):
        each.lost_nothing()
