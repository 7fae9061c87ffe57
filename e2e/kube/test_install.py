"""Lunkeeper is removed and installed as the documents say. The other tests run on what this one installs."""

import shutil

import pytest

from cluster import deploy, storage
from harness import docs
from harness.places import ROOT
from kube import documented


@pytest.mark.first
def test_it_is_taken_away_and_installed_again_as_the_documents_say(cluster, tmp_path):
    """With this cluster's name, address and certificates in the values."""
    deploy.remove(cluster)
    host = cluster.storage
    for name in ("controller.crt", "controller.key", "ca.crt"):
        shutil.copy(host.pki / name, tmp_path)
    (tmp_path / "charts").symlink_to(ROOT / "charts")
    values = docs.example("yaml", "# values.yaml")
    (tmp_path / "values.yaml").write_text(
        values.replace("10.0.0.5:7480", host.agent_address).replace("prod", storage.CLUSTER_ID)
    )
    said = documented.run(cluster, "install", tmp_path)
    assert "Phase:          Succeeded" in said
    assert (
        "is installed as lunkeeper in lunkeeper" in said
        and "one of these StorageClasses: lunkeeper.\n" in said
    )
    assert "no snapshot CRDs" not in said
    deploy.install(cluster)  # as the other tests know it
