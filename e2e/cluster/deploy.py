"""Lunkeeper on the cluster, as its users install it: the chart, by helm."""

import json
import pathlib
import subprocess
from typing import Any

import yaml  # type: ignore[import]  # Debian has no types of it

from cluster import programs, storage
from cluster.cluster import Cluster
from cluster.kubectl import Object, condition
from harness.places import ROOT

CHART = ROOT / "charts/lunkeeper"
RELEASE = NAMESPACE = "lunkeeper"
DRIVER = "csi.lunkeeper.io"
ARRAY_SECRET = f"lunkeeper-{storage.ARRAY}"
WAIT_SECONDS = 180
SNAPSHOTS = ("snapshot.storage.k8s.io/v1", "groupsnapshot.storage.k8s.io/v1", "cbt.storage.k8s.io/v1beta1")


def helm(
    cluster: Cluster, *arguments: object, given: object = None, seconds: float = WAIT_SECONDS + 30
) -> str:
    """Its output; fails with what it said. `given`: values."""
    done = subprocess.run(
        [
            "nsenter",
            f"--net=/run/netns/{cluster.control.namespace}",
            programs.path("helm"),
            f"--kubeconfig={cluster.control.kubeconfig}",
            f"--namespace={NAMESPACE}",
            *map(str, arguments),
        ],
        input=json.dumps(given or {}),
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    if done.returncode != 0:
        raise RuntimeError(
            f"helm {' '.join(map(str, arguments))}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return done.stdout


def remove(cluster: Cluster) -> None:
    """As docs/install.md says, but for what is in no namespace."""
    helm(cluster, "uninstall", RELEASE, "--wait")
    here = f"--namespace={NAMESPACE}"
    cluster.kubectl("wait", "--for=delete", "pod", "--all", here, "--timeout=5m", seconds=330)
    cluster.kubectl("delete", "namespace", NAMESPACE, seconds=120)


def pods(cluster: Cluster, component: str) -> list[Object]:
    return cluster.kubectl.items(
        "pods", f"--namespace={NAMESPACE}", f"--selector=app.kubernetes.io/component={component}"
    )


def tell_unready(cluster: Cluster) -> str:
    """For people: the plugin's pods, and what the unready ones say of themselves."""
    here = f"--namespace={NAMESPACE}"
    told = [cluster.kubectl.attempt("get", "pods", here, "-o", "wide").stdout]
    for component in ("controller", "node", "datapath"):
        for pod in pods(cluster, component):
            if condition(pod, "Ready"):
                continue
            name = pod["metadata"]["name"]
            told += [
                f"{name}:",
                cluster.kubectl.attempt("exec", name, here, "--", "lunkeeper", "status").stdout,
                cluster.kubectl.attempt("logs", name, here, "--all-containers", "--tail=20").stdout,
            ]
    return "\n".join(told)


def values(cluster: Cluster) -> dict[str, Any]:
    return {
        "cluster": storage.CLUSTER_ID,
        "arrays": [
            {
                "name": storage.ARRAY,
                "address": [host.agent_address for host in cluster.storage_hosts()],
                "serverName": storage.NAME,
                "tlsSecret": ARRAY_SECRET,
            }
        ],
        # The tests' nodes fail more often than others'.
        "failover": {"budgetPercent": 100},
        "sidecars": {"capacity": {"pollSeconds": 5}},
    }


def prepare(cluster: Cluster) -> None:
    """Prepares a cluster for Lunkeeper: the snapshot CRDs, and the array's certificates in a Secret."""
    cluster.kubectl("apply", "--server-side", "-f", programs.SNAPSHOT_CRDS)
    cluster.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    pki = cluster.storage.pki
    cluster.kubectl(
        "create",
        "secret",
        "generic",
        ARRAY_SECRET,
        f"--namespace={NAMESPACE}",
        f"--from-file=tls.crt={pki}/controller.crt",
        f"--from-file=tls.key={pki}/controller.key",
        f"--from-file=ca.crt={pki}/ca.crt",
    )


def rendered(cluster: Cluster, given: dict[str, Any], chart: pathlib.Path = CHART) -> list[Object]:
    """What `helm template` prints for these values, for a cluster that has snapshots."""
    shown = helm(
        cluster,
        *("template", RELEASE, chart, "--values=-", "--no-hooks", f"--api-versions={','.join(SNAPSHOTS)}"),
        given=given,
    )
    return [thing for thing in yaml.safe_load_all(shown) if thing]


def install(cluster: Cluster, *, chart: pathlib.Path = CHART, **changes: object) -> str:
    """Installs or upgrades, and waits until every pod is ready."""
    return helm(
        cluster,
        "upgrade",
        "--install",
        RELEASE,
        chart,
        "--values=-",
        "--wait",
        f"--timeout={WAIT_SECONDS}s",
        given={**values(cluster), **changes},
    )
