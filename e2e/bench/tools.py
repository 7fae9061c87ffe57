"""The programs that measure the data path, or that it is compared with.

These are fio on a block device, libiscsi's own iscsi-perf, and qemu-storage-daemon: its iSCSI driver behind a
FUSE export with a loop device on it is the nearest thing that anyone can install today.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import tempfile
import time

from harness.processes import children_of

# Of one fio run. An integer: fio takes a fraction for 0, and reads the whole device.
SECONDS = int(os.environ.get("BENCH_SECONDS", "3"))

# name: (fio's rw, block size in bytes, queue depth)
WORKLOADS = {
    "4k-randread-qd1": ("randread", 4096, 1),
    "4k-randread-qd32": ("randread", 4096, 32),
    "4k-randwrite-qd1": ("randwrite", 4096, 1),
    "4k-randwrite-qd32": ("randwrite", 4096, 32),
    "128k-read-qd16": ("read", 131072, 16),
    "128k-write-qd16": ("write", 131072, 16),
    "1m-read-qd8": ("read", 1 << 20, 8),
    "1m-write-qd8": ("write", 1 << 20, 8),
}


def fio(device, workload):
    """I/Os a second on a block device."""
    mode, size, depth = WORKLOADS[workload]
    run = subprocess.run(
        [
            "fio",
            "--name=bench",
            f"--filename={device}",
            "--ioengine=io_uring",
            "--direct=1",
            f"--rw={mode}",
            f"--bs={size}",
            f"--iodepth={depth}",
            f"--runtime={SECONDS}",
            "--time_based",
            "--randrepeat=0",
            "--output-format=json",
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=SECONDS + 60,
    )
    job = json.loads(run.stdout[run.stdout.index("{") :])["jobs"][0]
    return job["write" if "write" in mode else "read"]["iops"]


def iscsi_perf(connection, workload, block_size):
    """I/Os a second of libiscsi without a block device; None for writes, which iscsi-perf cannot measure."""
    mode, size, depth = WORKLOADS[workload]
    if "write" in mode:
        return None
    url = (
        f"iscsi://{connection['chapUser']}%{connection['chapSecret']}@{connection['portal']}/"
        f"{connection['target']}/{connection['lun']}"
    )
    run = subprocess.run(
        [
            "iscsi-perf",
            "-i",
            connection["initiator"],
            "-m",
            str(depth),
            "-b",
            str(size // block_size),
            "-t",
            str(max(2, round(SECONDS))),
            *(["-r"] if mode == "randread" else []),
            url,
        ],
        check=True,
        capture_output=True,
        timeout=SECONDS + 60,
    )
    averages = re.findall(r"iops average (\d+)", run.stdout.decode(errors="replace"))
    return float(averages[-1])


@contextlib.contextmanager
def qemu_device(connection):
    """A loop device on the FUSE export of qemu-storage-daemon's iSCSI driver."""
    with tempfile.TemporaryDirectory() as folder:
        image, secret = pathlib.Path(folder, "image"), pathlib.Path(folder, "secret")
        image.touch()
        secret.write_text(connection["chapSecret"])
        daemon = subprocess.Popen(
            [
                "qemu-storage-daemon",
                "--object",
                f"secret,id=chap,file={secret}",
                "--blockdev",
                f"driver=iscsi,node-name=disk,transport=tcp,portal={connection['portal']},"
                f"target={connection['target']},lun={connection['lun']},"
                f"initiator-name={connection['initiator']},user={connection['chapUser']},"
                "password-secret=chap,cache.direct=on",
                "--export",
                f"type=fuse,id=export,node-name=disk,mountpoint={image},writable=on",
            ]
        )
        device = None
        try:
            deadline = time.monotonic() + 10
            while image.stat().st_size == 0:
                if daemon.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("qemu-storage-daemon did not export the LUN within 10 s")
                time.sleep(0.05)
            device = subprocess.run(
                ["losetup", "--find", "--show", "--direct-io=on", image],
                check=True,
                capture_output=True,
                text=True,
            ).stdout.strip()
            yield device
        finally:
            if device:
                subprocess.run(["losetup", "--detach", device], check=False)
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(timeout=20)
            subprocess.run(["umount", "--lazy", image], check=False, capture_output=True)


def cpu_seconds(pid):
    """User and system time of a process and its children that live, so far."""
    total = 0.0
    for process in [pid, *descendants(pid)]:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def descendants(pid):
    """The children of a process, and theirs."""
    return [each for child in children_of(pid) for each in (child, *descendants(child))]


def resident_mib(pid):
    """Resident memory of one process, in MiB."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


median = statistics.median


def verdict(bar, met):
    """The text after a figure with a bar."""
    return f" (bar {bar}: {'met' if met else 'MISSED'})"
