"""All commands of docs/volumes.md, and the manual ones of docs/failover.md."""

import re
import shutil

from cluster.cluster import BUSYBOX_IMAGE
from harness import docs
from kube import documented
from kube.failover.watching import place

NODE = "node-2"  # of the documents' commands


def in_namespace_of(workloads, folder):
    """A kubeconfig whose default namespace is the test's."""
    kubeconfig = folder / "kubeconfig"
    shutil.copy(workloads.cluster.control.kubeconfig, kubeconfig)
    workloads.kubectl(
        f"--kubeconfig={kubeconfig}",
        "config",
        "set-context",
        "--current",
        f"--namespace={workloads.namespace}",
    )
    return kubeconfig


def test_volumes_are_used_as_the_documents_say(cluster, workloads, tmp_path):
    """In a namespace of the test's own, with this cluster's image."""
    kubeconfig = in_namespace_of(workloads, tmp_path)
    for name in ("data", "snapshot", "restored"):
        text = docs.example("yaml", f"# {name}.yaml")
        (tmp_path / f"{name}.yaml").write_text(text.replace("busybox:1.37", BUSYBOX_IMAGE))
    try:
        for name in ("claim", "snapshot", "restore", "growth"):
            documented.run(cluster, f"volumes-{name}", tmp_path, kubeconfig)
        assert workloads.shell("writer", "cat /data/file").strip() == "second"
        assert workloads.shell("reader", "cat /data/file").strip() == "first"
    finally:
        documented.run(cluster, "volumes-end", tmp_path, kubeconfig)  # the class is in no namespace
    assert not workloads.kubectl.items("pvc", *workloads.here)


def test_a_node_is_fenced_followed_and_given_back_as_the_documents_say(
    cluster, failover, workloads, tmp_path
):
    db = place(failover, workloads, node=NODE)
    assert "is fenced" in documented.run(cluster, "failover-fence", tmp_path)
    db.moves()
    shown = documented.run(cluster, "failover-follow", tmp_path, in_namespace_of(workloads, tmp_path))
    for told in ("its fan is on fire", "event: Fenced", r"\sFailover\s", r"Name: +db-0"):
        assert re.search(told, shown), f"{told}\n{shown}"
    assert "may take volumes again" in documented.run(cluster, "failover-unfence", tmp_path)
    failover.wait_until_over(NODE)
    db.lost_nothing()


def test_a_node_fence_is_made_and_taken_back_as_the_documents_say(cluster, failover, workloads, tmp_path):
    db = place(failover, workloads, node=NODE)
    documented.run(cluster, "failover-nodefence", tmp_path)
    db.moves()
    failover.wait_until_over(NODE)
    db.lost_nothing()
