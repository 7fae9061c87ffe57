"""What a user can get wrong, as kubectl describe shows it: what is wrong, with what, and what to do."""

import pytest

from kube.workloads import wait_for_event


@pytest.mark.parametrize("parameters,words", [
    ({"colour": "red"}, ["ProvisioningFailed", "colour"]),
    ({"fsType": "zfs"}, ["ProvisioningFailed", "zfs", "xfs"]),
    ({"array": "nowhere"}, ["ProvisioningFailed", "nowhere"]),
    ({"pool": "fast"}, ["ProvisioningFailed", "there is no pool fast", "each array has one pool"]),
    ({"provisioning": "medium"}, ["ProvisioningFailed", "provisioning", "thin or thick"]),
], ids=lambda value: next(iter(value)) if isinstance(value, dict) else "")
def test_a_wrong_parameter_is_named(workloads, parameters, words):
    workloads.claim("data", storage_class=workloads.storage_class(parameters=parameters))
    wait_for_event(workloads, "data", *words)


def test_a_volume_that_does_not_fit_says_so(workloads):
    workloads.claim("data", size="100Ti")
    wait_for_event(workloads, "data", "ProvisioningFailed", "more than the pool can give")
