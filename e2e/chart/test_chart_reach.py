"""The Helm chart: who reaches what, and where controllers run."""

from chart.charts import EVERYTHING, ONE_ARRAY, find, pods, render


def test_strangers_reach_no_probe_and_no_metrics_of_others(values):
    """Nodes are in the host's network, where no NetworkPolicy applies; controllers have one."""
    things = render(values(ONE_ARRAY))
    for name, spec in pods(things).items():
        main = spec["containers"][0]
        listens = {
            argument.partition("=")[0]: argument.partition("=")[2].rpartition(":")[0]
            for argument in main["args"]
            if argument.startswith(("--metrics-address=", "--health-address="))
        }
        if not listens:
            continue
        probes = [main[probe]["httpGet"] for probe in ("livenessProbe", "readinessProbe") if probe in main]
        if name.endswith("-node"):
            assert listens == {"--metrics-address": "[$(NODE_ADDRESS)]", "--health-address": "127.0.0.1"}
            assert [probe["host"] for probe in probes] == ["127.0.0.1"] * 2
            assert [probe["port"] for probe in probes] == [9808] * 2
        if name.endswith("-controller"):
            assert [probe["port"] for probe in probes] == ["health"] * 2
    rules = find(things, "NetworkPolicy")["spec"]["ingress"]
    assert {rule["ports"][0]["port"]: rule.get("from") for rule in rules} == {
        "coordinator": None,
        "metrics": [{"podSelector": {}}],
    }
    chosen = render(values({**ONE_ARRAY, "metrics": {"nodeAddress": "10.1.2.3"}}))
    arguments = pods(chosen)["storage-lunkeeper-node"]["containers"][0]["args"]
    assert "--metrics-address=[10.1.2.3]:9809" in arguments


def test_sidecars_have_neither_the_operators_socket_nor_other_leases(values):
    things = render(values(EVERYTHING), "--api-versions=snapshot.storage.k8s.io/v1")
    driver, *sidecars = pods(things)["storage-lunkeeper-controller"]["containers"]
    assert "--admin-endpoint=unix:///admin/admin.sock" in driver["args"]
    assert "admin" in [mount["name"] for mount in driver["volumeMounts"]]
    assert len(sidecars) == 4
    for sidecar in sidecars:
        own = ["snapshot-metadata-tls"] if sidecar["name"] == "snapshot-metadata" else []
        assert [mount["name"] for mount in sidecar["volumeMounts"]] == ["csi", *own], sidecar["name"]
    rules = next(
        thing["rules"]
        for thing in things
        if thing["kind"] == "Role"
        and thing["metadata"]["name"] == "storage-lunkeeper-controller"
        and thing["metadata"].get("namespace") != "kube-node-lease"
    )
    assert [rule["resources"] for rule in rules if "resourceNames" not in rule] == [
        ["leases"],
        ["csistoragecapacities"],
        ["pods"],
        ["replicasets"],
    ]
    assert rules[0]["verbs"] == ["create"]
    assert sorted(sum((rule.get("resourceNames", []) for rule in rules), [])) == [
        "csi-lunkeeper-io",
        "external-resizer-csi-lunkeeper-io",
        "external-snapshotter-leader-csi-lunkeeper-io",
        "lunkeeper-failover",
        "lunkeeper-removed-arrays",
    ]


def test_controllers_prefer_control_plane_nodes(values):
    spec = pods(render(values(ONE_ARRAY)))["storage-lunkeeper-controller"]
    key = "node-role.kubernetes.io/control-plane"
    preferred = spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred[0]["preference"]["matchExpressions"] == [{"key": key, "operator": "Exists"}]
    assert {"key": key, "operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"]
