"""A flush that tgtd holds for longer than any other command may take, while it answers pings."""

import os
import threading
import time

import pytest

from harness import slow
from harness.cleanup import wait_until
from harness.volume import MIB, Volume

SECONDS = int(os.environ.get("FLUSH_SECONDS", "40"))  # 300 by name; a read or write may take 30


@pytest.mark.files  # of which tgtd's flushes are held
@pytest.mark.timeout(120 + 2 * SECONDS)
def test_a_flush_may_take_as_long_as_the_target_answers_pings(folder, xfs_pool):
    with slow.rig(folder, "held-flush", xfs_pool) as rig:
        volume = Volume(rig, rig.nodes[0], "held", block=True, size=16 * MIB).up()
        device = os.open(volume.path(), os.O_RDWR)
        took: list[float] = []

        def write_and_flush() -> None:
            begin = time.monotonic()
            os.pwrite(device, b"held" * (MIB // 4), 0)
            os.fsync(device)  # raises what a flush that failed says
            took.append(time.monotonic() - begin)

        slow.set_flush_delay(folder, SECONDS * 1000)
        writer = threading.Thread(target=write_and_flush, daemon=True)
        writer.start()
        writer.join(1)
        slow.set_flush_delay(folder, 0)  # of the next one
        wait_until(lambda: not writer.is_alive(), SECONDS + 60, "the flush is answered", pause=0.5)
        os.close(device)
        assert took and took[0] >= SECONDS, f"the flush was not held, or failed: {took}"
        assert "reconnecting" not in rig.nodes[0].datapath.log.read_text()
        volume.down().delete()
