"""A stranger and a node that was broken into flood the driver at once, and another node dies."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest

from cluster import cgroups, deploy, storage
from harness.places import ROOT
from kube.failover.watching import COORDINATOR_PORT, OVER_SECONDS, first_new_write

SECONDS = int(os.environ.get("FLOOD_SECONDS", "60"))
FIFTH_OF_A_CORE = "20000"  # of 100,000 us
MOVES_SECONDS, MOUNT_SECONDS = 6, 2
MEMORY_LIMIT_MIB = 256  # of a controller, in the chart; a node plugin's own part stays below it, too


@contextlib.contextmanager
def held_to_a_fifth_of_a_core(name):
    """A control group of this machine for the processor; yields the file that takes processes in."""
    point, kind = next(
        (point, kind)
        for point, kind, options in cgroups.hierarchies()
        if kind == "cgroup2" or "cpu" in options.split(",")
    )
    group = pathlib.Path(point, name)
    group.mkdir()
    if kind == "cgroup2":
        (group / "cpu.max").write_text(f"{FIFTH_OF_A_CORE} 100000")
    else:
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text(FIFTH_OF_A_CORE)
    try:
        yield group / "cgroup.procs"
    finally:
        group.rmdir()


@contextlib.contextmanager
def attacks(host, name, *arguments):
    """Runs an attacker of flood.py in a node's network while the context lasts."""
    argv = ["nsenter", f"--net=/run/netns/{host.namespace}", sys.executable, "-m", "kube.failover.flood"]
    with held_to_a_fifth_of_a_core(f"{host.namespace}-{name}") as processes:
        attacker = subprocess.Popen(
            [*argv, *arguments],
            cwd=ROOT / "e2e",
            env={**os.environ, "PYTHONPATH": str(ROOT / "e2e")},
            preexec_fn=lambda: processes.write_text("0"),
        )
        try:
            yield attacker
            assert attacker.poll() is None, f"the {name} gave up"
        finally:
            attacker.kill()
            attacker.wait()


def open_ports(failover):
    """HOST:PORT of all that the driver listens at, of the plugin's pods and the storage host."""
    found = {f"{host.address}:{storage.PORTAL_PORT}" for host in failover.cluster.storage_hosts()}
    found |= {host.agent_address for host in failover.cluster.storage_hosts()}
    for component in ("controller", "node", "datapath"):
        for pod in deploy.pods(failover.cluster, component):
            for container in pod["spec"]["containers"]:
                found |= {
                    f"{pod['status']['podIP']}:{port['containerPort']}" for port in container.get("ports", [])
                }
    return sorted(found)


def broken_node(failover, folder, node, volume):
    """The arguments of flood.py for a node: it has the token of the plugin's pod, and asks for a volume."""
    here = f"--namespace={deploy.NAMESPACE}"
    kubectl = failover.kubectl
    pod = next(each for each in deploy.pods(failover.cluster, "node") if each["spec"]["nodeName"] == node)
    token = kubectl(
        "create",
        "token",
        pod["spec"]["serviceAccountName"],
        here,
        f"--audience={deploy.DRIVER}",
        "--bound-object-kind=Pod",
        f"--bound-object-name={pod['metadata']['name']}",
    ).strip()
    trust = next(
        each
        for each in pod["spec"]["volumes"]
        if each.get("configMap", {}).get("items") or "coordinator" in each["name"]
    )
    authority = folder / "coordinator-ca.crt"
    authority.write_text(kubectl.get("configmap", trust["configMap"]["name"], here)["data"]["ca.crt"])
    address = next(
        word.partition("=")[2]
        for container in pod["spec"]["containers"]
        for word in container.get("args", [])
        if word.startswith("--coordinator-address=")
    )
    controller = deploy.pods(failover.cluster, "controller")[0]["status"]["podIP"]
    name = address.rpartition(":")[0]
    return f"{controller}:{COORDINATOR_PORT}", str(authority), name, token, node, volume


def handle_of(placed):
    """The driver's id of the writer's volume."""
    return next(
        volume["spec"]["csi"]["volumeHandle"]
        for volume in placed.workloads.kubectl.items("pv")
        if volume["spec"].get("claimRef", {}).get("namespace") == placed.workloads.namespace
        and volume["spec"]["claimRef"]["name"].endswith(placed.writer.pod)
    )


def seconds_of_mounts(failover, volumes):
    """How long each NodeStageVolume and NodePublishVolume of the volumes took, from the plugins' logs."""
    took = []
    for pod in deploy.pods(failover.cluster, "node"):
        where = (pod["metadata"]["name"], f"--namespace={deploy.NAMESPACE}", "--container=lunkeeper")
        for line in failover.kubectl.attempt("logs", *where).stdout.splitlines():
            if re.search("Node(Stage|Publish)Volume", line) and any(volume in line for volume in volumes):
                took.append(float(re.search(r'"?ms"?[=:] ?"?([0-9.]+)', line)[1]) / 1000)
    return took


def memory_in_mib(failover):
    """{pod: MiB} of the controllers and node plugins, and nobody was restarted for it."""
    used = {}
    for component in ("controller", "node"):
        for pod in deploy.pods(failover.cluster, component):
            name = pod["metadata"]["name"]
            words = ("--container=lunkeeper", "--", "cat", "/proc/1/status")
            shown = failover.kubectl.attempt("exec", f"--namespace={deploy.NAMESPACE}", name, *words).stdout
            if resident := re.search(r"VmRSS:\s+(\d+) kB", shown):
                used[name] = int(resident[1]) // 1024
    return used


def refused_connections(failover):
    """How many the controllers' limits have refused or ended."""
    refused = 0.0
    for pod in deploy.pods(failover.cluster, "controller"):
        where = f"/api/v1/namespaces/{deploy.NAMESPACE}/pods/{pod['metadata']['name']}:9809/proxy/metrics"
        shown = failover.kubectl("get", "--raw", where)
        refused += sum(map(float, re.findall(r"lunkeeper_connections_refused_total\{[^}]*\} (\S+)", shown)))
    return refused


def restarts(failover, victim):
    """{(pod, container): how often it was restarted}, but for the node that dies."""
    return {
        (pod["metadata"]["name"], each["name"]): each["restartCount"]
        for component in ("controller", "node", "datapath")
        for pod in deploy.pods(failover.cluster, component)
        if pod["spec"]["nodeName"] != victim
        for each in pod["status"].get("containerStatuses", [])
    }


@pytest.mark.timeout(SECONDS + 600)
def test_a_flood_delays_neither_a_failover_nor_a_mount(place, failover, tmp_path):
    victim, *others = sorted(failover.cluster.nodes, key=lambda name: name in failover.with_controllers())
    db, held = place("db", node=victim), place("held", node=others[0])
    before, began = restarts(failover, victim), time.monotonic()
    mounted = []
    with contextlib.ExitStack() as flood:
        flood.enter_context(attacks(failover.host(others[1]), "stranger", "stranger", *open_ports(failover)))
        node = broken_node(failover, tmp_path, others[1], handle_of(held))
        flood.enter_context(attacks(failover.host(others[1]), "node", "node", *node))
        time.sleep(SECONDS / 2)
        off = time.time()
        db.host.power_off()
        moved = first_new_write(db.writer, db.writer.acknowledged()) - off
        db.moves()
        while time.monotonic() - began < SECONDS:
            mounted.append(place(f"more-{len(mounted)}", node=others[len(mounted) % 2], block=False))
            mounted[-1].writer.stop()
        used, refused = memory_in_mib(failover), refused_connections(failover)
    took = seconds_of_mounts(failover, [handle_of(each) for each in mounted])
    print(json.dumps({"moved after": moved, "mounts": sorted(took), "MiB": used, "refused": refused}))
    db.host.boot()
    failover.wait_until_over(victim, 2 * OVER_SECONDS)
    db.lost_nothing()
    held.lost_nothing()
    assert restarts(failover, victim) == before
    assert refused > 1000, f"the flood was none: {refused} connections refused"
    assert used and max(used.values()) < MEMORY_LIMIT_MIB, used
    assert took and max(took) < MOUNT_SECONDS, took
    assert moved < MOVES_SECONDS, f"{moved} s"
