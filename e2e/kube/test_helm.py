"""What an administrator does with helm."""

from cluster import deploy
from kube.writer import Writer


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


def plugin_pods(cluster):
    """{component: the UIDs of its pods that are to stay}."""
    found = {"controller": set(), "node": set(), "datapath": set()}
    for pod in cluster.kubectl.items("pods", f"--namespace={deploy.NAMESPACE}", "--selector=app.kubernetes.io/component"):
        if "deletionTimestamp" not in pod["metadata"]:
            found[pod["metadata"]["labels"]["app.kubernetes.io/component"]].add(pod["metadata"]["uid"])
    return found


def replaced(before, after):
    return {component: len(after[component] - before[component]) for component in before}
