"""`kubectl lunkeeper`, as operations.md says."""

import shutil

from harness.places import ROOT
from kube import documented


def test_commands_run_in_a_controller_and_on_a_node(cluster, workloads, tmp_path):
    workloads.claim("data")
    volume = workloads.wait_for_bound("data")
    shutil.copy(ROOT / "packaging/kubectl-lunkeeper", tmp_path)
    said = documented.run(cluster, "kubectl-plugin", tmp_path)
    assert f"{workloads.namespace}/data" in said, volume
    assert "failover" in said and "devices" in said.lower()
