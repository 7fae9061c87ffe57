"""The end of a host whose volumes are served by a process of its own.

The processes of such a host die at once. The last of them may have both a volume's file system in its
mounts and the last descriptor of the FUSE connection that serves it. The kernel unmounts first, and the
unmount waits for an answer of the connection, which would end only after it. No machine that loses its power
has that. An abort of the connection ends it.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile

from cluster import loops
from harness.cleanup import wait_until
from harness.processes import alive, kill_pid

PATIENCE_SECONDS = 2


def kill_host(first: int) -> None:
    """SIGKILL for the first process of a host, with which all others end; and wait until they are gone."""
    below = loops.backing_devices(loops.mounted_at(first))
    served = {os.minor(device) for device in below if os.major(device) == 0}  # FUSE's
    with contextlib.suppress(ProcessLookupError):
        os.kill(first, signal.SIGKILL)
    try:
        wait_until(lambda: not alive(first), PATIENCE_SECONDS, f"host {first} ends")
    except TimeoutError:
        abort(served)
    kill_pid(first)


def abort(connections: set[int]) -> None:
    """Ends these FUSE connections; their requests fail."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["mount", "-t", "fusectl", "none", folder], check=True)
        try:
            for number in connections:
                with contextlib.suppress(FileNotFoundError):
                    (pathlib.Path(folder) / str(number) / "abort").write_text("1")
        finally:
            subprocess.run(["umount", folder], check=True)
