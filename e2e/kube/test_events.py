"""Mistakes of users: kubectl describe shows what is wrong, with what, and what to do."""

import pytest

from kube.workloads import wait_for_event


@pytest.mark.parametrize(
    "parameters,words",
    [
        ({"colour": "red"}, ["ProvisioningFailed", "colour"]),
        ({"fsType": "zfs"}, ["ProvisioningFailed", "zfs", "xfs"]),
        ({"array": "nowhere"}, ["ProvisioningFailed", "nowhere"]),
        ({"pool": "fast"}, ["ProvisioningFailed", "there is no pool fast", "each array has one pool"]),
        ({"provisioning": "medium"}, ["ProvisioningFailed", "provisioning", "thin or thick"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_wrong_parameter_is_named(workloads, parameters, words):
    workloads.claim("data", storage_class=workloads.storage_class(parameters=parameters))
    wait_for_event(workloads, "data", *words)


def test_a_volume_that_does_not_fit_says_so(workloads):
    workloads.claim("data", size="100Ti")
    wait_for_event(workloads, "data", "ProvisioningFailed", "more than the pool can give")


def test_a_full_pool_says_what_is_left_and_what_is_needed(workloads):
    thick = workloads.storage_class(parameters={"provisioning": "thick"})
    workloads.claim("most", storage_class=thick, size="15Gi")
    workloads.wait_for_bound("most")
    workloads.claim("more", storage_class=thick, size="15Gi")
    wait_for_event(
        workloads, "more", "ProvisioningFailed", "the pool has", f"{15 << 30} are needed", "or grow the pool"
    )


def test_a_file_system_for_many_writers_is_refused(workloads):
    workloads.claim("data", mode="ReadWriteMany")
    wait_for_event(
        workloads,
        "data",
        "ProvisioningFailed",
        "a file system cannot be written by several nodes: use a block volume",
    )


def test_growth_past_the_pool_says_so(workloads):
    workloads.claim("data")
    workloads.wait_for_bound("data")
    workloads.kubectl(
        "patch",
        "pvc",
        "data",
        *workloads.here,
        "-p",
        '{"spec": {"resources": {"requests": {"storage": "100Ti"}}}}',
    )
    wait_for_event(workloads, "data", "VolumeResizeFailed", "more than the pool can give")


@pytest.mark.parametrize(
    "option,words",
    [
        ("noload", ["mount_flags: number 1 of 1", "not for users to set; leave it out"]),
        ("colour=red", ["mount_flags: number 1 of 1", "not for users to set; leave it out"]),
        ("wsync", ["mounting ext4", "with mount flags (1)", "Invalid argument"]),
    ],
    ids=["not for users", "unknown", "of XFS"],
)
def test_a_wrong_mount_option_is_found_by_its_place(workloads, option, words):
    workloads.claim("data", storage_class=workloads.storage_class(mountOptions=[option]))
    workloads.pod("reader", "data")
    wait_for_event(workloads, "reader", "FailedMount", *words)


def test_a_volume_for_readers_that_nobody_wrote_says_what_it_lacks(workloads):
    workloads.claim("data", mode="ReadOnlyMany")
    workloads.pod("reader", "data")
    wait_for_event(workloads, "reader", "FailedMount", "it is blank and read-only; stage it writable once")
