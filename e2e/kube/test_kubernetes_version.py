"""The cluster's Kubernetes is the one that KUBERNETES_VERSION chooses."""

import json

from cluster import programs


def test_the_cluster_is_of_the_version_that_was_chosen(cluster):
    chosen = programs.versions()["k8s.io/kubernetes"]
    assert chosen.startswith(f"v{programs.CHOSEN}.")
    told = json.loads(cluster.kubectl("version", "--output=json"))
    assert {told["clientVersion"]["gitVersion"], told["serverVersion"]["gitVersion"]} == {chosen}
    versions = {node["status"]["nodeInfo"]["kubeletVersion"] for node in cluster.kubectl.items("nodes")}
    assert versions == {chosen}
