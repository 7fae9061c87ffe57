"""`./dev cluster` on a cluster that runs."""

import subprocess
import sys

from harness.places import ROOT


def command(*words):
    return subprocess.run(
        [sys.executable, ROOT / "e2e/cluster/main.py", *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout


def test_status_shows_every_host_and_what_runs_there(cluster):
    shown = command("status")
    for name, host in cluster.hosts().items():
        assert name in cluster.spares or f"{name:<10} {host.address}" in shown, shown
    assert "lunkeeper-controller" in shown


def test_a_shell_has_kubectl_or_is_inside_a_host(cluster):
    assert command("shell", "kubectl", "get", "nodes", "--output=name").split() == [
        f"node/{name}" for name in cluster.nodes
    ]
    assert "deployed" in command("shell", "helm", "list", "--namespace=lunkeeper")
    assert command("shell", "--host=node-1", "hostname").strip() == "node-1"
