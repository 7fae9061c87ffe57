"""The control plane's host: etcd, API server, controller manager, scheduler, DNS, snapshot controller."""

import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cluster import programs
from cluster.host import Host
from harness.pool import run

NAME, NUMBER = "control", 2
PORT = 443  # also at the Service's address, so that pods reach the API without kube-proxy's help
SERVICE_SUBNET, API_SERVICE = "10.96.0.0/16", "10.96.0.1"
DOMAIN = "cluster.local"

KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters:
- {{name: test, cluster: {{server: "https://{address}", certificate-authority: {pki}/apiserver.crt}}}}
users: [{{name: {user}, user: {{token: {token}}}}}]
contexts: [{{name: test, context: {{cluster: test, user: {user}}}}}]
current-context: test
"""

COREFILE = """\
.:53 {{
  errors
  kubernetes {domain} {{
    kubeconfig {kubeconfig}
    ttl 2
  }}
}}
"""


# Records the requests of Lunkeeper and the refusals: the chart's roles name exactly the verbs that are used.
AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: Metadata, userGroups: ["system:serviceaccounts:lunkeeper"]}
  # What becomes of a group of snapshots is in three programs' hands.
  - level: Metadata
    verbs: [create, update, patch, delete, deletecollection]
    resources: [{group: groupsnapshot.storage.k8s.io}]
  - {level: None}
"""


class ControlPlane(Host):
    def __init__(self, cluster: str, mark: str, folder: Path) -> None:
        super().__init__(cluster, mark, NAME, NUMBER, folder / NAME)
        self.pki = self.folder / "pki"
        self.kubeconfig = self.folder / "admin.conf"
        self.audit_log = self.folder / "audit.log"

    def prepare(self, nodes: Iterable[str]) -> None:
        """Keys, and a token and a kubeconfig for the administrator and each node."""
        self.pki.mkdir(parents=True, exist_ok=True)
        run("openssl", "genrsa", "-out", self.pki / "sa.key", "2048")
        run("openssl", "rsa", "-in", self.pki / "sa.key", "-pubout", "-out", self.pki / "sa.pub")
        users = {"admin": "system:masters", **{f"system:node:{node}": "system:nodes" for node in nodes}}
        tokens = []
        for user, group in users.items():
            token = secrets.token_hex(16)
            tokens.append(f'{token},{user},{user},"{group}"\n')
            config = self.folder / f"{user.rpartition(':')[2]}.conf"
            config.write_text(KUBECONFIG.format(address=self.address, pki=self.pki, user=user, token=token))
            config.chmod(0o600)
        (self.pki / "tokens.csv").write_text("".join(tokens))
        (self.folder / "audit.yaml").write_text(AUDIT_POLICY)
        (self.folder / "Corefile").write_text(COREFILE.format(domain=DOMAIN, kubeconfig=self.kubeconfig))

    def boot(self) -> None:
        kubectl = [str(programs.path("kubectl")), f"--kubeconfig={self.kubeconfig}"]
        kubeconfig = f"--kubeconfig={self.kubeconfig}"
        self.start(
            {
                "tmpfs": ["/run"],
                "prepare": [["ip", "address", "add", f"{API_SERVICE}/32", "dev", "lo"]],
                "services": [
                    self._program("etcd", self._etcd()),
                    self._program(
                        "kube-apiserver", self._apiserver(), wait=[*kubectl, "get", "--raw", "/readyz"]
                    ),
                    self._program(
                        "kube-controller-manager",
                        [
                            kubeconfig,
                            f"--service-account-private-key-file={self.pki}/sa.key",
                            f"--root-ca-file={self.pki}/apiserver.crt",
                            "--leader-elect=false",
                        ],
                    ),
                    self._program("kube-scheduler", [kubeconfig, "--leader-elect=false"]),
                    # Waits for the snapshot CRDs by ending and being started again.
                    self._program(
                        "snapshot-controller",
                        [
                            kubeconfig,
                            "--feature-gates=CSIVolumeGroupSnapshot=true",
                            # By default it waits up to five minutes after an error, longer than any test.
                            "--retry-interval-max=10s",
                        ],
                    ),
                    self._program("coredns", ["-conf", self.folder / "Corefile"]),
                ],
            }
        )

    def _program(self, name: str, arguments: Iterable[object], **more: object) -> dict[str, Any]:
        program = "etcd" if name == "etcd" else programs.path(name)
        return self.service(name, [program, *arguments], **more)

    def _etcd(self) -> list[object]:
        # Its data are a test's: they need not survive this machine's power failure.
        return [
            "--data-dir",
            self.folder / "etcd",
            "--unsafe-no-fsync",
            "--listen-client-urls",
            "http://127.0.0.1:2379",
            "--advertise-client-urls",
            "http://127.0.0.1:2379",
            "--listen-peer-urls",
            "http://127.0.0.1:2380",
        ]

    def _apiserver(self) -> list[object]:
        return [
            "--etcd-servers=http://127.0.0.1:2379",
            "--bind-address=0.0.0.0",
            f"--advertise-address={self.address}",
            f"--secure-port={PORT}",
            f"--cert-dir={self.pki}",
            f"--token-auth-file={self.pki}/tokens.csv",
            f"--service-account-key-file={self.pki}/sa.pub",
            f"--service-account-signing-key-file={self.pki}/sa.key",
            f"--service-account-issuer=https://kubernetes.default.svc.{DOMAIN}",
            f"--service-cluster-ip-range={SERVICE_SUBNET}",
            "--authorization-mode=Node,RBAC",
            f"--audit-policy-file={self.folder}/audit.yaml",
            f"--audit-log-path={self.audit_log}",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged",
            "--kubelet-preferred-address-types=InternalIP",
        ]
