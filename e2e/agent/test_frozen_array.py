"""Of two arrays one is frozen while eight writers of its volumes wait: the other's volumes go on."""

import contextlib
import mmap
import os
import signal
import threading
import time

import pytest

from agent.agents import AgentRig
from harness.cleanup import Cleanup
from harness.volume import MIB, Volume

# 60 by name, and then the rates are compared: in a few seconds they say nothing.
FROZEN_SECONDS = int(os.environ.get("FROZEN_SECONDS", "0"))
KEPT = 0.8
WRITERS, BLOCK = 8, 128 << 10


class Writer:
    """Writes 128 KiB again and again, without a cache, on a thread of its own."""

    def __init__(self, volume: Volume) -> None:
        self.file = os.open(volume.path(), os.O_WRONLY | os.O_DIRECT)
        self.done, self.error, self.stopping = 0, "", False
        self.thread = threading.Thread(target=self.write)
        self.thread.start()

    def write(self) -> None:
        with contextlib.closing(mmap.mmap(-1, BLOCK)) as data:
            try:
                while not self.stopping:
                    os.pwrite(self.file, data, self.done % 64 * BLOCK)
                    self.done += 1
            except OSError as error:
                self.error = str(error)

    def stop(self) -> None:
        self.stopping = True
        self.thread.join()
        os.close(self.file)


def rate(writers: list[Writer], seconds: float) -> float:
    before, begin = sum(writer.done for writer in writers), time.monotonic()
    time.sleep(seconds)
    return (sum(writer.done for writer in writers) - before) / (time.monotonic() - begin)


@pytest.mark.timeout(120 + 4 * FROZEN_SECONDS)
def test_a_frozen_array_takes_nothing_from_the_volumes_of_another(folder, xfs_pool):
    seconds = FROZEN_SECONDS or 5
    with AgentRig(folder / "frozen", xfs_pool, arrays=2) as rig, Cleanup() as cleanup:
        volumes = {
            agent.array_name: [
                Volume(
                    rig,
                    rig.nodes[0],
                    f"{agent.array_name}-{number}",
                    block=True,
                    size=16 * MIB,
                    parameters={"array": agent.array_name},
                ).up(with_controller=True)
                for number in range(count)
            ]
            for agent, count in zip(rig.agents, (2, WRITERS))
        }
        well, frozen = ([Writer(volume) for volume in of_one] for of_one in volumes.values())
        for writer in [*well, *frozen]:
            cleanup.add(writer.stop)
        alone = rate(well, seconds / 2)
        tgtd = rig.agents[1].tgtd()
        os.kill(tgtd, signal.SIGSTOP)
        cleanup.add(os.kill, tgtd, signal.SIGCONT)
        time.sleep(0.5)  # what was on its way has come
        stands = [writer.done for writer in frozen]
        beside = rate(well, seconds)
        assert [writer.done for writer in frozen] == stands, "the array is not frozen"
        os.kill(tgtd, signal.SIGCONT)
        again = rate(frozen, seconds / 2)
        print(f"{alone:.0f} writes/s before, {beside:.0f} beside a frozen array; {again:.0f} there after it")
        assert beside > 0 and again > 0
        assert not FROZEN_SECONDS or beside >= KEPT * alone
        cleanup.run()
        assert not [writer.error for writer in [*well, *frozen] if writer.error]
        for volume in [volume for of_one in volumes.values() for volume in of_one]:
            volume.down(with_controller=True).delete()
