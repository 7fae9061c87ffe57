"""The Helm chart: how much room there is, for the scheduler, and the record of removed arrays."""

import yaml

from chart.charts import ONE_ARRAY, find, render


def test_capacity_is_told_to_the_scheduler_all_of_it_or_nothing(values):
    """The CSIDriver's word, the sidecar's option with its two variables, and the rights come together."""
    parts = {
        "storageCapacity: true",
        "--enable-capacity",
        "--capacity-ownerref-level=2",
        "fieldPath: metadata.namespace",
        "csistoragecapacities",
        "replicasets",
    }

    def shown(**sidecars):
        text = yaml.safe_dump(render(values({**ONE_ARRAY, "sidecars": sidecars})))
        return {part for part in parts if part in text}, "--capacity-poll-interval=7s" in text

    assert shown() == (parts, False)
    assert shown(capacity={"pollSeconds": 7}) == (parts, True)
    assert shown(capacity={"enabled": False}) == (set(), False)


def test_no_limit_ends_the_check_of_a_large_file_system_half_way(values):
    """Tools are in the node plugin's container: at its limit the kernel kills them, and the plugin too."""
    for name in ("storage-lunkeeper-node", "storage-lunkeeper-datapath"):
        spec = find(render(values(ONE_ARRAY)), "DaemonSet", name)["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        assert "limits" not in container["resources"], name


def test_what_is_removed_is_recorded_where_failover_is_and_nowhere_else(values):
    """The record is empty, so that an upgrade changes nothing of it; controllers may write that one alone."""
    record = find(render(values(ONE_ARRAY)), "ConfigMap", "lunkeeper-removed-arrays")
    assert "data" not in record
    without = render(values({**ONE_ARRAY, "failover": {"enabled": False}}))
    assert "lunkeeper-removed-arrays" not in yaml.safe_dump(without)
