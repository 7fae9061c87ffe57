"""Failover's settings, changed while the controllers run."""

import itertools

from cluster import deploy
from harness.cleanup import wait_until
from kube.failover.watching import SETTINGS_SECONDS

# Each of them is as good as all of the few nodes. `lunkeeper status` shows the budget; the settings come in
# one file, so it shows for all of them whether they are in force.
BUDGETS = itertools.cycle(range(90, 100))


def change(failover, **values):
    """Gives the chart's `failover` these values beside the usual ones, and waits until they are in force.

    In each controller: none may be on a node that is dead or cut off.
    """
    usual = deploy.values(failover.cluster)
    budget = next(BUDGETS) if values else usual["failover"]["budgetPercent"]
    given = {**usual, "failover": {**usual["failover"], **values, "budgetPercent": budget}}
    # Not --wait: pods on a dead node are not ready.
    deploy.helm(failover.cluster, "upgrade", deploy.RELEASE, deploy.CHART, "--values=-", given=given)
    words = f"budget {budget} % of the nodes"

    def in_force():
        look_again(failover, budget)
        said = failover.said()
        return said and all(words in each for each in said)

    wait_until(in_force, SETTINGS_SECONDS, lambda: f"all say {words}: {failover.said()}", pause=1)


def look_again(failover, mark):
    """Kubelet looks at a ConfigMap when it looks at the pod, and at that when it is changed; else once a
    minute.
    """
    failover.kubectl(
        "annotate",
        "pods",
        f"--namespace={deploy.NAMESPACE}",
        "--selector=app.kubernetes.io/component=controller",
        "--overwrite",
        f"example.com/settings={mark}-{next(BUDGETS)}",
    )
