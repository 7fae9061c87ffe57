"""Pods whose objects outlive them, end by themselves, or depend on each other."""

import json

import pytest

from harness.cleanup import wait_until
from kube.failover.watching import MOVES_SECONDS, OVER_SECONDS, Placed
from kube.workloads import block_container
from kube.writer import Writer

NODE = "node-2"  # it fails
FINALIZER = "example.com/kept-by-a-test"
JOB_SECONDS = 20  # of each of its pods


@pytest.fixture
def bystander(place):
    """A pod that moves in any case, so that its node is fenced."""
    return place("bystander", node=NODE)


def test_a_pod_with_a_finalizer_is_deleted_once_and_its_node_is_given_back(
    bystander, place, failover, workloads
):
    """Only its replacement waits until the finalizer is removed."""
    db = place(node=NODE)
    uid = db.uid()
    set_finalizers(workloads, db, [FINALIZER])
    bystander.host.power_off()
    bystander.moves()
    wait_until(lambda: "deletionTimestamp" in db.pod()["metadata"], MOVES_SECONDS, "it is deleted")
    bystander.host.boot()
    failover.wait_until_over(NODE)
    assert db.uid() == uid, "its object is still there"
    told = workloads.kubectl.items(
        "events", *workloads.here, f"--field-selector=involvedObject.name={db.writer.pod},reason=FailedOver"
    )
    assert len(told) == 1 and not told[0].get("series"), told
    set_finalizers(workloads, db, [])
    for each in (db, bystander):
        each.writer.goes_on(seconds=OVER_SECONDS)
        each.lost_nothing()


def set_finalizers(workloads, placed, finalizers):
    patch = json.dumps({"metadata": {"finalizers": finalizers}})
    workloads.kubectl("patch", "pod", placed.writer.pod, *workloads.here, "--type=merge", f"--patch={patch}")


@pytest.mark.parametrize("policy", ["TerminatingOrFailed", pytest.param("Failed", marks=pytest.mark.brief)])
def test_a_jobs_pod_moves_and_the_job_completes(bystander, failover, workloads, policy):
    """The Job makes another pod, although one with a finalizer of its own is kept for its count."""
    workloads.claim("data", size="64Mi", volumeMode="Block")
    record = workloads.cluster.folder / "records" / f"{workloads.namespace}-after"
    with workloads.new_pods_go_to(NODE):
        workloads.apply(writing_job(record, policy))
        wait_until(lambda: written(record) > 200, 90, "the Job's pod writes", pause=0.2)
    (pod,) = pods_of_job(workloads)
    bystander.host.power_off()
    bystander.moves()
    before = written(record)
    wait_until(
        lambda: any(each["spec"].get("nodeName") not in (None, NODE) for each in pods_of_job(workloads)),
        MOVES_SECONDS,
        lambda: f"another pod of the Job runs elsewhere than {pod['metadata']['name']}\n{failover.tell()}",
        pause=0.2,
    )
    workloads.kubectl(
        "wait", "--for=condition=Complete", "job/work", *workloads.here, "--timeout=120s", seconds=130
    )
    assert written(record) > before
    after = Writer(workloads, "after", "data", block=True).goes_on()
    after.verify("after")
    after.stop()
    bystander.lost_nothing()


def written(record):
    return Writer.count(record.read_bytes()) if record.exists() else 0


def pods_of_job(workloads):
    return workloads.kubectl.items("pods", *workloads.here, "--selector=job-name=work")


def writing_job(record, policy):
    """It writes to its claim for some seconds, and checks what it wrote. `policy`: when a pod is replaced."""
    container = block_container()
    container["volumeMounts"] = [{"name": "records", "mountPath": "/records"}]
    container["command"] = [
        *("block_checker", "write", "--device=/dev/data", f"--record=/records/{record.name}"),
        *(f"--threads={Writer.THREADS}", f"--blocks={Writer.BLOCKS}", f"--seconds={JOB_SECONDS}"),
    ]
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "records", "hostPath": {"path": str(record.parent)}},
    ]
    spec = {"restartPolicy": "Never", "containers": [container], "volumes": volumes}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "work"},
        "spec": {"podReplacementPolicy": policy, "template": {"spec": spec}},
    }


@pytest.mark.timeout(600)
def test_two_pods_that_share_a_volume_of_one_node_move_together(bystander, failover, workloads):
    """ReadWriteOnce: any number of pods, all on one node. Their own affinity keeps them together."""
    workloads.claim("shared")
    names = ["one", "two"]
    term = {
        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": names}]},
        "topologyKey": "kubernetes.io/hostname",
    }
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    with workloads.new_pods_go_to(NODE):
        writers = [
            Writer(
                workloads, name, "shared", owner="StatefulSet", file=f"/data/{name}", affinity=affinity
            ).goes_on(seconds=90)
            for name in names
        ]
    sharers = [Placed(failover, workloads, writer) for writer in writers]
    bystander.host.power_off()
    there = {each.moves(seconds=2 * MOVES_SECONDS) for each in sharers}
    assert len(there) == 1
    for each in (*sharers, bystander):
        each.writer.goes_on(seconds=OVER_SECONDS)
        each.lost_nothing()
