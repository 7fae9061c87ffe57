"""A guest that migrates: a small machine with a published volume as its disk, which it writes without pause.

    source = MovingGuest(folder, "source", disk_on_a).boot()
    destination = MovingGuest(folder, "destination", disk_on_b).expect(source)
    source.migrate(destination)

The disk is set up as KubeVirt does it: direct I/O past the page cache, and an I/O error stops the machine
instead of reaching the guest. The processor is emulated. The guest is as small as its writer (writer.sh), and
says each acknowledged write to the outside, where it is known whatever becomes of the guest.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import socket
import struct
from collections.abc import Iterable
from typing import Any, Self

from guest import image
from guest.kernel import kernel
from guest.qemu import WithQemu
from harness.cleanup import Closing, wait_until
from harness.processes import Daemon

BOOT_SECONDS = 120  # about 6 alone; the machine may be busy
SECONDS = 60
HARDWARE = """
qemu-system-x86_64 -accel tcg -cpu max -machine q35 -smp 1 -m 192M
-nodefaults -no-user-config -no-reboot -display none
-device virtio-serial-pci -device virtserialport,chardev=report,name=report
-device virtio-blk-pci,drive=disk,werror=stop,rerror=stop
"""
KERNEL_LINE = "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off random.trust_cpu=on tsc=nowatchdog"
# So slow that the guest's memory takes minutes. Faster than any machine: nothing holds the migration back.
HELD_BACK, AT_FULL_SPEED = 256 << 10, 100 << 30  # bytes a second

Acked = tuple[int, int]  # a block, and the version of it that was acknowledged


class Monitor(Closing):
    """QEMU's machine protocol (QMP): one command at a time."""

    def __init__(self, path: pathlib.Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(SECONDS)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("rb")
        self._lines.readline()  # the greeting
        self.execute("qmp_capabilities")

    def execute(self, command: str, **arguments: object) -> Any:
        request: dict[str, object] = {"execute": command}
        if arguments:
            request["arguments"] = arguments
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        for line in self._lines:
            answer = json.loads(line)
            if "error" in answer:
                raise RuntimeError(f"{command}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]
        raise ConnectionError(f"{command}: qemu has closed the connection")

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


class MovingGuest(WithQemu, Closing):
    """One QEMU: the guest's first, or one that a migration fills. Not thread-safe."""

    def __init__(self, folder: pathlib.Path, name: str, disk: pathlib.Path) -> None:
        self.name, self.disk = name, disk
        self.report, self.console, self.initramfs, self._incoming, self._commands = (
            folder / f"{name}.{end}" for end in ("report", "console.log", "initramfs", "incoming", "qmp")
        )
        self._log = folder / f"{name}.qemu.log"
        self._monitor: Monitor | None = None

    def boot(self, record: bytes = b"") -> Self:
        """Until it writes. Before that it verifies `record`, what earlier guests have surely written."""
        image.make_writer(kernel(), self.initramfs, record)
        self._start()
        self.wait_for_writes(1, BOOT_SECONDS)
        assert not record or "verified" in self.said(), f"it found another content\n{self.tail()}"
        return self

    def expect(self, source: MovingGuest) -> Self:
        """Ready for a migration."""
        self.initramfs = source.initramfs
        self._start("-incoming", f"unix:{self._incoming}")
        assert self.status() == "inmigrate", self.tail()
        return self

    def _start(self, *options: str) -> None:
        # No sharing is declared: qemu's own locks are by device, and each node has a device of its own.
        disk = f"driver=host_device,node-name=disk,filename={self.disk},cache.direct=on,aio=native"
        words = [*HARDWARE.split(), "-blockdev", disk]
        words += ["-kernel", str(kernel().image), "-initrd", str(self.initramfs), "-append", KERNEL_LINE]
        words += ["-serial", f"file:{self.console}", "-chardev", f"file,id=report,path={self.report}"]
        words += ["-qmp", f"unix:{self._commands},server=on,wait=off", *options]
        self._qemu = Daemon(self.name, words, log=self._log, dies_with_us=True).start()
        wait_until(self._connect, SECONDS, self.tail)

    def _connect(self) -> bool:
        assert self.running(), self.tail()
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            self._monitor = Monitor(self._commands)
        return self._monitor is not None

    def execute(self, command: str, **arguments: object) -> Any:
        assert self._monitor is not None, "it was never started"
        return self._monitor.execute(command, **arguments)

    def status(self) -> str:
        """QEMU's word for it: running, io-error, inmigrate, postmigrate, …"""
        return str(self.execute("query-status")["status"])

    def wait_for_status(self, status: str) -> None:
        wait_until(
            lambda: self.status() == status, SECONDS, lambda: f"{status}, not {self.status()}\n{self.tail()}"
        )

    def retry(self) -> None:
        """Goes on after an I/O error: the writes that failed are sent again."""
        self.execute("cont")

    def migrate(self, to: MovingGuest, *, rate: int = AT_FULL_SPEED, pause: bool = False) -> None:
        """Begins a migration. `pause`: it waits when the guest is stopped here and not yet there."""
        capability = {"capability": "pause-before-switchover", "state": pause}
        self.execute("migrate-set-capabilities", capabilities=[capability])
        self.set_rate(rate)
        self.execute("migrate", uri=f"unix:{to._incoming}")

    def go_on_migrating(self) -> None:
        """After the pause."""
        self.execute("migrate-continue", state="pre-switchover")
        self.wait_for_migration("completed")

    def set_rate(self, rate: int) -> None:
        self.execute("migrate-set-parameters", **{"max-bandwidth": rate})

    def migration(self) -> str:
        """QEMU's word for it: active, pre-switchover, completed, failed, …"""
        return str(self.execute("query-migrate").get("status", "none"))

    def wait_for_migration(self, status: str) -> None:
        wait_until(
            lambda: self.migration() == status,
            SECONDS,
            lambda: f"{status}, not {self.migration()}\n{self.tail()}",
        )

    def said(self) -> list[str]:
        """The lines of the guest, without one that is not whole yet."""
        text = self.report.read_text(errors="replace") if self.report.exists() else ""
        return text.replace("\r", "").split("\n")[:-1]

    def acked(self) -> list[Acked]:
        """The acknowledged writes that this QEMU has told, in their order."""
        found = [re.fullmatch(r"acked (\d+) (\d+)", line) for line in self.said()]
        return [(int(match[1]), int(match[2])) for match in found if match]

    def complaints(self) -> list[str]:
        """What the checker in the guest says when it has met an I/O error or bad data."""
        return [line for line in self.said() if line != "verified" and not line.startswith("acked ")]

    def wait_for_writes(self, more: int, seconds: float = SECONDS) -> None:
        wanted = len(self.acked()) + more
        wait_until(
            lambda: self.complaints() or len(self.acked()) >= wanted,
            seconds,
            lambda: f"{more} more writes of {self.name}\n{self.tail()}",
        )
        assert not self.complaints(), self.tail()

    def wait_for_end(self) -> int:
        """The exit code of QEMU, when it ends by itself."""
        assert self._qemu is not None and self._qemu.process is not None, "it was never started"
        return self._qemu.process.wait(SECONDS)

    def tail(self) -> str:
        """The end of what the guest, its kernel and QEMU have said."""
        console = self.console.read_text(errors="replace") if self.console.exists() else ""
        last = [*self.said()[-10:], "--- its console:", *console.split("\n")[-20:]]
        return "\n".join([f"--- {self.name}:", *last, self._qemu.tail(5) if self._qemu else ""])

    def close(self) -> None:
        if self._monitor is not None:
            self._monitor.close()
        if self._qemu is not None:
            self._qemu.kill()


def record_of(acked: Iterable[Acked]) -> bytes:
    """A record of block_checker. Of each block one more write may have landed without an answer."""
    newest: dict[int, int] = {}
    for block, version in acked:
        newest[block] = max(version, newest.get(block, 0))
    rows = [newest.get(block, 0) for block in range(max(newest) + 1)]
    return b"".join(struct.pack("<II", version + 1, version) for version in rows)
