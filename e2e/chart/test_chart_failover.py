"""Failover's settings: controllers read them again, so changing them restarts nothing."""

import json

from chart.charts import ONE_ARRAY, every_pod, find, render


def test_what_is_tainted_keeps_none_of_our_own_pods_off(values):
    """Whatever tolerations are set: a plugin that is kept off its node would be silent for ever."""
    for tolerations in ([], [{"key": "c", "operator": "Exists"}]):
        content = {"controller": {"tolerations": tolerations}, "node": {"tolerations": tolerations}}
        for name, spec in every_pod(render(values({**ONE_ARRAY, **content}))).items():
            tolerated = {each.get("key") for each in spec.get("tolerations") or []}
            assert tolerated & {None, "lunkeeper.io/plugin-not-ready"}, name


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
