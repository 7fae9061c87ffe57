"""A controller with its tgtd whose boot id can be changed, as if they stood on a machine of their own."""

import uuid
from pathlib import Path

from harness import mounts, store
from harness.cleanup import Closing
from harness.processes import kill_pid
from harness.rig import Rig

BOOT_ID = "/proc/sys/kernel/random/boot_id"


class StorageHost(Closing):
    # On Ceph one with another boot id is another gateway, and first waits for 5 s of silence.
    REPLACEMENT_SECONDS = 20 if store.ON_CEPH else 5

    def __init__(self, folder: Path, pool: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.boot_id = folder / "boot_id"
        self._new_boot_id()
        self.rig = Rig(
            folder,
            pool,
            split=True,
            start=False,
            datapath_options=[f"--replacement-timeout={self.REPLACEMENT_SECONDS}"],
        )
        # In a mount namespace of its own, where another file lies over the kernel's.
        script = f'{mounts.drop_others(keep=pool)}; mount --bind "{self.boot_id}" {BOOT_ID} && exec "$@"'
        self.rig.controller.argv = [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            script,
            "sh",
            *self.rig.controller.argv,
        ]
        try:
            self.rig.start()
        except BaseException:
            self.rig.close()
            raise

    def _new_boot_id(self) -> None:
        self.boot_id.write_text(f"{uuid.uuid4()}\n")

    def _tgtd(self) -> int:
        pid = self.rig.tgtd()
        assert pid is not None, "tgtd is down"
        return pid

    def restart_tgtd(self) -> None:
        kill_pid(self._tgtd())

    def go_away(self) -> None:
        tgtd = self._tgtd()
        self.rig.controller.kill()
        kill_pid(tgtd)

    def come_back(self) -> None:
        self.rig.start()

    def reboot(self) -> None:
        self.go_away()
        self._new_boot_id()
        self.come_back()

    def close(self) -> None:
        self.rig.close()
