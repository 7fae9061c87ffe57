"""The audit log of the API server. cluster/control_plane.py says whose requests it records."""

import json


def requests(cluster, wanted):
    """The entries of which `wanted(entry)` holds."""
    return filter(wanted, map(json.loads, cluster.control.audit_log.read_text().splitlines()))


def right_of(entry):
    """The right that a request about an object needs: (group, resource, verb)."""
    reference = entry["objectRef"]
    resource = "/".join(part for part in (reference.get("resource"), reference.get("subresource")) if part)
    return reference.get("apiGroup", ""), resource, entry["verb"]


def story_of(cluster, name):
    """For people: who changed the objects of this name, when, and with what result."""
    about = requests(cluster, lambda entry: entry.get("objectRef", {}).get("name") == name)
    return [
        f"{entry['requestReceivedTimestamp']} {entry['user']['username']} {right_of(entry)} "
        f"{entry['responseStatus']['code']}"
        for entry in about
        if entry["verb"] != "get"
    ]
