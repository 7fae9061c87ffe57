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
