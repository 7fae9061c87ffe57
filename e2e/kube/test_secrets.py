"""Only the array and the node that has a volume know the secret of its target."""

import subprocess

from cluster.deploy import NAMESPACE


def test_no_secret_of_an_array_is_in_an_object_or_a_log(cluster, workloads):
    """Neither the secret of a grant nor that of a heartbeat LUN: in no object, and in no log of a host or its
    pods.
    """
    workloads.pod_with_claim("reader")
    asked = (
        "SELECT secret FROM grants UNION SELECT target_secret FROM grants"
        " UNION SELECT secret FROM heartbeat_luns UNION SELECT signing_key FROM heartbeat_luns"
        " UNION SELECT target_key FROM meta"
    )
    secrets = [secret for (secret,) in cluster.storage.query_catalogue(asked) if secret]
    assert len(secrets) > len(cluster.nodes) and all(len(secret) >= 12 for secret in secrets)

    kinds = workloads.kubectl("api-resources", "--verbs=list", "--output=name").split()
    objects = workloads.kubectl("get", ",".join(kinds), "--all-namespaces", "--output=json", seconds=120)
    assert workloads.namespace in objects and not any(secret in objects for secret in secrets)

    logs = [
        log
        for host in cluster.hosts().values()
        for pattern in ("*.log", f"disk/var-log-pods/{NAMESPACE}_*/*/*.log")
        for log in host.folder.glob(pattern)
    ]
    assert any(log.name == "lunkeeper-array.log" for log in logs) and any(
        "_lunkeeper-node-" in str(log) for log in logs
    )
    found = subprocess.run(
        ["grep", "--no-messages", "--files-with-matches", "--fixed-strings", "--file=-", *logs],
        input="\n".join(secrets),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert not found.stdout
