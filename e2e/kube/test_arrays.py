"""Several arrays: volumes are placed where nodes reach them, and an unreachable array says why."""

import pytest

from cluster import deploy, storage
from cluster.authority import Authority
from cluster.faults import find_processes, stopped
from harness.cleanup import wait_until
from harness.processes import descendants, state_of
from kube.workloads import wait_for_event, wait_for_group_error
from kube.writer import Writer

HOME, FAR = "node-1", "node-3"  # where the second array is, and the node that reaches it
SECOND, DARK, WRONG = "rack2", "dark", "wrong"
POOL = "/srv/lunkeeper"
AGENT = f"daemonset/lunkeeper-array-{SECOND}"


@pytest.fixture(scope="module")
def arrays(cluster):
    """Adds a second array that only one node reaches, one that is off, and one with a wrong CA."""
    cluster.nodes[HOME].enter("mkdir", "-p", POOL, check=True)
    make_stranger(cluster)
    install_all(cluster)
    yield
    wait_until(
        lambda: not volumes_there(cluster),
        60,
        lambda: f"no volume is left of {volumes_there(cluster)}",
        pause=0.2,
    )
    remove_all(cluster)


def make_stranger(cluster):
    """A Secret with a certificate of another authority."""
    stranger = Authority(cluster.folder / "stranger")
    certificate, key = stranger.issue(
        "controller", f"DNS:controller.{storage.CLUSTER_ID}.cluster.lunkeeper.io"
    )
    cluster.kubectl(
        "create",
        "secret",
        "generic",
        "stranger",
        f"--namespace={deploy.NAMESPACE}",
        f"--from-file=tls.crt={certificate}",
        f"--from-file=tls.key={key}",
        f"--from-file=ca.crt={cluster.storage.pki}/ca.crt",
    )


def install_all(cluster):
    """Two groups of nodes: only those of row `far` reach the second array."""
    (first,) = deploy.values(cluster)["arrays"]
    elsewhere = {**first, "tlsSecret": "stranger", "serverName": storage.NAME}
    for name in cluster.nodes:
        cluster.kubectl("label", "node", name, f"row={'far' if name == FAR else 'near'}")
    deploy.install(
        cluster,
        arrays=[
            {**first, "default": True},
            {**first, "name": DARK, "address": f"{cluster.storage.address}:7482"},
            {**elsewhere, "name": WRONG},
        ],
        localArray={"name": SECOND, "node": HOME, "path": POOL},
        node={
            "groups": [
                {"name": "near", "nodeSelector": {"row": "near"}, "arrays": [storage.ARRAY, DARK, WRONG]},
                {"name": "far", "nodeSelector": {"row": "far"}, "arrays": [storage.ARRAY, SECOND]},
            ]
        },
    )


def remove_all(cluster):
    """The cluster as it was before. An upgrade that lacks a local array which runs is refused."""
    cluster.kubectl("delete", AGENT, f"--namespace={deploy.NAMESPACE}", "--ignore-not-found")
    deploy.install(cluster)
    for name in cluster.nodes:
        cluster.kubectl(
            "label",
            "node",
            name,
            "row-",
            f"array.lunkeeper.io/{SECOND}-",
            f"array.lunkeeper.io/{DARK}-",
            f"array.lunkeeper.io/{WRONG}-",
        )
    secrets = ("stranger", f"lunkeeper-array-{SECOND}-tls", "lunkeeper-controller-tls")
    cluster.kubectl("delete", "secret", *secrets, f"--namespace={deploy.NAMESPACE}")


def volumes_there(cluster):
    """The volumes on the second array. They must go before it leaves the configuration."""
    return [
        volume["metadata"]["name"]
        for volume in cluster.kubectl.items("pv")
        if volume["spec"]["csi"]["volumeHandle"].startswith(f"{SECOND}-v")
    ]


def reachable_class(workloads, **differences):
    """A class of volumes on the second array, for pods where it can be reached."""
    return workloads.storage_class(
        parameters={"array": SECOND},
        allowedTopologies=[
            {"matchLabelExpressions": [{"key": f"array.lunkeeper.io/{SECOND}", "values": ["reachable"]}]}
        ],
        **differences,
    )


@pytest.mark.parametrize("binding", ["Immediate", "WaitForFirstConsumer"])
def test_a_pod_runs_where_its_volume_can_be_reached(arrays, workloads, binding):
    """The claim, the class and the pod name no place."""
    workloads.claim("data", storage_class=reachable_class(workloads, volumeBindingMode=binding))
    workloads.pod("reader", "data")
    assert workloads.wait_for_pod("reader")["spec"]["nodeName"] == FAR
    (volume,) = workloads.volumes()
    assert workloads.kubectl.get("pv", volume)["spec"]["csi"]["volumeHandle"].startswith(f"{SECOND}-v")
    workloads.shell("reader", "echo hello > /data/file && sync")


def test_io_waits_while_an_agents_pod_is_replaced(arrays, workloads):
    """With its tgtd."""
    workloads.claim("data", size="64Mi", volumeMode="Block", storage_class=reachable_class(workloads))
    writer = Writer(workloads, "writer", "data", block=True).goes_on()
    workloads.kubectl("rollout", "restart", AGENT, f"--namespace={deploy.NAMESPACE}")
    workloads.kubectl(
        "rollout", "status", AGENT, f"--namespace={deploy.NAMESPACE}", "--timeout=120s", seconds=130
    )
    writer.goes_on()
    writer.verify("writer")
    writer.stop()


def test_a_volume_without_a_named_array_is_on_the_default_one_and_goes_anywhere(arrays, workloads):
    workloads.claim("data")
    for node in workloads.cluster.nodes:
        workloads.pod("reader", "data", nodeName=node)
        workloads.wait_for_pod("reader")
        workloads.delete("pod", "reader")


@pytest.mark.parametrize(
    "array,words",
    [
        (DARK, ["array dark at ", "cannot be reached", "Connection refused"]),
        (
            WRONG,
            ["array wrong at ", "cannot be reached", "each side's certificate is signed by the other's CA"],
        ),
    ],
    ids=["unreachable", "wrong secret"],
)
def test_an_array_that_does_not_answer_is_named_with_the_reason(arrays, workloads, array, words):
    workloads.claim("data", storage_class=workloads.storage_class(parameters={"array": array}))
    wait_for_event(workloads, "data", "ProvisioningFailed", *words)


def test_a_group_of_snapshots_across_two_arrays_is_refused_with_the_reason(arrays, workloads):
    label = {"app": "shop"}
    for claim, chosen in {"here": "lunkeeper", "there": reachable_class(workloads)}.items():
        workloads.claim(claim, labels=label, storage_class=chosen)
        workloads.wait_for_bound(claim)
    workloads.ask_for_group("moment", label)
    wait_for_group_error(
        workloads, "moment", f"on array {storage.ARRAY}", SECOND, "make a group for each array"
    )
    workloads.delete("volumegroupsnapshot", "moment")


def in_controller(workloads, *words, seconds=120):
    """The outcome of a command in a controller's pod."""
    return workloads.kubectl.attempt(
        "exec",
        "deployment/lunkeeper-controller",
        f"--namespace={deploy.NAMESPACE}",
        "--container=lunkeeper",
        "--",
        "lunkeeper",
        *words,
        seconds=seconds,
    )


def mounts_of(workloads, volume):
    """Where a host has a PersistentVolume mounted."""
    host = workloads.cluster.nodes[FAR]
    return [line for line in open(f"/proc/{host.pid()}/mountinfo") if volume in line]


def processes_of_the_array(cluster):
    home = cluster.nodes[HOME]
    return find_processes(home, "tgtd") + find_processes(home, "lunkeeper", "array")


def test_an_array_that_hangs_is_removed_by_force_and_nothing_is_left_of_it(arrays, workloads):
    """A pod of another array on the same node goes on. Added back, the array serves again."""
    cluster = workloads.cluster
    there = reachable_class(workloads)
    workloads.claim("data", size="64Mi", storage_class=there)
    workloads.claim("other", size="64Mi", volumeMode="Block")
    other = Writer(workloads, "writer", "other", block=True, nodeName=FAR).goes_on()
    workloads.pod("reader", "data")
    assert workloads.wait_for_pod("reader")["spec"]["nodeName"] == FAR
    volume = workloads.wait_for_bound("data")
    handle = workloads.kubectl.get("pv", volume)["spec"]["csi"]["volumeHandle"]
    refused = in_controller(workloads, "remove-array", SECOND)
    assert refused.returncode == 1 and handle in refused.stderr
    assert f"{workloads.namespace}/reader" in refused.stderr and "--force" in refused.stderr

    write = "dd if=/dev/zero of=/data/file bs=4k count=1 conv=fsync"
    workloads.shell("reader", f"while :; do {write}; done >/dev/null 2>&1 &")
    with stopped(processes_of_the_array(cluster)):
        removed = in_controller(workloads, "remove-array", SECOND, "--force")
        assert removed.returncode == 0, removed
        wait_until(
            lambda: not workloads.kubectl.find("pod", "reader", *workloads.here), 60, "the pod is gone"
        )
        wait_until(lambda: not mounts_of(workloads, volume), 60, "nothing is mounted", pause=0.2)
        wait_until(lambda: not workloads.kubectl.find("volumelock", handle), 30, "the lock is gone")
        assert not [pid for pid in descendants(cluster.nodes[FAR].pid()) if state_of(pid) == "D"]
        workloads.delete("pvc", "data")
        wait_until(lambda: not workloads.kubectl.find("pv", volume), 60, "the volume's object is gone")
        other.goes_on()
    workloads.claim("late", size="64Mi", storage_class=there)
    wait_for_event(workloads, "late", "ProvisioningFailed", SECOND)
    added = in_controller(workloads, "add-array", SECOND)
    assert added.returncode == 0, added
    workloads.pod("late", "late")
    workloads.wait_for_pod("late", seconds=90)
    other.goes_on()
    other.verify("writer")
    other.stop()
