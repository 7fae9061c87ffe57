"""The chart's objects for other operators: a server with the definitions of these kinds accepts them
unchanged.
"""

import pytest
import yaml

from cluster import programs
from harness.places import ROOT

MANIFESTS = ROOT / "e2e/chart/snapshots/everything.yaml"  # e2e/chart tests that the chart makes these


@pytest.fixture(scope="module")
def definitions(cluster):
    files = [f"--filename={path}" for path in programs.operator_crds()]
    try:
        cluster.kubectl("apply", "--server-side", *files)
        cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", *files)
        yield
    finally:
        cluster.kubectl("delete", "--ignore-not-found", *files)


def dry_run(cluster, manifests):
    cluster.kubectl(
        "apply",
        "--dry-run=server",
        "--validate=strict",
        "--filename=-",
        given=[thing for thing in yaml.safe_load_all(manifests) if thing],
    )


def test_every_manifest_is_one_that_the_server_knows(cluster, definitions):
    dry_run(cluster, MANIFESTS.read_text())


@pytest.mark.parametrize("field", ["issuerRef", "podTargetLabels", "podSelector"])
def test_a_field_that_the_server_does_not_know_is_refused(cluster, definitions, field):
    manifests = MANIFESTS.read_text()
    assert f" {field}:" in manifests
    with pytest.raises(RuntimeError, match=rf'unknown field "(spec\.)?{field}Wrong"'):
        dry_run(cluster, manifests.replace(f" {field}:", f" {field}Wrong:"))
