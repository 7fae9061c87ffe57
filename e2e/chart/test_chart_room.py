"""The Helm chart: how much room there is, for the scheduler."""

import yaml

from chart.charts import ONE_ARRAY, render


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
