"""What holds when all other tests have run: nothing is left of any volume, and Lunkeeper used exactly its
rights.

The API server's audit log says what Lunkeeper requested meanwhile, and the end of the volumes is part of
that: the tests of rights come after those of leaks.
"""

import pytest

from cluster.deploy import NAMESPACE
from harness.cleanup import wait_until
from kube import audit, leaks
from kube.audit import right_of

pytestmark = pytest.mark.last

CONTROLLER, NODE, PKI = (
    f"system:serviceaccount:{NAMESPACE}:lunkeeper-{which}" for which in ("controller", "node", "pki")
)
# Only when an event repeats itself, which a run need not see.
ALLOWED = {("", "events", "patch")}


@pytest.mark.parametrize("look", leaks.LOOKS, ids=lambda look: look.__name__)
def test_nothing_is_left(cluster, look):
    try:
        wait_until(lambda: not look(cluster), 90, lambda: f"nothing is left: {look(cluster)}", pause=0.5)
    except TimeoutError:
        leaks.tell_groups(cluster)
        raise


def requests(cluster, user):
    return audit.requests(cluster, lambda entry: entry["user"]["username"] == user)


def test_nothing_was_refused(cluster):
    """Not by the roles, and not always.

    A starting API server or a change of the chart refuses requests for a moment.
    """
    for user in (CONTROLLER, NODE, PKI):
        made = {False: set(), True: set()}
        for entry in requests(cluster, user):
            if "objectRef" in entry:
                made[" cannot " in entry.get("responseStatus", {}).get("message", "")].add(right_of(entry))
        assert not made[True] - made[False]


def test_the_nodes_asked_for_nothing(cluster):
    assert not list(requests(cluster, NODE))


def test_the_account_that_makes_certificates_asked_for_nothing_else(cluster):
    """It lists nothing, and leaves other namespaces alone."""
    asked = [entry for entry in requests(cluster, PKI) if "objectRef" in entry]
    assert {entry["objectRef"].get("namespace") for entry in asked} == {NAMESPACE}
    allowed = {("", kind, verb) for kind in ("secrets", "configmaps") for verb in ("get", "create", "patch")}
    assert {right_of(entry) for entry in asked} <= allowed


def test_the_controllers_have_no_right_that_they_do_not_use(cluster):
    """After a whole run."""
    used = {right_of(entry) for entry in requests(cluster, CONTROLLER) if "objectRef" in entry}
    roles = [
        role
        for role in cluster.kubectl.items("clusterroles,roles", "--all-namespaces")
        if role["metadata"]["name"] == "lunkeeper-controller"
    ]
    assert [role["metadata"].get("namespace") for role in roles] == [None, "kube-node-lease", NAMESPACE]
    granted = {
        (group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert sorted(granted - used - ALLOWED) == []
