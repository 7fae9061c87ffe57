"""An array on a node of the cluster. Lunkeeper is installed from nothing, and from what a release has: by the
documents' two commands, and by `kubectl apply` of what the chart renders.
"""

import os
import shutil
import time

import pytest

from cluster import deploy
from cluster import release as releases
from cluster.cluster import BUSYBOX_IMAGE, LUNKEEPER_IMAGE
from harness import docs
from harness.cleanup import wait_until
from kube import documented
from kube.failover.watching import Failover
from kube.writer import Writer

pytestmark = pytest.mark.first

HERE = f"--namespace={deploy.NAMESPACE}"
HOME, POOL, ARRAY = "node-1", "/srv/lunkeeper", "local"  # of the documents' commands
INSTALL_SECONDS = 60  # from `helm install`, or `kubectl apply`, to a written volume
ROTATIONS = int(os.environ.get("ROTATIONS", "1"))
VALUES = {"localArray": {"node": HOME, "path": POOL}}


@pytest.fixture(scope="module")
def other_tests(cluster):
    """Uninstalls the Lunkeeper of the other tests, and installs it again at the end."""
    deploy.remove(cluster)
    yield
    deploy.prepare(cluster)
    deploy.install(cluster)


@pytest.fixture(scope="module")
def release(cluster, other_tests, tmp_path_factory):
    """A release's chart. Each node has its image, imported as docs/install.md says, in place of ours."""
    made = releases.make(tmp_path_factory.mktemp("release") / "release")
    for node in cluster.nodes.values():
        ctr = ("ctr", "--namespace", "k8s.io", "images")
        node.enter(*ctr, "remove", "--sync", LUNKEEPER_IMAGE, check=True)
        node.enter(*ctr, "import", made / releases.IMAGE, check=True)
    return made / releases.CHART


@pytest.fixture
def bare(cluster, release):
    """A cluster without Lunkeeper, where one node has an empty directory for a pool."""
    home = cluster.nodes[HOME]
    home.enter("mkdir", "-p", POOL, check=True)
    yield
    wait_until(lambda: not volumes(cluster), 60, lambda: f"no volume is left: {volumes(cluster)}", pause=0.2)
    objects = deploy.rendered(cluster, VALUES, release)
    cluster.kubectl("delete", "--ignore-not-found", "--wait", "-f", "-", given=objects, seconds=120)
    cluster.kubectl("wait", "--for=delete", "pod", "--all", HERE, "--timeout=2m", seconds=150)
    cluster.kubectl("delete", "namespace", deploy.NAMESPACE, "--ignore-not-found", seconds=120)
    cluster.kubectl("label", "nodes", "--all", f"array.lunkeeper.io/{ARRAY}-")
    home.enter("rm", "-rf", POOL, check=True)
    home.enter("sh", "-c", f"rm -f /var/lib/lunkeeper/*{ARRAY}*", check=True)


def volumes(cluster):
    return [volume["metadata"]["name"] for volume in cluster.kubectl.items("pv")]


def test_two_commands_lead_from_nothing_to_a_written_volume(bare, release, cluster, tmp_path):
    """As the documents say, with no other step."""
    shutil.unpack_archive(release, tmp_path / "charts")
    objects = docs.example("yaml", "# claim.yaml").replace("busybox:1.37", BUSYBOX_IMAGE)
    (tmp_path / "claim.yaml").write_text(objects)
    started = time.monotonic()
    said = documented.run(cluster, "local-array", tmp_path)
    try:
        cluster.kubectl.wait_for_pod("first", seconds=150)
        written = ("sh", "-c", "until [ -s /data/file ]; do sleep 0.1; done; cat /data/file")
        assert cluster.kubectl.run_in("first", *written).strip() == "written"
        took = time.monotonic() - started
        print(f"written {took:.1f} s after helm install")
        assert took < INSTALL_SECONDS
        assert f"The array local is in {POOL} on {HOME}" in said
        assert "label namespace lunkeeper pod-security.kubernetes.io/enforce=privileged" in said
        (volume,) = cluster.kubectl.items("pv")
        assert volume["spec"]["csi"]["volumeHandle"].startswith(f"{ARRAY}-v")
        an_upgrade_that_forgets_the_array_is_refused(cluster)
    finally:
        cluster.kubectl("delete", "--filename", tmp_path / "claim.yaml", seconds=120)
    documented.run(cluster, "uninstall", tmp_path)
    everything = cluster.kubectl("api-resources", "--verbs=list", "--output=name").split()
    there = cluster.kubectl("get", ",".join(everything), "--all-namespaces", "--output=name", seconds=120)
    # Events are Kubernetes' own record, which it forgets after an hour.
    ours = [name for name in there.split() if "lunkeeper" in name and not name.startswith("event")]
    assert not ours, "the documents' commands leave nothing"


def an_upgrade_that_forgets_the_array_is_refused(cluster):
    """As when a storage host is added, and the values of the installation are not given again."""
    more = {"arrays": [{"name": "rack3", "address": "10.0.0.7:7480"}]}
    with pytest.raises(RuntimeError, match=f"the local array {ARRAY} runs, and the values lack it"):
        deploy.helm(cluster, "upgrade", deploy.RELEASE, deploy.CHART, "--values=-", given=more)
    assert cluster.kubectl.find("daemonset", f"lunkeeper-array-{ARRAY}", HERE)


def first_writer(workloads):
    """Of an installation that has just begun."""
    workloads.claim("data", size="64Mi", volumeMode="Block")
    workloads.wait_for_bound("data", seconds=120)
    return Writer(workloads, "writer", "data", block=True).goes_on()


def test_what_is_rendered_installs_it_too_and_applied_again_restarts_nothing(
    bare, release, cluster, workloads
):
    """By kubectl alone, as Argo CD does; twice more while a pod writes."""
    started = time.monotonic()
    cluster.kubectl("create", "namespace", deploy.NAMESPACE)
    apply(cluster, release)
    writer = first_writer(workloads)
    took = time.monotonic() - started
    print(f"written {took:.1f} s after kubectl apply")
    assert took < INSTALL_SECONDS
    before = what_runs(cluster)
    assert {"lunkeeper-array-local", "lunkeeper-controller", "lunkeeper-node"} <= before["specs"].keys()
    for _ in range(2):
        apply(cluster, release)
        writer.goes_on()
    assert what_runs(cluster) == before
    writer.verify("writer")
    writer.stop()
    workloads.delete("pod", "writer")
    workloads.delete("pvc", "data")


def test_all_certificates_are_replaced_while_a_pod_writes(bare, release, cluster, workloads, tmp_path):
    """As after a leak of the CA's key: agent, controllers and nodes go on with what the Job makes anew."""
    cluster.kubectl("create", "namespace", deploy.NAMESPACE)
    apply(cluster, release)
    writer = first_writer(workloads)
    before = what_runs(cluster)
    for _ in range(ROTATIONS):
        documented.run(cluster, "renew", tmp_path)
        writer.goes_on()
    after = what_runs(cluster)["secrets"]
    assert after.keys() == before["secrets"].keys() and len(after) == 5
    assert not [name for name, data in after.items() if data["ca.crt"] == before["secrets"][name]["ca.crt"]]
    agent = f"--selector=lunkeeper.io/array={ARRAY}"
    cluster.kubectl("delete", "pods", HERE, agent)  # so that controllers connect again
    workloads.claim("another")
    workloads.pod("another", "another")
    workloads.wait_for_pod("another", seconds=240)
    writer.goes_on()
    running, was = what_runs(cluster)["pods"], before["pods"]
    assert len([pod for pod in was if running.get(pod) != was[pod]]) == 1, "only the agent's pod was replaced"
    writer.verify("writer")
    writer.stop()
    for kind, name in (("pod", "writer"), ("pod", "another"), ("pvc", "data"), ("pvc", "another")):
        workloads.delete(kind, name)


def test_io_waits_while_the_arrays_node_is_off(bare, release, cluster, workloads):
    """Nobody is fenced for it: an array that hears no node is away itself."""
    cluster.kubectl("create", "namespace", deploy.NAMESPACE)
    apply(cluster, release)
    failover, home = Failover(cluster), cluster.nodes[HOME]
    with workloads.new_pods_go_to("node-2"):
        writer = first_writer(workloads)
    home.power_off()
    try:
        failover.stays_quiet(20)
    finally:
        home.boot()
    writer.goes_on(seconds=150)
    failover.wait_until_plugins_are_ready()
    assert not failover.fences()
    writer.verify("writer")
    writer.stop()
    workloads.delete("pod", "writer")
    workloads.delete("pvc", "data")


def apply(cluster, chart):
    cluster.kubectl("apply", "-f", "-", given=deploy.rendered(cluster, VALUES, chart))


def what_runs(cluster):
    """Pods and how often their containers began, what their owners want, and all keys and certificates."""
    owners = cluster.kubectl.items("deployments,daemonsets,jobs,cronjobs", HERE)
    pods = cluster.kubectl.items("pods", HERE)
    return {
        "specs": {thing["metadata"]["name"]: thing["metadata"]["generation"] for thing in owners},
        "pods": {
            pod["metadata"]["uid"]: [each["restartCount"] for each in pod["status"]["containerStatuses"]]
            for pod in pods
        },
        "secrets": {
            thing["metadata"]["name"]: thing["data"] for thing in cluster.kubectl.items("secrets", HERE)
        },
    }
