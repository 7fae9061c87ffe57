"""A rig with all that a cluster has, but no Kubernetes: nodes take their volumes from the controller's
coordinator, and the controller fails them over. The API server is one in memory (fencing/failover/testing).
"""

import base64
import json
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request

import grpc

from agent.agents import AgentRig
from harness import mounts, places
from harness.cleanup import wait_until
from harness.processes import free_port

NODE_ACCOUNT = "system:serviceaccount:lunkeeper:lunkeeper-node"
SECRETS = "/run/secrets/kubernetes.io/serviceaccount"  # where kubelet puts a pod's token
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
STATEFUL = [{"kind": "StatefulSet", "controller": True}]


class ApiServer:
    """Every kind of object, by its path; a pod that is deleted runs again on `spare`, at once."""

    def __init__(self, spare, environment):
        self.process = subprocess.Popen(
            [places.API_SERVER, spare],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        told = json.loads(self.process.stdout.readline())
        self.server, self.ca = told["server"], told["ca"]
        self.tls = ssl.create_default_context(cafile=self.ca)

    def _ask(self, method, path, body=None):
        request = urllib.request.Request(self.server + path, method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/merge-patch+json")
        with urllib.request.urlopen(request, timeout=20, context=self.tls) as answer:
            return json.load(answer)

    def get(self, path):
        return self._ask("GET", path)

    def create(self, kind_path, name, **fields):
        metadata = {"name": name, **fields.pop("metadata", {})}
        return self._ask("POST", kind_path, {"metadata": metadata, **fields})

    def merge(self, path, **fields):
        return self._ask("PATCH", path, fields)

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)


def token(node, account=NODE_ACCOUNT):
    """As the API server in memory reads it: it says itself of whom it is."""
    claims = {"exp": int(time.time()) + 86400, "account": account, "node": node}
    return f"h.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.s"


class CoordinatedRig(AgentRig):
    def __init__(self, folder, pool, **options):
        self.coordinator_port = free_port()
        super().__init__(folder, pool, start=False, **options)
        self.api = ApiServer(self.nodes[0].name, self.environment)
        self.cleanup.add(self.api.close)
        self.renewed, self.renewing_ends = set(), threading.Event()  # of whose kubelets' leases
        self.kubelets = threading.Thread(target=self._renew_leases)
        self.metrics = {"controller": self.metrics_port, "array": self.agents[0].metrics_port}
        self._join_cluster()
        for node in self.nodes:
            self._let_ask(node)
        try:
            self.start()
            for node in self.nodes:
                self._register(node)
            self.kubelets.start()
            self.cleanup.add(self._end_kubelets)
        except BaseException:
            self.close()
            raise

    def _join_cluster(self):
        """The controller gets a coordinator, and finds an API server as in a pod."""
        self.api.create("/api/v1/namespaces/lunkeeper/configmaps", "lunkeeper-removed-arrays")
        self.coordinator = self.authority.issue("coordinator", "DNS:coordinator.example")
        self.settings = self.folder / "failover.json"
        self.settings.write_text('{"paused": false}')
        self._coordinate(self.controller, self.coordinator_port)

    def _coordinate(self, server, coordinator_port):
        certificate, key = self.coordinator
        server.argv += [
            f"--failover-settings={self.settings}",
            f"--coordinator-listen=127.0.0.1:{coordinator_port}",
            f"--coordinator-cert={certificate}",
            f"--coordinator-key={key}",
            f"--coordinator-account={NODE_ACCOUNT}",
        ]
        prepare = (
            f"{mounts.drop_others()}; mount -t tmpfs tmpfs /run"
            f" && mkdir -p {SECRETS} && cp {self.api.ca} {SECRETS}/ca.crt"
            f" && echo lunkeeper > {SECRETS}/namespace && echo {token('')} > {SECRETS}/token"
        )
        server.argv = [
            *("unshare", "--mount", "--propagation", "private", "sh", "-c", f'{prepare} && exec "$@"', "sh"),
            *server.argv,
        ]
        host, port = self.api.server.removeprefix("https://").split(":")
        server.environment |= {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}

    def _let_ask(self, node):
        path = self.folder / f"{node.name}.token"
        path.write_text(token(node.name))
        self.metrics[node.name] = free_port()
        registry = self.folder / f"{node.name}-registry"
        registry.mkdir()
        node.server.argv += [
            f"--coordinator-address=127.0.0.1:{self.coordinator_port}",
            "--coordinator-server-name=coordinator.example",
            f"--coordinator-ca={self.authority.certificate}",
            f"--token-file={path}",
            f"--metrics-address=127.0.0.1:{self.metrics[node.name]}",
            f"--registration-dir={registry}",
        ]

    def _register(self, node):
        """As kubelet does: it takes the driver, and the API server has the node and its driver's id."""
        registry = self.folder / f"{node.name}-registry"
        (socket,) = wait_until(lambda: list(registry.glob("*.sock")), 20, "the driver asks to be registered")
        with grpc.insecure_channel(f"unix://{socket}") as channel:
            # RegistrationStatus{plugin_registered: true}
            channel.unary_unary("/pluginregistration.Registration/NotifyRegistrationStatus")(
                b"\x08\x01", timeout=20
            )
        drivers = [{"name": "csi.lunkeeper.io", "nodeID": node.id}]
        self.api.create("/apis/storage.k8s.io/v1/csinodes", node.name, spec={"drivers": drivers})
        self.api.create("/api/v1/nodes", node.name, status=self.condition("True"))
        self.api.create(LEASES, node.name, metadata={"namespace": "kube-node-lease"}, spec={})
        self.renewed.add(node.name)

    def _renew_leases(self):
        while not self.renewing_ends.wait(2):
            for name in sorted(self.renewed):
                self.api.merge(
                    f"{LEASES}/{name}", spec={"renewTime": time.strftime("%FT%T.000000Z", time.gmtime())}
                )

    def _end_kubelets(self):
        self.renewing_ends.set()
        self.kubelets.join()

    @staticmethod
    def condition(ready):
        return {"conditions": [{"type": "Ready", "status": ready}]}

    def lose_kubelet(self, node):
        self.renewed.discard(node.name)
        self.api.merge(f"/api/v1/nodes/{node.name}", status=self.condition("Unknown"))

    def up(self, volume):
        """Created, claimed by a pod, and usable: a node is given nothing that no pod of it uses."""
        volume.create()
        self.claim(volume)
        return volume.up()

    def claim(self, volume):
        """A StatefulSet's pod on the volume's node, with the volume."""
        claim = {"claimName": volume.name}
        self.api.create(
            "/api/v1/persistentvolumes",
            volume.name,
            spec={
                "csi": {"driver": "csi.lunkeeper.io", "volumeHandle": volume.id},
                "claimRef": {"namespace": "db", "name": volume.name},
            },
            status={"phase": "Bound"},
        )
        self.api.create(
            "/api/v1/namespaces/db/pods",
            volume.name,
            metadata={"namespace": "db", "ownerReferences": STATEFUL},
            spec={
                "nodeName": volume.node.name,
                "volumes": [{"name": "data", "persistentVolumeClaim": claim}],
            },
            status={"phase": "Running", **self.condition("True")},
        )

    def fence_of(self, node):
        """The status of the node's NodeFence; empty: it has none."""
        listed = self.api.get("/apis/lunkeeper.io/v1alpha1/nodefences")["items"]
        return next(
            (each.get("status", {}) for each in listed if each["metadata"]["name"].startswith(node.name)), {}
        )
