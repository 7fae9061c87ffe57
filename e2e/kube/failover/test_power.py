"""A node loses its power, its kernel hangs, or it reboots."""

import time

import pytest

from cluster import deploy, faults, network
from harness.cleanup import wait_until
from kube.failover.watching import OVER_SECONDS, SLOW_SECONDS
from kube.workloads import wait_for_event


@pytest.mark.brief
def test_power_off_moves_the_pod_and_the_node_comes_back(place, failover):
    db = place()
    db.host.power_off()
    db.moves()
    fence = failover.wait_until_fenced(db.node)
    assert fence["metadata"]["name"] == failover.node_id(db.node)
    assert failover.taint(db.node) is not None
    db.lost_nothing()
    db.host.boot()
    failover.wait_until_over(db.node)


def test_a_file_system_moves_too(place):
    db = place(block=False)
    db.host.power_off()
    db.moves()
    db.lost_nothing()


def test_every_pod_of_the_node_moves(place, failover):
    several = [place(f"db{number}", node="node-2") for number in range(5)]
    failover.host("node-2").power_off()
    for each in several:
        each.moves()
    for each in several:
        each.lost_nothing()


@pytest.mark.brief
def test_a_frozen_machine_fails_when_it_thaws_and_cleans_up(place, failover):
    """All its processes stop and its network fails, as when the kernel hangs. Later they continue."""
    db = place()
    faults.freeze(db.host)
    wrote_nothing = db.now_a_zombie()
    network.plug(db.host.cluster, db.host.name, False)
    db.moves()
    failover.wait_until_fenced(db.node)
    network.plug(db.host.cluster, db.host.name, True)
    faults.thaw(db.host)
    failover.wait_until_over(db.node)
    db.writer.goes_on(more=1000)
    wrote_nothing()
    db.lost_nothing()
    leaves_nothing(db)


def test_a_frozen_machine_whose_kernel_answers_is_given_more_time(place, failover):
    """Its processes are stopped but its kernel answers probes: it is fenced only when its kubelet's lease is
    old, too.
    """
    db = place()
    began = time.monotonic()
    faults.freeze(db.host)
    wrote_nothing = db.now_a_zombie()
    failover.wait_until_fenced(db.node, SLOW_SECONDS)
    assert time.monotonic() - began > 9
    db.moves()
    faults.thaw(db.host)
    failover.wait_until_over(db.node)
    wrote_nothing()
    db.lost_nothing()
    leaves_nothing(db)


def test_a_reboot_after_the_failover_is_clean(place, failover):
    db = place()
    db.host.power_off()
    db.moves()
    db.host.boot()
    failover.wait_until_over(db.node)
    db.lost_nothing()


def test_a_reboot_in_order_moves_the_pod_without_a_drain(place, failover):
    """The node's streams are closed, and its processes end, before its kernel does."""
    db = place()
    db.host.shut_down()
    db.moves()
    failover.wait_until_fenced(db.node)
    db.host.boot()
    failover.wait_until_over(db.node)
    db.lost_nothing()


@pytest.mark.timeout(900)
def test_all_nodes_lose_their_power_and_come_back(place, failover):
    """With the controllers, which can fence nobody then."""
    writers = [place(f"db-{node}", node=node) for node in failover.cluster.nodes]
    for each in writers:
        each.host.power_off()
    for each in writers:
        each.host.boot()
    for each in writers:
        each.writer.goes_on(seconds=3 * OVER_SECONDS)
    failover.wait_until_plugins_are_ready()
    for each in writers:
        failover.wait_until_over(each.node)
        each.writer.verify(each.writer.pod)
        each.writer.goes_on()  # it ends at the first error, and at bad data


def test_the_pod_can_come_back_after_its_nodes_return(place, failover, workloads):
    """The volume is attached again to a node that was fenced."""
    db = place()
    db.host.power_off()
    there = db.moves()
    db.host.boot()
    failover.wait_until_over(db.node)
    failover.wait_until_plugins_are_ready()
    with workloads.new_pods_go_to(db.node):
        workloads.delete("pod", db.writer.pod)
        pod = workloads.wait_for_pod(db.writer.pod, seconds=OVER_SECONDS)
    assert pod["spec"]["nodeName"] == db.node != there
    db.writer.goes_on()
    db.lost_nothing()


def test_a_freeze_below_the_threshold_is_nothing(place, failover):
    db = place()
    uid = db.uid()
    faults.freeze(db.host)
    time.sleep(1.5)
    faults.thaw(db.host)
    failover.stays_quiet(8, lambda: db.stays(uid))
    db.writer.goes_on()
    db.lost_nothing()


def test_a_pod_that_crash_loops_after_a_short_outage_is_kicked(place, failover, workloads):
    """Its kubelet would delay it for up to five minutes. A new pod starts at once."""
    db = place()
    uid = db.uid()
    faults.freeze(db.host)
    time.sleep(5)  # an outage too short for a fence, since the kernel answers
    faults.thaw(db.host)
    db.writer.goes_on()

    def kicked():
        workloads.kubectl.attempt(
            "exec", *workloads.here, db.writer.pod, "--", "sh", "-c", "kill $(pidof block_checker)"
        )
        pod = db.pod()
        return pod is None or pod["metadata"]["uid"] != uid

    wait_until(kicked, 60, lambda: f"the pod is another\n{db.writer.why()}", pause=0.5)
    wait_for_event(workloads, db.writer.pod, "Kicked", "crash-looped after an outage of its node")
    db.writer.goes_on()
    assert not failover.fences()
    db.lost_nothing()


def leaves_nothing(db):
    """On the node that was fenced: no mount of the volume's, and no device."""
    left = db.host.enter(
        "sh", "-c", f"grep -c {deploy.DRIVER} /proc/mounts", capture_output=True, text=True, timeout=20
    )
    assert left.stdout.strip() == "0", db.host.enter(
        "cat", "/proc/mounts", capture_output=True, text=True, timeout=20
    ).stdout
