"""The storage host: a pool on XFS, and `lunkeeper array` that serves it."""

from pathlib import Path
from typing import Any

from cluster.authority import Authority
from cluster.host import Host
from harness import catalogue
from harness.pool import run

NAME, NUMBER = "storage", 3
ARRAY = "rack1"
CLUSTER_ID = "test"  # whose volumes they are
PORTAL_PORT, AGENT_PORT, METRICS_PORT = 3260, 7480, 9810
POOL_SIZE = "20G"  # sparse
READY = ["curl", "-fsS", f"http://127.0.0.1:{METRICS_PORT}/readyz"]


class StorageHost(Host):
    serves_at_once = True

    def __init__(
        self, cluster: str, mark: str, folder: Path, binary: Path, name: str = NAME, number: int = NUMBER
    ) -> None:
        super().__init__(cluster, mark, name, number, folder / name)
        self.binary = binary
        self.pki = folder / NAME / "pki"
        self.agent_address = f"{self.address}:{AGENT_PORT}"

    def prepare(self) -> None:
        self.folder.mkdir(exist_ok=True)
        authority = Authority(self.pki)
        authority.issue("agent", f"DNS:{NAME}", f"IP:{self.address}")
        authority.issue("controller", f"DNS:controller.{CLUSTER_ID}.cluster.lunkeeper.io")
        run("truncate", "-s", POOL_SIZE, self.folder / "pool.img")
        run("mkfs.xfs", "-q", "-m", "reflink=1", self.folder / "pool.img")

    def more_options(self) -> list[str]:
        """Of the agent."""
        return []

    def boot(self) -> None:
        self.start(
            {
                "tmpfs": ["/run", "/srv"],
                "binds": {"/var/lib/lunkeeper": str(self.folder / "disk")},
                "prepare": [
                    ["mkdir", "-p", "/run/lock", "/srv/pool"],
                    ["mount", "-o", "loop", str(self.folder / "pool.img"), "/srv/pool"],
                ],
                "services": [
                    self.service(
                        "lunkeeper-array",
                        [
                            self.binary,
                            "array",
                            f"--name={ARRAY}",
                            "--pool=/srv/pool",
                            f"--portal={self.address}:{PORTAL_PORT}",
                            f"--listen={self.agent_address}",
                            f"--tls-cert={self.pki}/agent.crt",
                            f"--tls-key={self.pki}/agent.key",
                            f"--tls-ca={self.pki}/ca.crt",
                            f"--metrics-address=127.0.0.1:{METRICS_PORT}",
                            *self.more_options(),
                        ],
                        # tgtd goes on when the agent ends, and is found again.
                        **({"wait": READY} if self.serves_at_once else {}),
                    )
                ],
            }
        )

    def serves(self) -> bool:
        return self.pid() is not None and self.enter(*READY, capture_output=True).returncode == 0

    def query_catalogue(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a query on the array's catalogue."""
        return catalogue.query(Path(f"/proc/{self.pid()}/root/srv/pool"), sql)
