"""Volumes on a kernel with SELinux: kubelet gives a mount its pod's label, instead of relabelling each file.

The option comes by the driver's own calls, as from kubelet. The guest's policy is the one of labels.cil.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from guest.labels import LABEL, OTHER_LABEL, SIZES, option
from guest.machine import Guest
from harness import pool
from harness.cleanup import Cleanup

pytestmark = pytest.mark.timeout(600)
POLICY = Path(__file__).resolve().parent / "labels.cil"
LABEL_OF_THE_MEDIUM = "system_u:object_r:unlabeled_t:s0"
# In one write: the kernel takes no policy in parts.
LOAD = "mount -t selinuxfs none /sys/fs/selinux && dd if={policy} of=/sys/fs/selinux/load bs=1M status=none"


@pytest.fixture(scope="module")
def selinux_guest(folder: Path, module_cleanup: Cleanup) -> Guest:
    """Debian's kernel has SELinux, and prefers AppArmor without the option."""
    policy = folder / "policy"
    pool.run("secilc", "--output", policy, "--filecontext", "/dev/null", POLICY)
    guest = Guest(folder / "selinux", kernel_options="security=selinux", start=False)
    module_cleanup.add(guest.close)
    guest.boot().run(LOAD.format(policy=policy))
    return guest


@pytest.fixture(scope="module")
def labelled(selinux_guest: Guest) -> dict[str, Any]:
    return selinux_guest.story("label-volumes", module="guest.labels")


@pytest.fixture(scope="module")
def asked(selinux_guest: Guest) -> dict[str, Any]:
    return selinux_guest.story("ask-for-other-labels", module="guest.labels")


def test_its_kernel_has_selinux_and_the_policy(selinux_guest: Guest) -> None:
    """Without a policy each label would be taken as it stands."""
    assert selinux_guest.run("cat /proc/self/attr/current") == "system_u:system_r:kernel_t:s0\0"


@pytest.mark.parametrize("fs", SIZES)
def test_files_of_a_volume_have_the_label_that_it_was_staged_with(labelled: dict[str, Any], fs: str) -> None:
    assert labelled[fs]["folder"] == LABEL
    assert labelled[fs]["file"] == LABEL


@pytest.mark.parametrize("fs", SIZES)
def test_the_mount_table_tells_the_label_where_it_is_staged_and_published(
    labelled: dict[str, Any], fs: str
) -> None:
    assert option(LABEL) in labelled[fs]["staged"]
    assert option(LABEL) in labelled[fs]["published"]


@pytest.mark.parametrize("fs", SIZES)
def test_a_label_is_the_mount_s_and_is_not_written_to_the_medium(labelled: dict[str, Any], fs: str) -> None:
    assert labelled[fs]["without"] == LABEL_OF_THE_MEDIUM


@pytest.mark.parametrize("fs", SIZES)
def test_a_label_with_its_categories_in_another_order_is_the_same(asked: dict[str, Any], fs: str) -> None:
    assert asked[fs]["the same"] == ["OK", ""]


@pytest.mark.parametrize("fs", SIZES)
def test_a_volume_in_use_is_not_mounted_with_another_label_and_keeps_its_own(
    asked: dict[str, Any], fs: str
) -> None:
    code, text = asked[fs]["in place"]
    assert code == "ALREADY_EXISTS"
    assert "with another SELinux label" in text
    code, text = asked[fs]["elsewhere"]
    assert code != "OK"
    assert text
    assert asked[fs]["mounted elsewhere"] == []
    assert asked[fs]["meanwhile"] == LABEL


@pytest.mark.parametrize("fs", SIZES)
def test_a_volume_has_another_label_when_it_is_staged_next(asked: dict[str, Any], fs: str) -> None:
    assert asked[fs]["afterwards"] == OTHER_LABEL


def test_a_label_that_the_policy_does_not_know_is_refused_and_nothing_stays_mounted(
    selinux_guest: Guest,
) -> None:
    told = selinux_guest.story("be-refused", module="guest.labels")
    assert told["known"][0] == "OK"
    check_refusal(told, "unknown")


def test_a_kernel_without_selinux_refuses_each_label_and_nothing_stays_mounted(folder: Path) -> None:
    """Kubelet sends none there. A class's `mountOptions` may."""
    with Guest(folder / "plain") as guest:
        told = guest.story("be-refused", module="guest.labels")
    check_refusal(told, "known")
    check_refusal(told, "unknown")


def check_refusal(told: dict[str, Any], label: str) -> None:
    code, text = told[label]
    assert code == "INVALID_ARGUMENT"
    assert "with mount flags (1): Invalid argument" in text
    assert told["left"] == []
    assert told["without"] == ["OK", ""]
