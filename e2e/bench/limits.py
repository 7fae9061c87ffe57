"""How near a volume's I/O comes to its limits: 4 KiB random at depth 32, and 1 MiB in sequence."""

import pathlib
import time

from bench import tools
from bench.datapath import filled
from harness.rig import Rig
from harness.volume import MIB, Volume

SIZE = 256 * MIB
NEAR = 0.05
# (mutable parameters, workload, I/Os a second they stand for)
CASES = (
    ({"maxIops": "200"}, "4k-randread-qd32", 200),
    ({"maxIops": "200"}, "4k-randwrite-qd32", 200),
    ({"maxIops": "1000"}, "4k-randread-qd32", 1000),
    ({"maxIops": "1000"}, "4k-randwrite-qd32", 1000),
    ({"maxIops": "5000"}, "4k-randread-qd32", 5000),
    ({"maxBandwidth": "8Mi"}, "4k-randread-qd32", 2048),
    ({"maxBandwidth": "64Mi"}, "1m-read-qd8", 64),
    ({"maxBandwidth": "64Mi"}, "1m-write-qd8", 64),
)
NONE = {"maxIops": "unlimited", "maxBandwidth": "unlimited"}


def set_limits(volume: Volume, limits: dict[str, str]) -> None:
    """In force on the node within two seconds."""
    volume.modify(**{**NONE, **limits})
    time.sleep(2)


def run(folder: pathlib.Path, pool: pathlib.Path) -> None:
    print(f"Limits: {tools.SECONDS} s each, one volume, its file in memory", flush=True)
    with Rig(folder / "limits", pool) as rig:
        volume = Volume(rig, rig.nodes[0], "limited", block=True, size=SIZE).up()
        filled(volume.target, SIZE)
        free = {name: tools.fio(volume.target, name) for _, name, _ in CASES}
        print(f"\n{'limit':24} {'workload':20} {'I/Os a second':>14} {'without':>10}   of the limit")
        for limits, name, wanted in CASES:
            set_limits(volume, limits)
            speed = tools.fio(volume.target, name)
            near = abs(speed / wanted - 1) <= NEAR
            text = ", ".join(f"{key}={value}" for key, value in limits.items())
            print(
                f"{text:24} {name:20} {speed:14.0f} {free[name]:10.0f}   {speed / wanted:.3f}"
                f"{tools.verdict(f'within {NEAR:.0%}', near)}",
                flush=True,
            )
        volume.modify(**NONE)
        volume.down().delete()
