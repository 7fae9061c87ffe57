"""`./dev demo --quick`: Lunkeeper's main job on one machine, without Kubernetes, in a few lines with times.

One array (tgt) and two nodes, each with a data path of its own. Node A writes and is fenced meanwhile. Node B
continues with every byte that was acknowledged to A. All that it prints is checked: the exit code is 0 only
then.
"""

import argparse
import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from harness import places, pool  # noqa: E402
from harness.cleanup import Cleanup, interrupt_on_sigterm, wait_until  # noqa: E402
from harness.leaks import Leaks  # noqa: E402
from harness.rig import Rig  # noqa: E402
from harness.story import check, step, tell  # noqa: E402
from harness.volume import MIB, Volume, from_snapshot  # noqa: E402

RECORD_BYTES = 4096


def record(number):
    """The correct content of record `number`."""
    seed = hashlib.sha256(str(number).encode()).digest()
    return (
        number.to_bytes(8, "little")
        + seed * ((RECORD_BYTES - 8) // len(seed))
        + bytes((RECORD_BYTES - 8) % len(seed))
    )


def write_records(path):
    """The pod: appends records, each made durable before its number is reported; ends with the error that
    stops it.
    """
    with open(path, "wb", buffering=0) as out:
        for number in range(1 << 30):
            try:
                out.write(record(number))
                os.fsync(out.fileno())
            except OSError as error:
                print(f"stopped by: {error.strerror}", flush=True)
                return
            print(number, flush=True)


class Pod:
    """A process that writes records to a file. Its log has the records that are durable."""

    def __init__(self, path, log):
        self.log = log
        with open(log, "wb") as out:
            self.process = subprocess.Popen([sys.executable, __file__, "--pod", str(path)], stdout=out)

    def lines(self):
        return self.log.read_text().split("\n")[:-1]

    def acknowledged(self):
        return sum(line.isdigit() for line in self.lines())

    def error(self):
        return next((line for line in self.lines() if not line.isdigit()), None)

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def intact_records(path, count):
    """How many of the first `count` records are as they were written."""
    with open(path, "rb") as data:
        return sum(data.read(RECORD_BYTES) == record(number) for number in range(count))


def medium(rig, volume):
    """A digest of the volume's file on the storage host."""
    (path,) = [
        path for path in rig.pool.rglob("*") if path.is_file() and volume.id.split(":")[-1] in path.name
    ]
    with open(path, "rb") as data:
        return hashlib.file_digest(data, "blake2b").hexdigest()[:16]


def cli(rig, *words):
    done = subprocess.run(
        [rig.binary, *words, f"--endpoint=unix://{rig.controller.socket}"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    check(done.returncode == 0, f"lunkeeper {' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout.strip()


def fence_while_writing(rig, volume, pod):
    """The number of records that were acknowledged to node A as durable, and the fence's generation."""
    node_a = volume.node
    before = pod.acknowledged()
    with step("Fenced node A while it was writing: no command of it is left in the target"):
        generation = re.search(r"generation (\d+)", cli(rig, "fence", node_a.id))[1]
    at_fence = medium(rig, volume)
    wait_until(pod.error, 20, "the pod on node A gets an error")
    tell(f"The pod on node A was {pod.error()}; {pod.acknowledged()} records were acknowledged to it")
    check(pod.acknowledged() > before, "the pod did not write while it was fenced")
    time.sleep(1.5)
    check(medium(rig, volume) == at_fence, "the medium changed after the fence")
    tell(f"The medium is as it was when the fence returned ({at_fence}), 1.5 s later")
    return pod.acknowledged(), generation


def move_and_check(rig, volume, snapshot, kept_at_snapshot, acknowledged):
    node_b = rig.nodes[1]
    with step("Mounted on node B"):
        moved = Volume(rig, node_b, volume.name)
        moved.id, moved.volume_context = volume.id, volume.volume_context
        moved.controller_publish().stage().publish()
    intact = intact_records(moved.target / "records", acknowledged)
    check(intact == acknowledged, f"{acknowledged - intact} of {acknowledged} acknowledged records are lost")
    tell(
        f"All {acknowledged} acknowledged records are there, byte for byte"
        f" ({acknowledged * RECORD_BYTES // 1024} KiB)"
    )
    with step("Restored the snapshot to a volume of its own, on node B"):
        restored = Volume(rig, node_b, "restored", source=from_snapshot(snapshot)).create()
        restored.controller_publish().stage().publish()
    intact = intact_records(restored.target / "records", kept_at_snapshot)
    check(intact == kept_at_snapshot, f"the snapshot lacks {kept_at_snapshot - intact} records")
    tell(f"It has the {kept_at_snapshot} records that were durable when it was taken")
    return moved, restored


def clean_up(rig, leaks, generation, volume, moved, restored, snapshot):
    with step("Cleaned up: node A let go of its dead device, everything is deleted"):
        volume.unpublish().unstage()
        cli(rig, "unfence", volume.node.id, f"--generation={generation}")
        for each in (restored, moved):
            each.unpublish().unstage().controller_unpublish().delete()
        rig.controller.client.DeleteSnapshot(snapshot_id=snapshot)
    left = leaks.found()
    check(not left, f"left behind: {left}")
    tell("No target, session, loop device, mount, file or row is left")


def play(folder, cleanup):
    with step("Started the storage host (tgt, a pool on XFS), a controller, and nodes A and B"):
        rig = Rig(folder / "rig", pool.xfs_pool(folder, cleanup), nodes=2, split=True)
        cleanup.add(rig.close)
    leaks = Leaks(rig)
    volume = Volume(rig, rig.nodes[0], "database", size=512 * MIB)
    with step("Created a volume, attached it to node A over iSCSI, made an XFS file system, mounted it"):
        volume.create().controller_publish().stage().publish()
    pod = Pod(volume.target / "records", folder / "pod.log")
    cleanup.add(pod.end)
    wait_until(lambda: pod.acknowledged() >= 200, 30, "the pod on node A writes")
    kept = pod.acknowledged()
    with step(f"Took a snapshot under a pod that writes 4 KiB records, each made durable ({kept} so far)"):
        snapshot = volume.snapshot("before-the-fence")
    wait_until(lambda: pod.acknowledged() >= kept + 200, 30, "the pod on node A goes on writing")
    acknowledged, generation = fence_while_writing(rig, volume, pod)
    pod.end()
    moved, restored = move_and_check(rig, volume, snapshot, kept, acknowledged)
    clean_up(rig, leaks, generation, volume, moved, restored, snapshot)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pod", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.pod:
        return write_records(arguments.pod)
    interrupt_on_sigterm()
    check(places.LUNKEEPER.exists(), f"{places.LUNKEEPER} is not built: ./dev build")
    with Cleanup() as cleanup:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="lk-demo-"))
        cleanup.add(shutil.rmtree, folder, True)
        play(folder, cleanup)
    tell("Done: fenced, moved, nothing lost.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
