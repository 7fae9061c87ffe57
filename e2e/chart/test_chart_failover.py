"""Failover's settings: controllers read them again, so changing them restarts nothing."""

import json

from chart.charts import ONE_ARRAY, find, render


def test_only_switching_failover_off_restarts_a_controller(values):
    def rendered(**failover):
        things = render(values({**ONE_ARRAY, "failover": failover}))
        settings = [
            json.loads(thing["data"]["failover.json"])
            for thing in things
            if thing["kind"] == "ConfigMap" and thing["metadata"]["name"] == "storage-lunkeeper-failover"
        ]
        return settings, find(things, "Deployment")

    before, deployment = rendered()
    changed, same = rendered(paused=True, budgetPercent=50, silenceSeconds=5, ownerKinds=["Cluster"])
    assert same == deployment
    assert changed == [
        {**before[0], "paused": True, "budgetPercent": 50, "silenceSeconds": 5, "ownerKinds": ["Cluster"]}
    ]
    none, other = rendered(enabled=False)
    assert not none and other != deployment
