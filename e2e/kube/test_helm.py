"""An administrator's work with helm."""

import base64
import json
import pathlib

import pytest

from cluster import deploy
from cluster.kubectl import condition
from harness.cleanup import wait_until
from harness.places import ROOT
from kube import documented
from kube.workloads import TEST_NAMESPACE
from kube.writer import Writer

NODE = "node-1"  # of the documents' commands
# The chart of the last release; docs/development.md, "Releases".
PREVIOUS = pathlib.Path(__file__).with_name("previous.tgz")


@pytest.fixture
def administrators(cluster, tmp_path):
    """A folder with the chart and this cluster's values, named as in the documents' commands."""
    (tmp_path / "charts").symlink_to(ROOT / "charts")
    (tmp_path / "values.yaml").write_text(json.dumps(deploy.values(cluster)))
    return tmp_path


def test_helm_test_makes_a_volume_and_uses_it(cluster):
    assert "Phase:          Succeeded" in deploy.helm(cluster, "test", deploy.RELEASE)


def test_an_upgrade_and_its_rollback_are_not_noticed_by_a_writer(workloads):
    """Every controller and every node plugin is replaced, twice; the data path stays."""
    cluster = workloads.cluster
    workloads.claim("data", size="64Mi", volumeMode="Block")
    writer = Writer(workloads, "writer", "data", block=True).goes_on()
    before = plugin_pods(cluster)
    changed = {"podAnnotations": {"test": workloads.namespace}}
    deploy.install(cluster, controller=changed, node=changed)
    writer.goes_on()
    upgraded = plugin_pods(cluster)
    assert {"controller": 2, "node": 3, "datapath": 0} == replaced(before, upgraded)
    deploy.helm(cluster, "rollback", deploy.RELEASE, "--wait")
    writer.goes_on()
    assert {"controller": 2, "node": 3, "datapath": 0} == replaced(upgraded, plugin_pods(cluster))
    writer.stop()


def test_an_upgrade_from_the_last_releases_chart_is_not_noticed_by_a_writer(workloads):
    """What may not be changed of something that runs, such as a selector, shows only here."""
    cluster = workloads.cluster
    workloads.claim("data", size="64Mi", volumeMode="Block")
    writer = Writer(workloads, "writer", "data", block=True).goes_on()
    deploy.install(cluster, chart=PREVIOUS)
    writer.goes_on()
    deploy.install(cluster)
    writer.goes_on()
    writer.stop()


def test_an_uninstall_is_refused_while_a_pod_uses_a_volume(workloads):
    """Nothing is removed, and what asked is gone; after a rollback helm upgrades the release again."""
    cluster = workloads.cluster
    workloads.claim("data", size="64Mi", volumeMode="Block")
    writer = Writer(workloads, "writer", "data", block=True).goes_on()
    before, claim = plugin_pods(cluster), f"{workloads.namespace}/data"
    with pytest.raises(RuntimeError) as refused:
        deploy.helm(cluster, "uninstall", deploy.RELEASE, "--wait")
    said = f"{refused.value}{uninstall_log(cluster)}"
    for words in (claim, f"by pod {workloads.namespace}/writer", "Nothing was uninstalled", "--no-hooks"):
        assert words in said, said
    assert plugin_pods(cluster) == before
    kinds = "serviceaccounts,clusterroles,clusterrolebindings"
    left = cluster.kubectl("get", kinds, f"--namespace={deploy.NAMESPACE}", "--output=name").split()
    assert not [name for name in left if name.endswith("-uninstall")]
    revision = json.loads(deploy.helm(cluster, "history", deploy.RELEASE, "--output=json"))[-1]["revision"]
    deploy.helm(cluster, "rollback", deploy.RELEASE, revision, "--wait")
    deploy.install(cluster)
    writer.goes_on()
    assert plugin_pods(cluster) == before
    writer.verify("writer")
    writer.stop()


def uninstall_log(cluster):
    """Of the Job that asked before the last uninstall."""
    return cluster.kubectl("logs", "job/lunkeeper-uninstall", f"--namespace={deploy.NAMESPACE}")


def test_the_coordinators_certificates_are_renewed_as_the_documents_say(workloads, administrators):
    """A mounted volume is not affected; a new one needs the certificates."""
    cluster = workloads.cluster
    workloads.claim("data", size="64Mi", volumeMode="Block")
    writer = Writer(workloads, "writer", "data", block=True).goes_on()
    before, running = coordinator_authorities(cluster), plugin_pods(cluster)
    documented.run(cluster, "renew", administrators)
    after = coordinator_authorities(cluster)
    assert len(after) == 1 and not after & before
    workloads.claim("another")
    workloads.pod("another", "another")
    workloads.wait_for_pod("another", seconds=240)
    writer.goes_on()
    assert plugin_pods(cluster) == running
    writer.stop()


def test_what_is_rendered_twice_and_applied_changes_nothing(workloads):
    """Argo CD renders by itself: nothing restarts, and no certificate changes."""
    cluster = workloads.cluster
    workloads.claim("data", size="64Mi", volumeMode="Block")
    writer = Writer(workloads, "writer", "data", block=True).goes_on()
    before = coordinator_authorities(cluster), plugin_pods(cluster)
    for _ in range(2):
        apply_rendered(cluster)
    writer.goes_on()
    assert (coordinator_authorities(cluster), plugin_pods(cluster)) == before
    writer.stop()


def apply_rendered(cluster):
    """Applies what `helm template` prints."""
    things = deploy.rendered(cluster, deploy.values(cluster))
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", given=things)


def coordinator_authorities(cluster):
    """The authorities in the controllers' Secret and the nodes' ConfigMap, which must be the same."""
    here = f"--namespace={deploy.NAMESPACE}"
    secret = cluster.kubectl.get("secret", "lunkeeper-coordinator-tls", here)["data"]["ca.crt"]
    return {
        base64.b64decode(secret).decode(),
        cluster.kubectl.get("configmap", "lunkeeper-coordinator-ca", here)["data"]["ca.crt"],
    }


def test_a_data_path_is_replaced_as_the_documents_say(workloads, tmp_path):
    cluster = workloads.cluster
    with workloads.new_pods_go_to(NODE):
        writer = Writer(workloads, "db", None, owner="StatefulSet").goes_on()
    wait_until(
        lambda: not strangers(workloads),
        90,
        lambda: f"earlier tests' pods have gone: {strangers(workloads)}",
        pause=0.5,
    )
    before = data_path(cluster)["metadata"]["uid"]
    documented.run(cluster, "datapath-upgrade", tmp_path)

    def replaced_and_ready():
        pod = data_path(cluster)
        return pod and pod["metadata"]["uid"] != before and condition(pod, "Ready")

    wait_until(replaced_and_ready, 60, "another data path is there", pause=0.2)
    assert workloads.wait_for_pod("db-0")["spec"]["nodeName"] != NODE
    writer.goes_on()
    with workloads.new_pods_go_to(NODE):
        workloads.delete("pod", "db-0")
        workloads.wait_for_pod("db-0")
    writer.goes_on()
    writer.verify("db-0")
    writer.stop()


def strangers(workloads):
    """Pods of other tests on the node. A drain refuses to delete pods without a controller."""
    pods = workloads.kubectl.items("pods", "--all-namespaces", f"--field-selector=spec.nodeName={NODE}")
    return [
        pod["metadata"]["name"]
        for pod in pods
        if pod["metadata"]["namespace"].startswith(TEST_NAMESPACE)
        and pod["metadata"]["namespace"] != workloads.namespace
    ]


def data_path(cluster):
    """The data path's pod on the node; None while there is none."""
    return next(
        (
            pod
            for pod in deploy.pods(cluster, "datapath")
            if pod["spec"].get("nodeName") == NODE and "deletionTimestamp" not in pod["metadata"]
        ),
        None,
    )


def plugin_pods(cluster):
    """{component: the UIDs of its pods that are not being deleted}."""
    found = {"controller": set(), "node": set(), "datapath": set()}
    for pod in cluster.kubectl.items(
        "pods", f"--namespace={deploy.NAMESPACE}", "--selector=app.kubernetes.io/component"
    ):
        component = pod["metadata"]["labels"]["app.kubernetes.io/component"]
        if component in found and "deletionTimestamp" not in pod["metadata"]:
            found[component].add(pod["metadata"]["uid"])
    return found


def replaced(before, after):
    return {component: len(after[component] - before[component]) for component in before}
