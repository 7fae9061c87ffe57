"""The VolumeLocks, by which kubectl shows which node has a volume."""

from harness.cleanup import wait_until


def lock_of(workloads, claim="data"):
    """The lock of the claim's volume; None when there is none."""
    volume = workloads.kubectl.get("pv", workloads.wait_for_bound(claim))
    return workloads.kubectl.find("volumelock", volume["spec"]["csi"]["volumeHandle"])


def is_described(status):
    """The node has said where it has the volume: staged, and published to one pod."""
    (holder,) = status["holders"]
    return (
        holder["device"].startswith("/dev/loop")
        and status["device"] == holder["device"]
        and [path["state"] for path in holder["paths"]] == ["connected"]
        and sorted(mount.rpartition("/")[2] for mount in holder["mounts"]) == ["globalmount", "mount"]
    )


def test_a_volume_has_a_lock_while_a_node_has_it(workloads):
    pod = workloads.pod_with_claim("holder")
    where, who = pod["spec"]["nodeName"], f"{workloads.namespace}/holder"

    def shown():
        status = (lock_of(workloads) or {}).get("status", {})
        return status.get("node") == where and status.get("pod") == who and is_described(status)

    wait_until(shown, 30, lambda: f"the lock names {who} on {where}: {lock_of(workloads)}", pause=0.2)
    lock = lock_of(workloads)
    assert (
        lock["status"]["access"] == "exclusive" and lock["status"]["claim"] == f"{workloads.namespace}/data"
    )
    heading, *lines = workloads.kubectl("get", "volumelocks").strip().split("\n")
    assert heading.split() == ["NAME", "VOLUME", "NODE", "POD", "ACCESS", "SINCE", "AGE"]
    assert any(where in line.split() and who in line.split() for line in lines), lines

    name = lock["metadata"]["name"]
    workloads.kubectl(
        "patch", "volumelock", name, "--type=merge", """--patch={"status": {"node": "nowhere"}}"""
    )
    wait_until(shown, 30, "the edit is repaired", pause=0.2)
    workloads.kubectl("delete", "volumelock", name)
    wait_until(shown, 30, "the deleted lock is there again", pause=0.2)
    assert lock_of(workloads)["status"] == lock["status"]

    workloads.delete("pod", "holder")
    wait_until(
        lambda: lock_of(workloads) is None,
        60,
        lambda: f"the lock goes with the grant: {lock_of(workloads)}",
        pause=0.2,
    )
