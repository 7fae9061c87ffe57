"""Certificates that an administrator or an operator stores in Secrets."""

import base64
import json
import re
import time

import pytest

from cluster import deploy, storage
from cluster.authority import Authority
from cluster.faults import kill_service
from harness.cleanup import wait_until

HERE = f"--namespace={deploy.NAMESPACE}"
SERVICES = ("coordinator", "snapshot-metadata")
DAY = 24 * 3600


@pytest.fixture
def own_certificates(cluster):
    """One for both services, as cert-manager and trust-manager would make it."""
    authority = Authority(cluster.folder / "own")
    names = [f"DNS:lunkeeper-{service}.{deploy.NAMESPACE}.svc" for service in SERVICES]
    certificate, key = authority.issue("controllers", *names)
    cluster.kubectl(
        "create",
        "secret",
        "generic",
        "own-tls",
        HERE,
        f"--from-file=tls.crt={certificate}",
        f"--from-file=tls.key={key}",
    )
    cluster.kubectl("create", "configmap", "own-ca", HERE, f"--from-file=ca.crt={authority.certificate}")
    deploy.install(
        cluster,
        coordinator={"tls": {"source": "secret", "secretName": "own-tls", "caConfigMap": "own-ca"}},
        snapshots={"metadata": {"tlsSecret": "own-tls"}},
    )
    yield
    deploy.install(cluster)
    cluster.kubectl("delete", "secret/own-tls", "configmap/own-ca", HERE)


def test_nodes_get_their_grants_by_certificates_that_the_job_did_not_make(own_certificates, workloads):
    assert not workloads.kubectl.items("cronjobs", HERE)
    workloads.pod_with_claim("reader")


def ends(cluster, file):
    """{controller: when the certificate in this file of it expires}."""
    found = {}
    for pod in deploy.pods(cluster, "controller"):
        name = pod["metadata"]["name"]
        shown = cluster.kubectl(
            "get", "--raw", f"/api/v1/namespaces/{deploy.NAMESPACE}/pods/{name}:9809/proxy/metrics"
        )
        (value,) = re.findall(
            rf'lunkeeper_certificate_end_seconds\{{[^}}]*"{re.escape(file)}"[^}}]*\}} (\S+)', shown
        )
        found[pod["metadata"]["uid"]] = float(value)
    return found


def test_a_replaced_certificate_of_an_array_is_used_without_a_restart(cluster, workloads):
    file = f"/etc/lunkeeper/tls/{storage.ARRAY}/tls.crt"
    certificate, key = Authority(cluster.storage.pki).issue(
        "renewed", f"DNS:controller.{storage.CLUSTER_ID}.cluster.lunkeeper.io", days=30
    )
    before, old = ends(cluster, file), cluster.kubectl.get("secret", deploy.ARRAY_SECRET, HERE)["data"]

    def put(data):
        cluster.kubectl("patch", "secret", deploy.ARRAY_SECRET, HERE, f"--patch={json.dumps({'data': data})}")

    put(
        {
            "tls.crt": base64.b64encode(certificate.read_bytes()).decode(),
            "tls.key": base64.b64encode(key.read_bytes()).decode(),
        }
    )
    try:
        wait_until(
            lambda: all(end < time.time() + 31 * DAY for end in ends(cluster, file).values()),
            150,
            "all have the new one",
            pause=0.5,
        )
        assert ends(cluster, file).keys() == before.keys()
        kill_service(cluster.storage, "lunkeeper-array")  # so that each reconnects
        workloads.claim("data")
        workloads.wait_for_bound("data")
    finally:
        put({name: old[name] for name in ("tls.crt", "tls.key")})
