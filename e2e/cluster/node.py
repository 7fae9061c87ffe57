"""The host of a node: containerd, kubelet and kube-proxy, with the host's own folders instead of the
machine's.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import]  # Debian has no types of it

from cluster import control_plane, network, programs
from cluster.control_plane import ControlPlane
from cluster.host import Host

SANDBOX_IMAGE = "lunkeeper.test/pause:1"
# What a machine keeps over a reboot, as folders of the host's own.
KEPT = [
    "/var/lib/kubelet",
    "/var/lib/containerd",
    "/var/lib/lunkeeper",
    "/var/lib/cni",
    "/var/log/pods",
    "/etc/cni/net.d",
    "/srv",
]

CONTAINERD = f"""\
version = 2
oom_score = 0
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{SANDBOX_IMAGE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
"""


class Node(Host):
    def __init__(
        self, cluster: str, mark: str, name: str, number: int, folder: Path, control: ControlPlane
    ) -> None:
        super().__init__(cluster, mark, name, number, folder / name)
        self.control = control
        self.known_as = name  # as Kubernetes calls it

    def prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "containerd.toml").write_text(CONTAINERD)
        (self.folder / "kubelet.yaml").write_text(yaml.safe_dump(self._kubelet()))
        (self.folder / "kube-proxy.yaml").write_text(yaml.safe_dump(self._proxy()))
        cni = self._kept("/etc/cni/net.d")
        cni.mkdir(parents=True, exist_ok=True)
        (cni / "10-ptp.conflist").write_text(json.dumps(self._pod_network()))

    def boot(self, images: Iterable[Path] = ()) -> None:
        """`images`: tars that are imported before kubelet starts; they stay on the disk."""
        importing = " && ".join(
            ["ctr version", *(f"ctr -n k8s.io images import {image}" for image in images)]
        )
        self.start(
            {
                "tmpfs": ["/run"],
                "binds": {point: str(self._kept(point)) for point in KEPT},
                "shared": ["/var/lib/kubelet"],
                "prepare": [["mkdir", "-p", "/run/netns", "/run/lock"]],
                "services": [
                    self.service(
                        "containerd",
                        ["containerd", "-c", self.folder / "containerd.toml"],
                        wait=["sh", "-c", importing],
                    ),
                    self.service(
                        "kubelet",
                        [
                            programs.path("kubelet"),
                            f"--kubeconfig={self.control.folder / self.known_as}.conf",
                            f"--config={self.folder}/kubelet.yaml",
                            f"--hostname-override={self.known_as}",
                            f"--node-ip={self.address}",
                        ],
                    ),
                    self.service(
                        "kube-proxy",
                        [
                            programs.path("kube-proxy"),
                            f"--config={self.folder}/kube-proxy.yaml",
                            f"--hostname-override={self.known_as}",
                        ],
                    ),
                ],
            }
        )

    def _kept(self, point: str) -> Path:
        return self.folder / "disk" / point.strip("/").replace("/", "-")

    def _kubelet(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "address": self.address,
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "clusterDNS": [self.control.address],
            "clusterDomain": control_plane.DOMAIN,
            "resolvConf": "",
            # Nodes share this machine's cgroups and memory: none of them may manage the whole of it.
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": "/",
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "failCgroupV1": False,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            # How soon kubelet sees that a volume has to grow, and how full it is; by default a minute each.
            "syncFrequency": "10s",
            "volumeStatsAggPeriod": "5s",
            # Imported images cannot be pulled again, and this machine's disk is not theirs alone.
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "100Mi"},
        }

    def _proxy(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clientConnection": {"kubeconfig": str(self.control.kubeconfig)},
            "clusterCIDR": f"{network.POD_SUBNETS}.0.0/16",
            "metricsBindAddress": "127.0.0.1:10249",
            "nftables": {"minSyncPeriod": "100ms"},
            "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        }

    def _pod_network(self) -> dict[str, Any]:
        return {
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "ptp",
                    "ipMasq": False,
                    "ipam": {
                        "type": "host-local",
                        "dataDir": "/run/cni-addresses",
                        "ranges": [[{"subnet": network.pod_subnet(self.number)}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                }
            ],
        }
