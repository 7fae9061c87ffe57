"""A storage host outside the cluster joins with an invitation: no certificate is made or copied by hand."""

import subprocess

import pytest

from cluster import deploy
from harness.cleanup import wait_until
from harness.processes import MARK, Daemon, kill_pid, marked_with
from kube import documented

HERE = f"--namespace={deploy.NAMESPACE}"
ARRAY, PORT, PORTAL = "rack3", 7483, 3263
FOLDER, POOL = "/srv/join", "/srv/rack3"  # of the storage host, which has its own /srv
ACCOUNT = f"lunkeeper-array-{ARRAY}"


@pytest.fixture
def invited(cluster):
    """An array in the chart's values that has no certificate."""
    (first,) = deploy.values(cluster)["arrays"]
    address = f"{cluster.storage.address}:{PORT}"
    deploy.install(cluster, arrays=[{**first, "default": True}, {"name": ARRAY, "address": address}])
    yield cluster.storage
    wait_until(lambda: not volumes(cluster), 60, lambda: f"no volume is left: {volumes(cluster)}", pause=0.2)
    deploy.install(cluster)
    cluster.kubectl("label", "nodes", "--all", f"array.lunkeeper.io/{ARRAY}-")
    cluster.kubectl("delete", "secret", f"{ACCOUNT}-tls", "lunkeeper-controller-tls", HERE)
    for pid in marked_with(mark(cluster)):
        kill_pid(pid)
    cluster.storage.enter("rm", "-rf", FOLDER, POOL, check=True)
    cluster.storage.enter("sh", "-c", f"rm -f /var/lib/lunkeeper/array-{ARRAY}.*", check=True)


def volumes(cluster):
    return [
        volume["metadata"]["name"]
        for volume in cluster.kubectl.items("pv")
        if volume["spec"]["csi"]["volumeHandle"].startswith(f"{ARRAY}-v")
    ]


def mark(cluster):
    return f"{cluster.mark}-joined"


def join(cluster, host, invitation=None):
    """As the documents say; `invitation`: a file, the first time."""
    server = [f"--server=https://{cluster.control.address}"] if invitation else []
    done = host.enter(
        host.binary,
        "join",
        f"--folder={FOLDER}",
        *server,
        stdin=invitation or subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return host.enter("readlink", f"{FOLDER}/tls", capture_output=True, text=True, check=True).stdout


def start_agent(cluster, host):
    host.enter("mkdir", "-p", POOL, check=True)
    command = host.entering(
        host.binary,
        "array",
        f"--name={ARRAY}",
        f"--pool={POOL}",
        f"--portal={host.address}:{PORTAL}",
        f"--listen={host.address}:{PORT}",
        "--tgt-control-port=3",
        f"--tls-cert={FOLDER}/tls/tls.crt",
        f"--tls-key={FOLDER}/tls/tls.key",
        f"--tls-ca={FOLDER}/tls/ca.crt",
    )
    log = host.folder / "joined.log"
    Daemon("joined", command, log=log, environment={MARK: mark(cluster)}).start()


def certificate(cluster):
    """In the Secret that the host may read; None while it is not there."""
    found = cluster.kubectl.find("secret", f"{ACCOUNT}-tls", HERE)
    return found["data"]["tls.crt"] if found else None


def test_a_storage_host_joins_serves_volumes_and_renews_its_certificate(
    invited, cluster, workloads, tmp_path
):
    def token():
        return cluster.kubectl.get("secret", f"{ACCOUNT}-join", HERE).get("data", {}).get("token")

    wait_until(lambda: token() and certificate(cluster), 60, "the invitation is whole", pause=0.2)
    documented.run(cluster, "invitation", tmp_path)
    with open(tmp_path / "rack3.json", "rb") as invitation:
        first = join(cluster, invited, invitation)
    start_agent(cluster, invited)
    there = workloads.storage_class(parameters={"array": ARRAY})
    workloads.claim("data", storage_class=there)
    workloads.pod("reader", "data")
    workloads.wait_for_pod("reader", seconds=150)
    workloads.shell("reader", "echo hello > /data/file && sync")

    assert join(cluster, invited) == first, "a good certificate stays"
    old = certificate(cluster)
    cluster.kubectl("delete", "secret", f"{ACCOUNT}-tls", HERE)
    cluster.kubectl("create", "job", "renew-joined", HERE, "--from=cronjob/lunkeeper-pki")
    wait_until(lambda: certificate(cluster) not in (None, old), 60, "it is renewed", pause=0.2)
    assert join(cluster, invited) != first
    workloads.claim("another", storage_class=there)
    workloads.wait_for_bound("another")
    cluster.kubectl("delete", "job", "renew-joined", HERE)
    for kind, name in (("pod", "reader"), ("pvc", "data"), ("pvc", "another")):
        workloads.delete(kind, name)


def test_the_invitation_opens_nothing_else(invited, cluster):
    who = f"--as=system:serviceaccount:{deploy.NAMESPACE}:{ACCOUNT}"
    allowed = cluster.kubectl("auth", "can-i", "get", f"secrets/{ACCOUNT}-tls", HERE, who)
    assert allowed.strip() == "yes"
    for verb, thing in (
        ("get", "secrets/lunkeeper-authority"),
        ("get", "secrets/lunkeeper-controller-tls"),
        ("list", "secrets"),
        ("patch", f"secrets/{ACCOUNT}-tls"),
        ("get", "pods"),
    ):
        assert cluster.kubectl.attempt("auth", "can-i", verb, thing, HERE, who).stdout.strip() == "no"
