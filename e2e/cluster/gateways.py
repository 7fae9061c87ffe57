"""A cluster whose array is in Ceph, with two gateways: a host that serves it, and one that stands by.

Ceph has a host of its own, which is always on: what is shown and tested here is the loss of gateways.
"""

from __future__ import annotations

from pathlib import Path

from cluster import faults, network
from cluster.cluster import Cluster
from cluster.host import Host
from cluster.storage import ARRAY, METRICS_PORT, NAME, NUMBER, PORTAL_PORT, StorageHost
from harness.ceph import Ceph
from harness.cleanup import wait_until

GATEWAYS = {NAME: NUMBER, "storage-2": 4}
CEPH, CEPH_NUMBER = "ceph", 5


class Gateway(StorageHost):
    serves_at_once = False  # the one that stands by serves only when the other is gone
    conf: Path  # of Ceph, once that runs

    def more_options(self) -> list[str]:
        peers = [network.address(number) for name, number in GATEWAYS.items() if name != self.name]
        return [
            f"--store=rbd:{Ceph.POOL}",
            f"--ceph-conf={self.conf}",
            *(f"--peer-portal={peer}:{PORTAL_PORT}" for peer in peers),
        ]

    def answers(self) -> bool:
        """Whether this one serves the array. Not while it is off."""
        url = f"http://127.0.0.1:{METRICS_PORT}/readyz"
        return self.enter("curl", "-fsS", url, capture_output=True, check=False).returncode == 0

    def stands_by(self) -> bool:
        """Whether it has seen that another one serves, since it was booted last or ended as a gateway."""
        log = (self.folder / "lunkeeper-array.log").read_text()[self.booted_at :]
        return "this agent stands by" in log.rpartition("this one ends, and its tgtd with it")[2]

    def boot(self) -> None:
        log = self.folder / "lunkeeper-array.log"
        self.booted_at = len(log.read_text()) if log.exists() else 0
        super().boot()


class GatewayCluster(Cluster):
    ceph: Ceph  # once it is up

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.gateways = [
            Gateway(self.prefix, self.mark, self.folder, self.binary, *each) for each in GATEWAYS.items()
        ]
        self.storage = self.gateways[0]
        self.ceph_host = Host(self.prefix, self.mark, CEPH, CEPH_NUMBER, self.folder / CEPH)

    def storage_hosts(self) -> list[StorageHost]:
        return [*self.gateways]

    def hosts(self) -> dict[str, Host]:
        return {**super().hosts(), CEPH: self.ceph_host}

    def boot_storage(self) -> None:
        where = self.ceph_host
        network.plug(self.prefix, CEPH, True)
        inside = ["nsenter", f"--net=/run/netns/{where.namespace}"]
        self.ceph = Ceph(where.folder, address=where.address, inside=inside)
        for gateway in self.gateways:
            gateway.conf = self.ceph.conf
            gateway.prepare()
        for gateway in self.gateways:
            gateway.boot()

    def serving(self) -> Gateway | None:
        """The gateway that serves the array; None while there is none."""
        return next((each for each in self.gateways if each.pid() and each.answers()), None)

    def mend_gateways(self) -> None:
        for gateway in self.gateways:
            if gateway.pid():
                faults.heal(gateway)
            else:
                gateway.boot()
        wait_until(self.serving, 60, "a gateway serves")

    def images_of_volumes(self) -> list[str]:
        return [name for name in self.ceph.rbd("ls", Ceph.POOL).split() if f".{ARRAY}." in name]

    def down(self) -> None:
        if hasattr(self, "ceph"):
            self.ceph.close()
        super().down()
