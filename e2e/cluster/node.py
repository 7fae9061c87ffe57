"""A node's host: containerd, kubelet and kube-proxy, with folders of its own where theirs are on a machine."""

import json
import pathlib

import yaml

from cluster import control_plane, network, programs
from cluster.host import Host

SANDBOX_IMAGE = "lunkeeper.test/pause:1"
# What a machine keeps over a reboot, as folders of the host's own.
KEPT = ["/var/lib/kubelet", "/var/lib/containerd", "/var/lib/lunkeeper", "/var/lib/cni", "/var/log/pods", "/etc/cni/net.d"]

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
    def __init__(self, cluster, mark, name, number, folder, control):
        super().__init__(cluster, mark, name, number, pathlib.Path(folder) / name)
        self.control = control
        self.known_as = name  # as Kubernetes calls it

    def prepare(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "containerd.toml").write_text(CONTAINERD)
        (self.folder / "kubelet.yaml").write_text(yaml.safe_dump(self._kubelet()))
        (self.folder / "kube-proxy.yaml").write_text(yaml.safe_dump(self._proxy()))
        cni = self._kept("/etc/cni/net.d")
        cni.mkdir(parents=True, exist_ok=True)
        (cni / "10-ptp.conflist").write_text(json.dumps(self._pod_network()))

    def boot(self, images=()):
        """`images`: tars that are imported before kubelet starts; they stay on the disk."""
        importing = " && ".join(["ctr version", *(f"ctr -n k8s.io images import {image}" for image in images)])
        self.start({
            "tmpfs": ["/run"], "binds": {point: str(self._kept(point)) for point in KEPT}, "shared": ["/var/lib/kubelet"],
            "prepare": [["mkdir", "-p", "/run/netns", "/run/lock"]],
            "services": [
                self._service("containerd", ["containerd", "-c", self.folder / "containerd.toml"],
                              wait=["sh", "-c", importing]),
                self._service("kubelet", [
                    programs.path("kubelet"), f"--kubeconfig={self.control.folder / self.known_as}.conf",
                    f"--config={self.folder}/kubelet.yaml", f"--hostname-override={self.known_as}", f"--node-ip={self.address}"]),
                self._service("kube-proxy", [
                    programs.path("kube-proxy"), f"--config={self.folder}/kube-proxy.yaml",
                    f"--hostname-override={self.known_as}"])]})

    def _service(self, name, argv, **more):
        return {"name": name, "argv": [str(part) for part in argv], "log": str(self.folder / f"{name}.log"), **more}

    def _kept(self, point):
        return self.folder / "disk" / point.strip("/").replace("/", "-")

    def _kubelet(self):
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"}, "address": self.address,
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "clusterDNS": [self.control.address], "clusterDomain": control_plane.DOMAIN, "resolvConf": "",
            # Nodes share this machine's cgroups and memory: none of them may manage the whole of it.
            "cgroupDriver": "cgroupfs", "cgroupRoot": "/", "cgroupsPerQOS": False, "enforceNodeAllocatable": [],
            "failCgroupV1": False, "failSwapOn": False, "makeIPTablesUtilChains": False,
            # How soon kubelet notices that a mounted volume is to grow, and how full it is; a minute each by itself.
            "syncFrequency": "10s", "volumeStatsAggPeriod": "5s",
            # Imported images cannot be pulled again, and this machine's disk is not theirs alone.
            "imageGCHighThresholdPercent": 100, "evictionHard": {"memory.available": "100Mi"}}

    def _proxy(self):
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "nftables",
            "clientConnection": {"kubeconfig": str(self.control.kubeconfig)}, "clusterCIDR": f"{network.POD_SUBNETS}.0.0/16",
            "metricsBindAddress": "127.0.0.1:10249", "nftables": {"minSyncPeriod": "100ms"},
            "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}}

    def _pod_network(self):
        return {"cniVersion": "0.4.0", "name": "pods", "plugins": [{
            "type": "ptp", "ipMasq": False,
            "ipam": {"type": "host-local", "dataDir": "/run/cni-addresses",
                     "ranges": [[{"subnet": network.pod_subnet(self.number)}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
