"""The main job: a StatefulSet keeps its data wherever its pod runs."""

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
