"""The QEMU of a guest."""

from __future__ import annotations

from harness.processes import Daemon


class WithQemu:
    _qemu: Daemon | None = None  # once it was started

    def running(self) -> bool:
        return self._qemu is not None and self._qemu.running()

    @property
    def pid(self) -> int:
        assert self._qemu is not None, "it was never started"
        return self._qemu.pid
