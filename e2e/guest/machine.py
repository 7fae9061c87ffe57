"""A small machine with Debian's kernel, for what this machine's kernel cannot do or must not be asked to do.

    with Guest(folder, disks=["1G"]) as guest:
        guest.run("mke2fs -q /dev/vda")            # the output; fails on an exit code that is not 0
        guest.story("grow-under-a-writer")         # a whole Lunkeeper in it (life.py)

It is qemu with an emulated processor. It sees this machine's files, read-only, with a memory file system
above them: the same programs at the same paths. What it writes is gone with it. Its disks (/dev/vda, vdb, …)
are files in `folder`, and outlive `kill`. It boots in about ten seconds. It has no network, and cannot reach
this machine's kernel or clock. Nothing of it is left when it is closed; if this process is killed, the kernel
kills qemu with it.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import pathlib
import shlex
import socket
import subprocess
import time
from typing import Any, Self

from guest import image
from guest.kernel import ROOT, kernel
from guest.qemu import WithQemu
from harness import places
from harness.cleanup import wait_until
from harness.processes import Daemon

BOOT_SECONDS = 120  # about 8 alone; the machine may be busy
PYTHON = "/usr/bin/python3"
# Ahead of builds beside it: what runs inside has time limits of its own.
AHEAD = ("nice", "-n", "-10")
HARDWARE = """
qemu-system-x86_64 -accel tcg,thread=multi -cpu max -machine q35
-nodefaults -no-user-config -no-reboot -display none
-device virtio-serial-pci -object rng-random,id=random,filename=/dev/urandom -device virtio-rng-pci,rng=random
-fsdev local,id=machine,path=/,security_model=none,readonly=on,multidevs=remap
-device virtio-9p-pci,fsdev=machine,mount_tag=machine
"""
# panic=-1, with -no-reboot: a panic is the end of qemu.
KERNEL_LINE = "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off random.trust_cpu=on tsc=nowatchdog"


class GuestEnded(Exception):
    """It panicked, was killed, or powered off in the middle of a command."""


@dataclasses.dataclass(frozen=True)
class Result:
    code: int
    output: str


class Guest(WithQemu):
    """Not thread-safe: one command at a time."""

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        disks: list[str] | None = None,
        memory: str = "1536M",
        processors: int = 2,
        kernel_options: str = "",
        start: bool = True,
    ) -> None:
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.memory, self.processors = memory, processors
        self.kernel_line = f"{KERNEL_LINE} {kernel_options}"
        self.disks = [self._make_disk(number, size) for number, size in enumerate(disks or [])]
        self.console = self.folder / "console.log"
        self._socket: socket.socket | None = None
        self._received = b""
        self._number = 0
        if start:
            self.boot()

    def _make_disk(self, number: int, size: str) -> pathlib.Path:
        path = self.folder / f"disk{number}.img"
        subprocess.run(["truncate", "-s", size, str(path)], check=True, timeout=20)
        return path

    def boot(self) -> Self:
        """Starts it and waits for its first answer; again after its end, with the same disks."""
        assert not self.running(), "it runs already"
        self._forget_connection()
        initramfs, commands = self.folder / "initramfs", self.folder / "commands.sock"
        if not initramfs.exists():
            image.make(kernel(), initramfs)
        commands.unlink(missing_ok=True)
        self._qemu = Daemon(
            "guest",
            [*AHEAD, *self._command(initramfs, commands)],
            log=self.folder / "qemu.log",
            dies_with_us=True,
        ).start()
        try:
            wait_until(lambda: self._connect(commands), BOOT_SECONDS, self.tail)
            self._answer(0, time.monotonic() + BOOT_SECONDS)
        except BaseException:
            self.kill()
            raise
        return self

    def _command(self, initramfs: pathlib.Path, commands: pathlib.Path) -> list[str]:
        words = HARDWARE.split() + ["-smp", str(self.processors), "-m", self.memory]
        words += ["-kernel", str(kernel().image), "-initrd", str(initramfs), "-append", self.kernel_line]
        words += ["-serial", f"file:{self.console}"]
        words += ["-chardev", f"socket,id=commands,path={commands},server=on,wait=off"]
        words += ["-device", "virtserialport,chardev=commands,name=commands"]
        for number, disk in enumerate(self.disks):
            words += [
                "-drive",
                f"file={disk},format=raw,if=none,id=disk{number},cache=writeback,discard=unmap",
            ]
            words += ["-device", f"virtio-blk-pci,drive=disk{number}"]
        return words

    def _connect(self, commands: pathlib.Path) -> bool:
        if not self.running():
            raise GuestEnded(self.tail())
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(commands))
        except OSError:
            connection.close()
            return False
        self._socket = connection
        return True

    def try_run(self, script: str, seconds: float = 60) -> Result:
        """Runs a bash script. 124: it was not done in `seconds`."""
        assert self._socket is not None and self.running(), "it does not run"
        self._number += 1
        line = f"{self._number} {seconds:.0f} {base64.b64encode(script.encode()).decode()}\n"
        self._socket.sendall(line.encode())
        return self._answer(self._number, time.monotonic() + seconds + 15)

    def run(self, script: str, seconds: float = 60) -> str:
        """The output of a bash script that has to succeed."""
        result = self.try_run(script, seconds)
        if result.code != 0:
            raise RuntimeError(
                f"in the guest: {script}\nexit code {result.code}\n{result.output}\n{self.tail(10)}"
            )
        return result.output

    def python(self, module: str, *arguments: object, seconds: float = 120, **environment: object) -> str:
        """The output of a module of e2e/ that has to succeed."""
        words = [f"{name}={value}" for name, value in environment.items()]
        words += [f"PYTHONPATH={ROOT / 'e2e'}", PYTHON, "-m", module, *map(str, arguments)]
        return self.run(
            f"cd {shlex.quote(str(ROOT))} && env {shlex.join(words)}",
            seconds,
        )

    def story(
        self, name: str, seconds: float = 240, module: str = "guest.life", **environment: object
    ) -> dict[str, Any]:
        """What a story of life.py, or of another module, found, told by its last line."""
        said = self.python(module, name, seconds=seconds, LUNKEEPER=places.LUNKEEPER, **environment)
        return dict(json.loads(said.strip().split("\n")[-1]))

    def _answer(self, number: int, deadline: float) -> Result:
        while True:
            line = self._line(deadline).split(b" ")
            if len(line) == 3 and int(line[0]) == number:
                return Result(int(line[1]), base64.b64decode(line[2]).decode(errors="replace"))

    def _line(self, deadline: float) -> bytes:
        assert self._socket is not None
        while b"\n" not in self._received:
            self._socket.settimeout(max(0.1, deadline - time.monotonic()))
            try:
                got = self._socket.recv(1 << 20)
            except TimeoutError as error:
                raise TimeoutError(f"the guest does not answer\n{self.tail()}") from error
            except ConnectionError:
                got = b""
            if not got:
                raise GuestEnded(self.tail())
            self._received += got
        line, _, self._received = self._received.partition(b"\n")
        return line

    def wait_for_end(self, seconds: float) -> None:
        """Until it has powered off, or panicked."""
        wait_until(lambda: not self.running(), seconds, lambda: f"the guest ends\n{self.tail()}")

    def kill(self) -> None:
        """A power cut. What it had written to its disks is there at the next boot."""
        if self._qemu is not None:
            self._qemu.kill()
        self._forget_connection()

    def _forget_connection(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._received = None, b""

    def tail(self, lines: int = 30) -> str:
        """The end of what its kernel and qemu have said."""
        text = self.console.read_text(errors="replace") if self.console.exists() else ""
        qemu = self._qemu.tail(5) if self._qemu is not None else ""
        return "--- the guest's console:\n" + "\n".join(text.split("\n")[-lines:]) + "\n" + qemu

    def close(self) -> None:
        self.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()
