"""A Mesos agent's machine: a plugin, its data path and its array, and a provider that dies and returns."""

import shutil
import uuid

from harness.cleanup import wait_until
from harness.leaks import remove_devices
from harness.processes import kill_pid
from harness.rig import START_SECONDS, Rig
from mesos.protocols import capability
from mesos.provider import Provider
from mesos.service import Plugin

MIB = 1 << 20
MOUNT_BYTES, BLOCK_BYTES = 320 * MIB, 16 * MIB  # mkfs.xfs makes nothing smaller
PROFILES = {
    "xfs": (capability("xfs"), {}),
    "ext4": (capability(), {"fsType": "ext4", "provisioning": "thick"}),
    "raw": (capability(block=True), {"durability": "sync"}),
    "ext4-named": (capability("ext4"), {}),
}


class MesosRig(Rig):
    """The plugin serves `versions`, and is launched by a provider."""

    def __init__(self, folder, pool, versions, **options):
        self.versions = [f"--csi-versions={','.join(protocol.number for protocol in versions)}"]
        super().__init__(folder, pool, start=False, **options)
        datapath = self.nodes[0].datapath.start()
        try:
            wait_until(datapath.ready, START_SECONDS, datapath.tail)
        except BaseException:
            self.close()
            raise

    def _make_servers(self, split, array_options):
        super()._make_servers(split, array_options)
        (node,) = self.nodes
        options = [*self.controller.argv[4:], *self.versions]
        self.controller = node.server = Plugin(self, "plugin", "all", options)


class Machine:
    """`work` outlives the providers; each of them is made by `start`."""

    def __init__(self, rig, work, profiles=None, faults=None, plugin=None):
        self.rig, self.work, self.faults = rig, work, faults
        self.plugin = plugin or rig.controller
        self.profiles = profiles or PROFILES
        self.boot_id = str(uuid.uuid4())
        self.provider = None

    def start(self):
        """A provider, from what the one before has saved."""
        self.kill_provider()
        self.provider = Provider(self.plugin, self.work, self.profiles, self.boot_id, self.faults)
        self.provider.recover()
        return self.provider

    def kill_provider(self):
        if self.provider is not None:
            self.provider.service.close()
        self.provider = None

    def reboot(self):
        """What is in memory is gone: processes, mounts, devices. The array stands elsewhere."""
        self.kill_provider()
        self.plugin.kill()
        self.kill_data_path()
        remove_devices(self.rig)
        # What the data path notes is of a boot, and the kernel of this one goes on.
        shutil.rmtree(f"{self.rig.nodes[0].datapath.socket}.attached", ignore_errors=True)
        self.boot_id = str(uuid.uuid4())
        datapath = self.rig.nodes[0].datapath.start()
        wait_until(datapath.ready, START_SECONDS, datapath.tail)

    def kill_data_path(self):
        datapath = self.rig.nodes[0].datapath
        worker = datapath.worker()
        datapath.kill()
        if worker is not None:
            kill_pid(worker)

    def close(self):
        """The end of this provider, for good; of its volumes there is nothing left by now."""
        self.kill_provider()
        self.plugin.stop()
