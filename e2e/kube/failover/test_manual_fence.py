"""Failovers that a person requests."""

import pytest

from cluster import deploy
from harness.cleanup import wait_until
from kube.failover.watching import MOVES_SECONDS


def ask(failover, name, **spec):
    failover.kubectl.apply(
        {"apiVersion": "lunkeeper.io/v1alpha1", "kind": "NodeFence", "metadata": {"name": name}, "spec": spec}
    )


def test_a_manual_node_fence_moves_a_healthy_nodes_pods_and_is_lifted_manually(place, failover):
    db = place()
    ask(failover, failover.node_id(db.node), cause="a test")
    db.moves()
    failover.wait_until_fenced(db.node)
    db.writer.goes_on(more=500)
    failover.kubectl("delete", "nodefence", failover.node_id(db.node), "--wait=false")
    failover.wait_until_over(db.node)
    db.lost_nothing()


def lunkeeper(failover, *words):
    """Runs the operator's command in a controller; returns its output and exit code."""
    done = failover.kubectl.attempt(
        "exec",
        f"deploy/{deploy.RELEASE}-controller",
        f"--namespace={deploy.NAMESPACE}",
        "--",
        "lunkeeper",
        *words,
        seconds=120,
    )
    return done.stdout + done.stderr, done.returncode


def test_the_command_fences_a_node_and_gives_it_back(place, failover):
    db = place()
    said, code = lunkeeper(failover, "fence", db.node, "--reason=its fan is on fire")
    assert code == 0, said
    assert f"node {failover.node_id(db.node)} is fenced" in said and "Fenced: " in said, said
    assert failover.fence(db.node)["spec"]["cause"] == "its fan is on fire"
    db.moves()
    said, code = lunkeeper(failover, "fence", db.node)
    assert code == 0 and "is there already, asked for by operator@" in said, said
    said, code = lunkeeper(failover, "unfence", db.node)
    assert code == 0 and "may take volumes again" in said, said
    failover.wait_until_over(db.node)
    assert "is not fenced" in lunkeeper(failover, "unfence", db.node)[0]
    db.lost_nothing()


@pytest.mark.parametrize(
    "verb,node", [("fence", "nobody"), ("fence", "nobody.0123456789abcdef"), ("unfence", "nobody")]
)
def test_the_command_refuses_a_node_that_nobody_knows(failover, verb, node):
    said, code = lunkeeper(failover, verb, node)
    assert code == 1 and f"there is no node {node}" in said, said
    assert not failover.kubectl.items("nodefences")


@pytest.mark.parametrize(
    "spec,reason",
    [
        ({"cause": 7}, "must be of type string"),
        ({"cause": "x" * 1025}, "may not be more than 1024"),
        ({"graceful": "gently"}, "boolean"),
    ],
    ids=["a number", "too long", "no truth value"],
)
def test_a_node_fence_with_wrong_values_is_refused(failover, spec, reason):
    asked = failover.kubectl.attempt(
        "create",
        "-f",
        "-",
        given={
            "apiVersion": "lunkeeper.io/v1alpha1",
            "kind": "NodeFence",
            "metadata": {"name": "nobody.0123456789abcdef"},
            "spec": spec,
        },
    )
    assert asked.returncode != 0 and reason in asked.stderr, asked.stderr
    assert not failover.kubectl.items("nodefences")


def test_what_a_node_fence_asks_for_does_not_change(place, failover):
    db = place()
    name = failover.node_id(db.node)
    ask(failover, name, cause="a test")
    failover.wait_until_fenced(db.node)
    for change, why in (
        ('{"spec": {"cause": "another"}}', "what was asked for does not change"),
        ('{"spec": {"requestedBy": "evidence"}}', "what a person asked for stays his"),
        ('{"spec": null}', "what was asked for does not change"),
    ):
        edited = failover.kubectl.attempt("patch", "nodefence", name, "--type=merge", f"--patch={change}")
        assert edited.returncode != 0 and why in edited.stderr, (
            edited.stdout + edited.stderr
        )
    assert failover.fence(db.node)["spec"]["cause"] == "a test"
    db.moves()
    failover.kubectl("delete", "nodefence", name, "--wait=false")
    failover.wait_until_over(db.node)
    db.lost_nothing()


def test_a_node_fence_for_nobody_changes_nothing(place, failover):
    db = place()
    uid = db.uid()
    ask(failover, "nobody.0123456789abcdef", cause="a test")
    try:

        def refused():
            return failover.kubectl.get("nodefence", "nobody.0123456789abcdef").get("status", {}).get("phase")

        wait_until(lambda: refused() == "Refused", MOVES_SECONDS, "it is refused, and says so")
        wait_until(
            lambda: "FailoverRefused" in failover.kubectl("describe", "nodefence", "nobody.0123456789abcdef"),
            MOVES_SECONDS,
            "its events say why",
        )
        db.writer.goes_on(more=1000)
        assert db.stays(uid)
        assert all(failover.taint(node) is None for node in failover.cluster.nodes)
    finally:
        failover.kubectl("delete", "nodefence", "nobody.0123456789abcdef", "--timeout=60s", seconds=70)
    db.lost_nothing()
