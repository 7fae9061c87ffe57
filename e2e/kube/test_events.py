"""What a user can get wrong, as kubectl describe shows it: what is wrong, with what, and what to do."""

import pytest

from harness.cleanup import wait_until


def wait_for_event(workloads, name, *words):
    def said():
        return any(all(word in event for word in words) for event in workloads.events(name))
    wait_until(said, 60, lambda: f"an event of {name} with {words}; there are {workloads.events(name)}", pause=0.5)


@pytest.mark.parametrize("parameters,words", [
    ({"colour": "red"}, ["ProvisioningFailed", "colour"]),
    ({"fsType": "zfs"}, ["ProvisioningFailed", "zfs", "xfs"]),
    ({"array": "nowhere"}, ["ProvisioningFailed", "nowhere"]),
    ({"provisioning": "medium"}, ["ProvisioningFailed", "provisioning", "thin or thick"]),
], ids=lambda value: next(iter(value)) if isinstance(value, dict) else "")
def test_a_wrong_parameter_is_named(workloads, parameters, words):
    workloads.claim("data", storage_class=workloads.storage_class(parameters=parameters))
    wait_for_event(workloads, "data", *words)


def test_a_volume_that_does_not_fit_says_so(workloads):
    workloads.claim("data", size="100Ti")
    wait_for_event(workloads, "data", "ProvisioningFailed", "more than the pool can give")
