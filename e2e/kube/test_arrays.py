"""Several arrays: volumes are placed where they can be reached, and one that cannot be reached says why."""

import os
import subprocess

import pytest

from cluster import deploy, storage
from cluster.authority import Authority
from harness.cleanup import wait_until
from harness.processes import MARK, kill_pid, marked_with
from kube.workloads import wait_for_event

FAR = "node-3"  # the node that reaches the second array
SECOND, DARK, WRONG = "rack2", "dark", "wrong"
CONTROL_PORT = 7  # of the second array's tgtd


@pytest.fixture(scope="module")
def arrays(cluster):
    """The cluster with a second array that one node alone reaches, one that is off, and one that another CA is asked for."""
    host = cluster.storage
    start_second(cluster)
    stranger = Authority(cluster.folder / "stranger")
    certificate, key = stranger.issue("controller", f"DNS:controller.{storage.CLUSTER_ID}.cluster.lunkeeper.io")
    cluster.kubectl("create", "secret", "generic", "stranger", f"--namespace={deploy.NAMESPACE}", f"--from-file=tls.crt={certificate}",
                    f"--from-file=tls.key={key}", f"--from-file=ca.crt={host.pki}/ca.crt")
    first, = deploy.values(cluster)["arrays"]
    elsewhere = {**first, "tlsSecret": "stranger", "serverName": storage.NAME}
    for name in cluster.nodes:
        cluster.kubectl("label", "node", name, f"row={'far' if name == FAR else 'near'}")
    deploy.install(cluster, arrays=[
        {**first, "default": True}, {**first, "name": SECOND, "address": f"{host.address}:7481"},
        {**first, "name": DARK, "address": f"{host.address}:7482"}, {**elsewhere, "name": WRONG}],
        node={"groups": [{"name": "near", "nodeSelector": {"row": "near"}, "arrays": [storage.ARRAY, DARK, WRONG]},
                         {"name": "far", "nodeSelector": {"row": "far"}, "arrays": [storage.ARRAY, SECOND]}]})
    yield
    deploy.install(cluster)
    for name in cluster.nodes:
        cluster.kubectl("label", "node", name, "row-", f"array.lunkeeper.io/{SECOND}-", f"array.lunkeeper.io/{DARK}-",
                        f"array.lunkeeper.io/{WRONG}-")
    cluster.kubectl("delete", "secret", "stranger", f"--namespace={deploy.NAMESPACE}")
    for pid, command in marked_with(cluster.mark).items():
        if f"array --name={SECOND} " in command or f"tgtd -f -C {CONTROL_PORT} " in command:
            kill_pid(pid)


def start_second(cluster):
    """Another agent on the storage host, with a pool of its own."""
    host = cluster.storage
    host.enter("mkdir", "-p", "/srv/second", check=True)
    with open(host.folder / "second.log", "ab") as log:
        subprocess.Popen(host.entering(
            cluster.binary, "array", f"--name={SECOND}", "--pool=/srv/second", f"--portal={host.address}:3261",
            f"--listen={host.address}:7481", f"--tgt-control-port={CONTROL_PORT}", f"--tls-cert={host.pki}/agent.crt",
            f"--tls-key={host.pki}/agent.key", f"--tls-ca={host.pki}/ca.crt", "--metrics-address=127.0.0.1:9811"),
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env={**os.environ, MARK: cluster.mark})
    wait_until(lambda: host.enter("curl", "-fsS", "http://127.0.0.1:9811/readyz", capture_output=True).returncode == 0, 20,
               "the second array serves", pause=0.1)


@pytest.mark.parametrize("binding", ["Immediate", "WaitForFirstConsumer"])
def test_a_pod_runs_where_its_volume_can_be_reached(arrays, workloads, binding):
    """No word of places in the claim, the class or the pod."""
    second = workloads.storage_class(parameters={"array": SECOND}, volumeBindingMode=binding, allowedTopologies=[
        {"matchLabelExpressions": [{"key": f"array.lunkeeper.io/{SECOND}", "values": ["reachable"]}]}])
    workloads.claim("data", storage_class=second)
    workloads.pod("reader", "data")
    assert workloads.wait_for_pod("reader")["spec"]["nodeName"] == FAR
    volume, = workloads.volumes()
    assert workloads.kubectl.get("pv", volume)["spec"]["csi"]["volumeHandle"].startswith(f"{SECOND}-v")
    workloads.shell("reader", "echo hello > /data/file && sync")


def test_a_volume_without_a_named_array_is_on_the_default_one_and_goes_anywhere(arrays, workloads):
    workloads.claim("data")
    for node in workloads.cluster.nodes:
        workloads.pod("reader", "data", nodeName=node)
        workloads.wait_for_pod("reader")
        workloads.delete("pod", "reader")


@pytest.mark.parametrize("array,words", [
    (DARK, ["array dark at ", "cannot be reached", "Connection refused"]),
    (WRONG, ["array wrong at ", "cannot be reached", "each side's certificate is signed by the other's CA"]),
], ids=["unreachable", "wrong secret"])
def test_an_array_that_does_not_answer_is_named_with_the_reason(arrays, workloads, array, words):
    workloads.claim("data", storage_class=workloads.storage_class(parameters={"array": array}))
    wait_for_event(workloads, "data", "ProvisioningFailed", *words)
