"""Runs inside the guest: volumes with the mount option by which kubelet labels them for SELinux.

python3 -m guest.labels STORY      # one of STORIES; tests start it with Guest.story
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
from collections.abc import Callable

from guest.life import lunkeeper
from harness.csi import capability, code_of
from harness.rig import Rig
from harness.volume import MIB, SIZE, Volume

LABEL = "system_u:object_r:container_file_t:s0:c1,c2"
# The same to the kernel. OpenShift's annotation of a namespace has the categories in this order.
LABEL_IN_DISORDER = "system_u:object_r:container_file_t:s0:c2,c1"
OTHER_LABEL = "system_u:object_r:container_file_t:s0:c1,c3"
UNKNOWN_LABEL = "system_u:object_r:never_heard_of_t:s0"
SIZES = {"ext4": 64 * MIB, "xfs": SIZE}


def option(label: str) -> str:
    """As kubelet writes it: in quotes, for the label's comma."""
    return f'context="{label}"'


def with_label(volume: Volume, label: str | None) -> Volume:
    """From now on this is asked for; None: no label."""
    flags = [option(label)] if label else []
    volume.capability = capability(fs=volume.fs, flags=flags)
    return volume


def new_volume(rig: Rig, name: str, fs: str) -> Volume:
    return Volume(rig, rig.nodes[0], name, fs=fs, size=SIZES[fs])


def label_of(path: pathlib.Path) -> str:
    """What SELinux goes by, which is not always what the medium has."""
    return os.getxattr(path, "security.selinux").decode().rstrip("\0")


def options_at(mount_point: pathlib.Path) -> list[str]:
    """Of the file system mounted there last, as the kernel tells them; they follow after " - TYPE SOURCE"."""
    for line in reversed(pathlib.Path("/proc/self/mountinfo").read_text().splitlines()):
        if line.split()[4] == str(mount_point):
            return split_options(line.split()[-1])
    return []


def split_options(text: str) -> list[str]:
    """At commas, but for those in quotes."""
    options = [""]
    for number, part in enumerate(text.split('"')):
        if number % 2:
            options[-1] += f'"{part}"'
        else:
            first, *others = part.split(",")
            options[-1] += first
            options += others
    return options


def label_volumes() -> dict[str, object]:
    """Staged and published with a label, and then without one, as on a node that does not know the option."""
    told = {}
    with lunkeeper() as rig:
        for fs in SIZES:
            volume = with_label(new_volume(rig, f"labelled-{fs}", fs), LABEL).up()
            file = volume.write_file("file", b"labelled")
            told[fs] = {
                "folder": label_of(volume.target),
                "file": label_of(file),
                "staged": options_at(volume.staging),
                "published": options_at(volume.target),
            }
            with_label(volume.down(), None).stage().publish()
            told[fs]["without"] = label_of(file)
            volume.down().delete()
    return dict(told)


def ask_for_another_label(rig: Rig, fs: str) -> dict[str, object]:
    """Of a volume that has one: while it is staged, and afterwards."""
    volume = with_label(new_volume(rig, f"asked-{fs}", fs), LABEL).up()
    file = volume.write_file("file", b"labelled")
    told: dict[str, object] = {"the same": code_of(with_label(volume, LABEL_IN_DISORDER).stage)}
    told["in place"] = code_of(with_label(volume, OTHER_LABEL).stage)
    elsewhere = with_label(new_volume(rig, f"elsewhere-{fs}", fs), OTHER_LABEL)
    elsewhere.id = volume.id
    told["elsewhere"] = code_of(elsewhere.stage)
    told["mounted elsewhere"] = options_at(elsewhere.staging)
    told["meanwhile"] = label_of(file)
    volume.down().stage().publish()
    told["afterwards"] = label_of(file)
    volume.down().delete()
    return told


def ask_for_other_labels() -> dict[str, object]:
    with lunkeeper() as rig:
        return {fs: ask_for_another_label(rig, fs) for fs in SIZES}


def be_refused() -> dict[str, object]:
    """The label, where SELinux or its policy does not know it; the volume is fine without."""
    with lunkeeper() as rig:
        volume = with_label(new_volume(rig, "refused", "ext4").create(), LABEL)
        told: dict[str, object] = {"known": code_of(volume.stage)}
        volume.unstage()
        told["unknown"] = code_of(with_label(volume, UNKNOWN_LABEL).stage)
        told["left"] = options_at(volume.staging)
        told["without"] = code_of(with_label(volume, None).stage)
        volume.unstage().delete()
        return told


STORIES: dict[str, Callable[[], dict[str, object]]] = {
    "label-volumes": label_volumes,
    "ask-for-other-labels": ask_for_other_labels,
    "be-refused": be_refused,
}


if __name__ == "__main__":
    print(json.dumps(STORIES[sys.argv[1]]()))
