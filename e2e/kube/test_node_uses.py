"""A node gets what its pods use, by the word of a real API server."""

from harness.cleanup import wait_until
from harness.csi import Client, capability, code_of


def test_a_node_is_not_given_the_volume_of_another_nodes_pod(cluster, workloads, tmp_path):
    workloads.claim("data")
    there, hostile = sorted(cluster.nodes)[:2]
    workloads.pod("reader", "data", nodeName=there)
    workloads.wait_for_pod("reader")
    (name,) = workloads.volumes()
    volume = workloads.kubectl.get("pv", name)["spec"]["csi"]["volumeHandle"]
    workloads.delete("pod", "reader")
    grants = f"SELECT node FROM grants WHERE volume = '{volume}'"
    wait_until(lambda: not cluster.storage.query_catalogue(grants), 60, "nobody has the volume")

    staging = "/var/lib/kubelet/plugins/stolen"
    cluster.nodes[hostile].enter("mkdir", "-p", staging, check=True)
    socket = tmp_path / "csi.sock"
    socket.symlink_to(cluster.nodes[hostile].folder / "disk/var-lib-kubelet/plugins/csi.lunkeeper.io.sock")
    client = Client(socket)

    def is_refused():
        """Until the controllers have watched for ten seconds they give what they are asked for."""
        code, text = code_of(
            client.NodeStageVolume,
            volume_id=volume,
            staging_target_path=staging,
            volume_capability=capability(fs=""),
        )
        if code == "OK":
            client.NodeUnstageVolume(volume_id=volume, staging_target_path=staging)
            return False
        assert code == "FAILED_PRECONDITION" and "knows no pod there" in text, f"{code}: {text}"
        return True

    wait_until(is_refused, 60, "the node is refused the volume", pause=1)
    cluster.nodes[hostile].enter("rmdir", staging, check=True)
    assert not cluster.storage.query_catalogue(grants)

    workloads.pod("again", "data", nodeName=hostile)
    workloads.wait_for_pod("again")
    workloads.delete("pod", "again")
