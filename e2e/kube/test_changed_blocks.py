"""A backup program copies only what changed: by the chart's sidecar, with the rights that the documents name.

The program is cluster/tools/blocks.
"""

import pytest
import yaml

from cluster import deploy
from harness import docs
from harness.places import ROOT
from kube import documented
from kube.workloads import block_container

MIB = 1 << 20
SIZE = 64 * MIB
RBAC = "rbac.authorization.k8s.io"
ALLOWED = "snapshot.storage.kubernetes.io/allow-volume-mode-change"


@pytest.fixture(scope="module")
def served(cluster, tmp_path_factory):
    """The service is where programs look for it: by the documents' command."""
    folder = tmp_path_factory.mktemp("administrator")
    (folder / "charts").symlink_to(ROOT / "charts")
    documented.run(cluster, "changed-blocks", folder)
    yield
    deploy.install(cluster)


@pytest.fixture
def account(workloads):
    """The account of a backup program: the documents' one, but for its names."""
    here = workloads.namespace
    roles = list(yaml.safe_load_all(docs.example("yaml", "# backup.yaml")))
    for role in roles:
        role["metadata"] = {"name": here}
        for rule in role["rules"]:
            rule.update({"resourceNames": [here]} if "resourceNames" in rule else {})
        binding = {
            "apiVersion": role["apiVersion"],
            "kind": f"{role['kind']}Binding",
            "metadata": {"name": here},
            "roleRef": {"apiGroup": RBAC, "kind": role["kind"], "name": here},
            "subjects": [{"kind": "ServiceAccount", "name": here, "namespace": here}],
        }
        workloads.apply(role, binding)
    workloads.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": here}})
    yield here
    workloads.kubectl("delete", "clusterrole,clusterrolebinding", here)


class Backup:
    """A pod with the account, the content of each snapshot, and a disk to copy them to."""

    def __init__(self, workloads, account, snapshots):
        """`snapshots`: {name of a claim: VolumeSnapshot}."""
        self.workloads, self.snapshots = workloads, snapshots
        claims = {"copy": {}, **{claim: {"dataSource": source_of(name)} for claim, name in snapshots.items()}}
        for claim, source in claims.items():
            workloads.claim(claim, size=SIZE, volumeMode="Block", **source)
        mounted = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
        devices = {claim: f"/dev/{claim}" for claim in claims}
        workloads.pod(
            "backup", volumes=mounted, containers=[block_container(**devices)], serviceAccountName=account
        )
        workloads.wait_for_pod("backup")

    def copy(self, claim, since=None):
        """Copies what was written, or changed since, and compares everything; returns the bytes copied."""
        options = [f"-since={self.snapshots[since]}"] if since else []
        devices = (f"/dev/{claim}", "/dev/copy")
        snapshot = (self.workloads.namespace, self.snapshots[claim])
        return int(self.workloads.run_in("backup", "blocks", *options, *snapshot, *devices))


def source_of(snapshot):
    return {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot}


def write(workloads, name, mebibytes):
    """A file that nobody can foresee."""
    workloads.shell("writer", f"dd if=/dev/urandom of=/data/{name} bs={MIB} count={mebibytes} && sync")


def allow_block(workloads):
    """As the documents say of volumes with a file system."""
    for snapshot in workloads.kubectl.items("volumesnapshots", *workloads.here):
        content = snapshot["status"]["boundVolumeSnapshotContentName"]
        workloads.kubectl("annotate", "volumesnapshotcontent", content, f"{ALLOWED}=true")


def test_a_first_backup_copies_what_is_used_and_a_later_one_what_changed(served, workloads, account):
    """Each copy is equal to its snapshot, to the last bit. The later one is of a group."""
    label = {"app": "shop"}
    workloads.claim("data", labels=label, size=SIZE)
    workloads.pod("writer", "data")
    workloads.wait_for_pod("writer")
    write(workloads, "old", 10)
    workloads.snapshot("monday", "data")
    write(workloads, "new", 4)
    workloads.snapshot_group("tuesday", label)
    (later,) = workloads.members("tuesday").values()
    allow_block(workloads)
    backup = Backup(workloads, account, {"first": "monday", "second": later})
    # A file system writes of its own, too.
    assert 10 * MIB <= backup.copy("first") < 13 * MIB
    assert 4 * MIB <= backup.copy("second", since="first") < 7 * MIB
