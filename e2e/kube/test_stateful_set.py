"""The main job: a StatefulSet keeps its data on every node."""

from harness.cleanup import wait_until

WRITE = "dd if=/dev/urandom of=/data/file bs=1M count=64 2>/dev/null && sync && sha256sum /data/file"


def test_data_follow_the_pod_to_another_node(workloads):
    workloads.stateful_set("db")
    first = workloads.wait_for_pod("db-0")
    written = workloads.shell("db-0", WRITE)

    workloads.kubectl("cordon", first["spec"]["nodeName"])
    try:
        workloads.delete("pod", "db-0")
        second = workloads.wait_for_pod("db-0")
    finally:
        workloads.kubectl("uncordon", first["spec"]["nodeName"])

    assert second["spec"]["nodeName"] != first["spec"]["nodeName"]
    assert workloads.shell("db-0", "sha256sum /data/file") == written


def test_every_replica_has_a_volume_of_its_own(workloads):
    workloads.stateful_set("web", replicas=3)
    for number in range(3):
        workloads.wait_for_pod(f"web-{number}")
        workloads.shell(f"web-{number}", f"echo {number} > /data/number && sync")
    for number in range(3):
        assert workloads.shell(f"web-{number}", "cat /data/number").strip() == str(number)


def test_fifty_pods_get_their_volumes_at_once_and_give_them_back(workloads):
    workloads.stateful_set("many", replicas=50, claim={"size": "32Mi"})

    def running():
        return workloads.kubectl.get("statefulset", "many", *workloads.here)["status"].get("readyReplicas", 0)

    wait_until(
        lambda: running() == 50,
        200,
        lambda: f"50 run, not {running()}\n{workloads.kubectl('get', 'pods', *workloads.here)}",
        pause=0.5,
    )
    assert len(workloads.volumes()) == 50
    workloads.delete("statefulset", "many")
    workloads.kubectl("delete", "pvc", "--all", *workloads.here, seconds=120)
    wait_until(
        lambda: not workloads.volumes(), 120, lambda: f"no volume is left of {workloads.volumes()}", pause=0.5
    )
