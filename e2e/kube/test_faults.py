"""Each process is killed once under a checking writer: no acknowledged write is lost, and new volumes soon
work.
"""

import os
import time

import pytest

from cluster import deploy
from cluster.faults import find_processes, kill_all, kill_service, stop_service
from harness.cleanup import wait_until
from harness.processes import alive
from kube.writer import Writer

CONVERGES_SECONDS = 60
STALLS = int(os.environ.get("API_STALLS", "3"))
STALL_SECONDS = 8  # less than a sidecar tries to renew its lease


@pytest.fixture
def writer(workloads):
    workloads.claim("data", size="64Mi", volumeMode="Block")
    return Writer(workloads, "writer", "data", block=True)


@pytest.fixture
def node(workloads, writer):
    """The host where the writer runs."""
    writer.goes_on()
    return workloads.cluster.nodes[workloads.wait_for_pod("writer")["spec"]["nodeName"]]


def all_is_well(workloads, writer):
    """Soon after the fault the writer continues, and new volumes work."""
    until = time.monotonic() + CONVERGES_SECONDS
    writer.goes_on(seconds=CONVERGES_SECONDS)
    workloads.claim("another", size="64Mi")
    workloads.pod("another", "another")
    workloads.wait_for_pod("another", seconds=until - time.monotonic())
    writer.verify(writer.pod)
    writer.stop()


@pytest.mark.parametrize("service", ["kubelet", "containerd"])
def test_a_node_service_is_killed(workloads, writer, node, service):
    kill_service(node, service)
    all_is_well(workloads, writer)


@pytest.mark.parametrize("service", ["kube-apiserver", "etcd", "kube-controller-manager"])
def test_a_part_of_the_control_plane_is_killed(workloads, writer, node, service):
    kill_service(workloads.cluster.control, service)
    wait_until(
        lambda: workloads.kubectl.attempt("get", "--raw", "/readyz").returncode == 0,
        60,
        "the API server answers",
    )
    all_is_well(workloads, writer)


def test_no_sidecar_ends_while_the_api_server_stalls(workloads, writer, node):
    """Users of other drivers have seen hundreds of restarts of sidecars with shorter leases."""
    before = lives_of_controllers(workloads.cluster)
    for _ in range(STALLS):
        go_on = stop_service(workloads.cluster.control, "kube-apiserver")
        time.sleep(STALL_SECONDS)  # the fault
        go_on()
        writer.goes_on()
    all_is_well(workloads, writer)
    assert lives_of_controllers(workloads.cluster) == before


def lives_of_controllers(cluster):
    """{(pod, container): how often it began}."""
    return {
        (pod["metadata"]["name"], each["name"]): each["restartCount"]
        for pod in deploy.pods(cluster, "controller")
        for each in pod["status"]["containerStatuses"]
    }


def test_the_node_plugin_is_killed(workloads, writer, node):
    kill_all(find_processes(node, "lunkeeper", "serve", "--mode=node"))
    all_is_well(workloads, writer)


def test_the_data_paths_worker_is_killed(workloads, writer, node):
    kill_all(find_processes(node, "lunkeeper", "datapath", "--worker-socket"))
    all_is_well(workloads, writer)


def test_the_array_agent_is_killed(workloads, writer, node):
    kill_all(find_processes(workloads.cluster.storage, "lunkeeper", "array"))
    all_is_well(workloads, writer)


def test_tgtd_is_killed(workloads, writer, node):
    kill_all(find_processes(workloads.cluster.storage, "tgtd"))
    all_is_well(workloads, writer)


@pytest.mark.parametrize("program", ["csi-provisioner", "csi-resizer", "csi-snapshotter"])
def test_a_sidecar_is_killed_in_every_replica(workloads, writer, node, program):
    kill_all([pid for host in workloads.cluster.nodes.values() for pid in find_processes(host, program)])
    all_is_well(workloads, writer)


@pytest.mark.parametrize(
    "lease", ["csi-lunkeeper-io", "lunkeeper-failover"], ids=["of volumes", "of failover"]
)
def test_the_leading_controller_is_killed(workloads, writer, node, lease):
    leader = workloads.kubectl.get("lease", lease, f"--namespace={deploy.NAMESPACE}")["spec"][
        "holderIdentity"
    ]
    pod = next(
        pod for pod in deploy.pods(workloads.cluster, "controller") if pod["metadata"]["name"] in leader
    )
    host = workloads.cluster.nodes[pod["spec"]["nodeName"]]
    victims = find_processes(host, "lunkeeper", "serve", "--mode=controller")
    kill_all(victims)
    assert not any(alive(pid) for pid in victims)
    all_is_well(workloads, writer)


def delete_data_path(workloads, node):
    """Deletes its pod at once."""
    pod = next(
        pod for pod in deploy.pods(workloads.cluster, "datapath") if pod["spec"]["nodeName"] == node.name
    )
    workloads.kubectl(
        "delete",
        "pod",
        pod["metadata"]["name"],
        f"--namespace={deploy.NAMESPACE}",
        "--force",
        "--grace-period=0",
    )


def kill_data_path(workloads, node):
    """Kills the supervisor, and with it the worker: they are one container."""
    kill_all(find_processes(node, "lunkeeper", "datapath", "--replacement-timeout=120"))


@pytest.mark.parametrize("end", [delete_data_path, kill_data_path], ids=["pod deleted", "supervisor killed"])
def test_the_data_path_ends_and_only_its_own_volumes_fail(workloads, node, writer, end):
    """The node's volumes can be used again without a reboot, and no other node notices.

    On Linux 6.9 and later their I/O waits for the next data path; before, it fails.
    """
    elsewhere = next(name for name in workloads.cluster.nodes if name != node.name)
    workloads.claim("far", size="64Mi", volumeMode="Block")
    other = Writer(workloads, "other", "far", block=True, nodeName=elsewhere).goes_on()
    end(workloads, node)
    other.goes_on()
    workloads.delete("pod", "writer", "--grace-period=1")
    again = Writer(workloads, "writer", "data", block=True, nodeName=node.name)
    again.goes_on(seconds=CONVERGES_SECONDS)
    again.verify(again.pod)
    again.stop()
    other.stop()
