"""The Helm chart: what it asks before it is uninstalled, with which rights, and how long that is there."""

import pytest

from chart.charts import EVERYTHING, ONE_ARRAY, find, render

NAME = "storage-lunkeeper-uninstall"
NO_FAILOVER = {**ONE_ARRAY, "failover": {"enabled": False}}


def of_the_uninstall(things):
    """In the order in which helm makes them."""
    found = [thing for thing in things if hook_of(thing) == "pre-delete"]
    return sorted(found, key=lambda thing: int(annotations(thing).get("helm.sh/hook-weight", "0")))


def annotations(thing):
    return thing["metadata"].get("annotations") or {}


def hook_of(thing):
    return annotations(thing).get("helm.sh/hook")


@pytest.mark.parametrize("content", [ONE_ARRAY, NO_FAILOVER, EVERYTHING], ids=["one", "no failover", "all"])
def test_a_job_asks_before_an_uninstall_and_has_its_rights_by_then(values, content):
    things = of_the_uninstall(render(values(content)))
    kinds = [thing["kind"] for thing in things]
    assert sorted(kinds[:3]) == ["ClusterRole", "ClusterRoleBinding", "ServiceAccount"]
    assert kinds[3:] == ["Job"] and {thing["metadata"]["name"] for thing in things} == {NAME}
    # A Job that failed stays, with its log; of what succeeded nothing does.
    for thing in things:
        policy = annotations(thing)["helm.sh/hook-delete-policy"].split(",")
        assert sorted(policy) == ["before-hook-creation", "hook-succeeded"], thing
    assert annotations(things[3])["helm.sh/hook-output-log-policy"] == "hook-failed"


def test_it_may_list_what_it_reads_and_nothing_else(values):
    """Its rights are in no role of the release, and no other account has them."""
    things = render(values(EVERYTHING))
    assert find(things, "ClusterRole", NAME)["rules"] == [
        {"apiGroups": [""], "resources": ["persistentvolumes", "pods"], "verbs": ["list"]},
        {"apiGroups": ["lunkeeper.io"], "resources": ["nodefences", "volumelocks"], "verbs": ["list"]},
    ]
    bound = [
        (thing["roleRef"]["name"], subject["name"])
        for thing in things
        if thing["kind"].endswith("RoleBinding")
        for subject in thing["subjects"]
        if NAME in (thing["roleRef"]["name"], subject["name"])
    ]
    assert bound == [(NAME, NAME)]
    users = [thing for thing in things if thing.get("spec", {}).get("template", {}).get("spec", {}).get(
        "serviceAccountName") == NAME]
    assert [user["kind"] for user in users] == ["Job"]


def test_it_ends_by_itself_and_gives_the_program_less_time_than_the_job(values):
    spec = find(render(values(ONE_ARRAY)), "Job", NAME)["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert container["args"] == ["uninstall-check", "--timeout=60"]
    assert 60 < spec["activeDeadlineSeconds"] < 300, "helm waits for five minutes"
    assert spec["backoffLimit"] == 0 and spec["template"]["spec"]["restartPolicy"] == "Never"
    assert spec["ttlSecondsAfterFinished"] > 0


def test_it_is_not_asked_where_that_is_switched_off(values):
    off = {**ONE_ARRAY, "uninstall": {"refuseWhileUsed": False}}
    assert not of_the_uninstall(render(values(off)))
    assert NAME not in str(render(values(off)))


def test_an_account_of_ones_own_is_used_and_not_made(values):
    own = {"serviceAccount": {"create": False, "name": "own"}}
    things = of_the_uninstall(render(values({**ONE_ARRAY, "uninstall": own})))
    assert "ServiceAccount" not in {thing["kind"] for thing in things}
    assert find(things, "ClusterRoleBinding")["subjects"][0]["name"] == "own"
    assert find(things, "Job")["spec"]["template"]["spec"]["serviceAccountName"] == "own"
