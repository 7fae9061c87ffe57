"""What Lunkeeper asked the API server for while the other tests ran (the name sorts last), by the server's own audit log."""

import json

from cluster.deploy import NAMESPACE

CONTROLLER, NODE = (f"system:serviceaccount:{NAMESPACE}:lunkeeper-{which}" for which in ("controller", "node"))


def requests(cluster, user):
    """Of the account that is there now: while Lunkeeper is taken away, rights go before those who have them."""
    account = cluster.kubectl.get("serviceaccount", user.rpartition(":")[2], f"--namespace={NAMESPACE}")
    for line in cluster.control.audit_log.read_text().splitlines():
        entry = json.loads(line)
        if entry["user"]["username"] == user and entry["user"].get("uid") == account["metadata"]["uid"]:
            yield entry


def test_nothing_was_refused(cluster):
    """By the roles, that is: an API server that starts, or a namespace that ends, refuses too."""
    refused = {f"{entry['verb']} {entry['requestURI']}" for user in (CONTROLLER, NODE) for entry in requests(cluster, user)
               if "objectRef" in entry and " cannot " in entry.get("responseStatus", {}).get("message", "")}
    assert not refused


def test_the_nodes_asked_for_nothing(cluster):
    assert not list(requests(cluster, NODE))


def test_the_controllers_have_no_right_that_they_do_not_use(cluster):
    """After a whole run."""
    used = {(entry["objectRef"].get("apiGroup", ""), resource_of(entry["objectRef"]), entry["verb"])
            for entry in requests(cluster, CONTROLLER) if "objectRef" in entry}
    role = cluster.kubectl.get("clusterrole", "lunkeeper-controller")
    granted = {(group, resource, verb) for rule in role["rules"] for group in rule["apiGroups"]
               for resource in rule["resources"] for verb in rule["verbs"]}
    assert sorted(granted - used - ALLOWED) == []


# Used only in moments that a run need not have.
ALLOWED = {("", "events", "patch")} | {
    ("", "pods", "delete"), ("", "nodes", "patch"), ("events.k8s.io", "events", "create"),
    *(("lunkeeper.io", "nodefences", verb) for verb in ("create", "patch", "delete"))}


def resource_of(reference):
    return "/".join(part for part in (reference.get("resource"), reference.get("subresource")) if part)
