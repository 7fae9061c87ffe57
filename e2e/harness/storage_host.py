"""A controller with its tgtd whose boot id can be changed, as if they stood on a machine of their own."""

import pathlib
import uuid

from harness import mounts
from harness.processes import kill_pid
from harness.rig import Rig

BOOT_ID = "/proc/sys/kernel/random/boot_id"


class StorageHost:
    REPLACEMENT_SECONDS = 5

    def __init__(self, folder, pool):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.boot_id = folder / "boot_id"
        self._new_boot_id()
        self.rig = Rig(folder, pool, split=True, start=False,
                       datapath_options=[f"--replacement-timeout={self.REPLACEMENT_SECONDS}"])
        # In a mount namespace of its own, where another file lies over the kernel's.
        script = f'{mounts.drop_others(keep=pool)}; mount --bind "{self.boot_id}" {BOOT_ID} && exec "$@"'
        self.rig.controller.argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh",
                                    *self.rig.controller.argv]
        try:
            self.rig.start()
        except BaseException:
            self.rig.close()
            raise

    def _new_boot_id(self):
        self.boot_id.write_text(f"{uuid.uuid4()}\n")

    def restart_tgtd(self):
        kill_pid(self.rig.tgtd())

    def go_away(self):
        tgtd = self.rig.tgtd()
        self.rig.controller.kill()
        kill_pid(tgtd)

    def come_back(self):
        self.rig.start()

    def reboot(self):
        self.go_away()
        self._new_boot_id()
        self.come_back()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.rig.close()
