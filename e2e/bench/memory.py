"""Resident memory of the plugin and of the data path with 1, 50 and 200 attached volumes."""

import time

from bench import tools
from harness.rig import Rig
from harness.volume import MIB, Volume

COUNTS = (1, 50, 200)
PLUGIN_MIB, POOL_MIB, VOLUME_MIB = 24, 64, 0.25
IDLE_SECONDS = 7  # past the sweeps that the plugin makes every 5 s


def run(folder, pool):
    print(
        "\nResident memory, MiB (raw block volumes with one write each; "
        f"right after the last call → {IDLE_SECONDS} s later)",
        flush=True,
    )
    with Rig(folder / "memory", pool, split=True) as rig:
        volumes, node, first = [], rig.nodes[0], None
        for count in COUNTS:
            while len(volumes) < count:
                volume = Volume(rig, node, f"memory-{len(volumes)}", block=True, size=16 * MIB)
                volume.create().controller_publish().stage().publish()
                with open(volume.target, "r+b", buffering=0) as device:
                    device.write(b"x" * 4096)
                volumes.append(volume)
            busy = [tools.resident_mib(server.pid) for server in (node.server, rig.controller)]
            time.sleep(IDLE_SECONDS)
            plugin, controller = (tools.resident_mib(server.pid) for server in (node.server, rig.controller))
            supervisor, *workers = (
                tools.resident_mib(pid) for pid in (node.datapath.pid, *tools.descendants(node.datapath.pid))
            )
            datapath = supervisor + sum(workers)
            first = first if first is not None else datapath
            each = (datapath - first) / (count - 1) if count > 1 else 0
            bar = tools.verdict(PLUGIN_MIB, busy[0] <= PLUGIN_MIB)
            print(
                f"{count:4} volumes: "
                f"node plugin {busy[0]:.1f}{bar} → {plugin:.1f}, "
                f"controller {busy[1]:.1f} → {controller:.1f}, "
                f"data path {datapath:6.1f} (supervisor {supervisor:.1f}; pool {POOL_MIB}), "
                f"{each:.3f} a further volume{tools.verdict(VOLUME_MIB, each <= VOLUME_MIB)}",
                flush=True,
            )
        for volume in volumes:
            volume.unpublish().unstage().controller_unpublish().delete()
