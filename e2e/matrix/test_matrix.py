"""The most telling tests with each Kubernetes that Lunkeeper is tested against.

Its client against each API server, and tests of e2e/kube on a cluster of each.
KUBERNETES_VERSION=1.35 ./dev test matrix does so with that version alone.
"""

import os
import subprocess
import sys

import pytest

from cluster import programs
from harness.places import BUILD, LOGS, ROOT

VERSIONS = [programs.CHOSEN] if os.environ.get("KUBERNETES_VERSION") else programs.MINOR_VERSIONS
TESTS = (
    "test_kubernetes_version.py",
    "test_install.py",  # as the documents say
    "test_local_array.py::test_two_commands_lead_from_nothing_to_a_written_volume",  # from a release
    "test_volumes.py",  # also with classes of attributes
    "test_groups.py",
    "test_import.py",
    "test_stateful_set.py",
    "test_helm.py::test_an_upgrade_and_its_rollback_are_not_noticed_by_a_writer",
    "failover/test_power.py::test_power_off_moves_the_pod_and_the_node_comes_back",
    "failover/test_partitions.py::test_from_the_storage_only_the_pod_moves",
    "test_end_of_run.py::test_nothing_is_left",
    "test_end_of_run.py::test_nothing_was_refused",
)


def run(version, name, *argv, **environment):
    """The exit code and the output, which is also in a log of that name."""
    log = LOGS / f"matrix-{version}-{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w") as out:
        done = subprocess.run(
            argv,
            cwd=ROOT / "e2e",
            env={**os.environ, "KUBERNETES_VERSION": version, **environment},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    text = log.read_text()
    print(f"{log}:\n{text[-2000:]}")
    return done.returncode, text


@pytest.fixture(params=VERSIONS)
def version(request):
    """One of them, which is built before its tests begin: their time is limited."""
    built = "from cluster import programs; programs.build_all(); print(programs.KUBERNETES.bin)"
    code, text = run(request.param, "build", sys.executable, "-c", built)
    assert code == 0, text[-4000:]
    return request.param, text.splitlines()[-1]


@pytest.mark.timeout(0)
def test_the_client_understands_the_api_server(version):
    minor, folder = version
    words = ("--test-dir", str(BUILD), "-L", "real_api", "--output-on-failure", "--no-tests=error")
    code, text = run(minor, "client", "ctest", *words, LUNKEEPER_KUBE_BIN=folder)
    assert code == 0, text[-4000:]


@pytest.mark.timeout(0)
def test_lunkeeper_works_in_a_cluster(version):
    minor, _ = version
    results = ROOT / f"build/results/matrix-{minor}.xml"
    words = ("-m", "pytest", "-p", "no:cacheprovider", "-v", f"--junitxml={results}")
    code, text = run(minor, "cluster", sys.executable, *words, *(f"kube/{test}" for test in TESTS))
    assert code == 0, text[-4000:]
    assert "skipped" not in text.splitlines()[-1], text.splitlines()[-1]
