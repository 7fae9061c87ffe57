"""The policy of docs/security.md: the controllers' account makes volumes of this driver, and no others."""

import yaml

from cluster import deploy
from harness import docs
from harness.cleanup import wait_until

ACCOUNT = f"system:serviceaccount:{deploy.NAMESPACE}:{deploy.RELEASE}-controller"
REFUSED = "this account makes volumes of csi.lunkeeper.io only"


def volume(**source):
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "of-a-hostile-sidecar"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], **source},
    }


def test_the_controllers_account_makes_volumes_of_this_driver_only(workloads):
    kubectl = workloads.kubectl
    policy = list(yaml.safe_load_all(docs.example("yaml", "kind: ValidatingAdmissionPolicyBinding")))

    def make(account, **source):
        """Nothing is stored; what the API server says of it."""
        words = ("create", "--dry-run=server", "--filename=-", *([f"--as={account}"] if account else []))
        done = kubectl.attempt(*words, given=volume(**source))
        return done.stdout + done.stderr

    root = {"hostPath": {"path": "/"}}
    assert "created" in make(ACCOUNT, **root), "what the policy is for"
    kubectl.apply(*policy)
    try:
        wait_until(lambda: REFUSED in make(ACCOUNT, **root), 60, "the policy holds", pause=0.5)
        assert "created" in make(None, **root), "it is about this account alone"
        assert REFUSED in make(ACCOUNT, csi={"driver": "other.example.com", "volumeHandle": "v"})
        assert "created" in make(ACCOUNT, csi={"driver": deploy.DRIVER, "volumeHandle": "v"})
        workloads.claim("data")
        workloads.wait_for_bound("data")
    finally:
        for each in policy:
            kubectl("delete", each["kind"], each["metadata"]["name"], "--ignore-not-found")
