"""docs/volumes.md, from the first claim to the last command, as its reader would do it."""

import shutil

from cluster.cluster import BUSYBOX_IMAGE
from harness import docs
from kube import documented


def test_volumes_are_used_as_the_documents_say(cluster, workloads, tmp_path):
    """In a namespace of the test's own, with this cluster's image."""
    kubeconfig = tmp_path / "kubeconfig"
    shutil.copy(cluster.control.kubeconfig, kubeconfig)
    workloads.kubectl(f"--kubeconfig={kubeconfig}", "config", "set-context", "--current", f"--namespace={workloads.namespace}")
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
