"""Leaks: traces of volumes in Kubernetes, on the storage host and on the nodes."""

import json
import subprocess

from cluster import deploy, storage
from harness.leaks import COUNTS
from kube import audit
from kube.workloads import TEST_NAMESPACE

GROUPS = "volumegroupsnapshots,volumegroupsnapshotcontents"
KINDS = f"pv,pvc,volumesnapshots,volumesnapshotcontents,{GROUPS},volumeattachments,volumelocks,namespaces"
# Targets without a volume: the one without a login, and the nodes' heartbeat LUNs.
ALWAYS_THERE = tuple(
    f"iqn.2026-11.io.lunkeeper:{storage.ARRAY}:{which}" for which in ("nobody", "heartbeat:")
)


def objects(cluster):
    """Objects with their finalizers; of namespaces only those of the tests."""
    return [
        f"{thing['kind']} {thing['metadata']['name']} {thing['metadata'].get('finalizers')}"
        for thing in cluster.kubectl.items(KINDS, "--all-namespaces")
        if thing["kind"] != "Namespace" or thing["metadata"]["name"].startswith(TEST_NAMESPACE)
    ]


def tell_groups(cluster):
    """For people: each content of a group of snapshots that is left, and what was done to it and to that."""
    for content in cluster.kubectl.items("volumegroupsnapshotcontents"):
        name, group = content["metadata"]["name"], content["spec"]["volumeGroupSnapshotRef"]
        print(json.dumps(content, indent=1))
        print("\n".join(audit.story_of(cluster, name) + audit.story_of(cluster, group["name"])))
        for log in snapshot_logs(cluster):
            print("\n".join(line for line in log.splitlines() if name in line))


def snapshot_logs(cluster):
    """Of the snapshot controller, and of the sidecars that run now."""
    yield (cluster.control.folder / "snapshot-controller.log").read_text(errors="replace")
    for pod in deploy.pods(cluster, "controller"):
        where = (pod["metadata"]["name"], f"--namespace={deploy.NAMESPACE}", "--container=csi-snapshotter")
        yield cluster.kubectl.attempt("logs", *where).stdout


def rows(cluster):
    return [f"{count} {table}" for table, count in cluster.storage.query_catalogue(COUNTS) if count]


def targets(cluster):
    """The targets of volumes, each followed by its sessions."""
    shown = cluster.storage.enter(
        "tgtadm",
        "-C",
        "1",
        "--lld",
        "iscsi",
        "--op",
        "show",
        "--mode",
        "target",
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    found, counts = [], False
    for line in shown:
        if line.startswith("Target "):
            counts = not line.split()[2].startswith(ALWAYS_THERE)
        if counts and (line.startswith("Target ") or "I_T nexus:" in line):
            found.append(line.strip())
    return found


def mounts(cluster):
    return [
        f"{name}: {line.split()[4]}"
        for name, node in cluster.nodes.items()
        for line in open(f"/proc/{node.pid()}/mountinfo")
        if deploy.DRIVER in line or "/volumeDevices/" in line
    ]


def devices(cluster):
    """The devices of the data paths, and loop devices that no data path knows."""
    found = []
    for name, node in cluster.nodes.items():
        listed = node.enter(
            cluster.binary, "datapath", "list", capture_output=True, text=True, check=True
        ).stdout
        found += [f"{name}: {line}" for line in listed.split("\n") if f"{storage.ARRAY}-v" in line]
    loops = subprocess.run(
        ["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return found + [line for line in loops.split("\n") if f"{storage.ARRAY}-v" in line]


def folders(cluster):
    """The folders where kubelet stages volumes, except two that it makes once."""
    return [
        f"{name}: {line}"
        for name, node in cluster.nodes.items()
        for line in node.enter(
            "find",
            "/var/lib/kubelet/plugins/kubernetes.io/csi",
            "-mindepth",
            "2",
            "-not",
            "-path",
            "*/volumeDevices/publish",
            "-not",
            "-path",
            "*/volumeDevices/staging",
            capture_output=True,
            text=True,
        ).stdout.split("\n")
        if line
    ]


LOOKS = [objects, rows, targets, mounts, devices, folders]


def found(cluster):
    return {look.__name__: left for look in LOOKS if (left := look(cluster))}
