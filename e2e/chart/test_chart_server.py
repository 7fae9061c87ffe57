"""What the chart asks the API server, and makes of the answers."""

import copy

import pytest
import yaml

from chart.api_server import api_server
from chart.charts import CHART, EVERYTHING, LOCAL_ARRAY, ONE_ARRAY, find, render, run_helm

KNOWN = [
    ("k3s", {"version": "v1.36.0+k3s1"}),
    ("rke2", {"version": "v1.36.0+rke2r1"}),
    ("k0s", {"version": "v1.36.0+k0s"}),
    ("openshift", {"version": "v1.36.0+1a2b3c4", "groups": ["security.openshift.io/v1"]}),
    ("", {"version": "v1.36.0"}),
    ("", {"version": "v1.36.0-eks-k3s", "groups": ["k3s.cattle.io/v1"]}),
]


@pytest.mark.parametrize("distro,server", KNOWN)
def test_a_distribution_that_names_itself_need_not_be_set(values, distro, server):
    wanted = render(values({**LOCAL_ARRAY, "distro": distro}))
    with api_server(wanted, **server) as options:
        offers = (*options, "--validate", "--disable-openapi-validation")
        assert render(values(LOCAL_ARRAY), *offers) == wanted
        set_to = {**LOCAL_ARRAY, "distro": "kind"}
        assert render(values(set_to), *offers) == render(values(LOCAL_ARRAY)), "what is set wins"


@pytest.fixture
def upgrade(values, tmp_path):
    """Renders as an upgrade does, where the objects of other values are there."""

    def run(before, after, release="storage", **metadata):
        things = render(values(before))
        there = copy.deepcopy([thing for thing in things if thing["kind"] == "DaemonSet"])
        for each in there:
            each["metadata"].update(metadata)
        with api_server(things, daemonsets=there) as options:
            path = tmp_path / "after.yaml"
            path.write_text(yaml.safe_dump(after))
            more = ("--namespace=lunkeeper", f"--values={path}", *options)
            return run_helm("template", release, CHART, *more)

    return run


def test_an_upgrade_that_forgets_a_local_array_is_refused(upgrade):
    """With any value given, helm forgets those of before: the array would end under its nodes' volumes."""
    for before, forgets in ((LOCAL_ARRAY, "local"), (EVERYTHING, "fast")):
        after = {**before, "localArrays": []} if forgets == "fast" else ONE_ARRAY
        done = upgrade(before, after)
        assert done.returncode != 0
        assert f"the local array {forgets} runs, and the values lack it" in done.stderr
        assert f"delete daemonset storage-lunkeeper-array-{forgets}" in done.stderr
        assert "--output yaml" in done.stderr and "--reset-then-reuse-values" in done.stderr


def test_an_upgrade_that_keeps_every_local_array_goes_on(upgrade, values):
    for before, after in (
        (LOCAL_ARRAY, {**LOCAL_ARRAY, **ONE_ARRAY}),
        (ONE_ARRAY, LOCAL_ARRAY),
        (EVERYTHING, EVERYTHING),
    ):
        done = upgrade(before, after)
        assert done.returncode == 0, done.stderr
        things = [thing for thing in yaml.safe_load_all(done.stdout) if thing]
        assert things == render(values(after)), "the answer is in no object"
        assert find(things, "ConfigMap")
    assert upgrade(LOCAL_ARRAY, ONE_ARRAY, release="another").returncode == 0, "another release's array"
    ends = {"deletionTimestamp": "2026-11-28T12:00:00Z"}
    assert upgrade(LOCAL_ARRAY, ONE_ARRAY, **ends).returncode == 0, "it was deleted"
