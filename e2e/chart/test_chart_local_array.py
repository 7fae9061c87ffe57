"""The Helm chart without a cluster: arrays in pods of this cluster."""

from chart.charts import EVERYTHING, LOCAL_ARRAY, find, pods, render


def test_a_local_array_is_where_its_node_is_and_nowhere_else(values):
    things = render(values(EVERYTHING))
    agents = {name: spec for name, spec in pods(things).items() if "-array-" in name}
    assert len(agents) == 2
    for name, node, address, pool in (
        ("local", "node-1", "$(NODE_ADDRESS)]:3260", "/srv/lunkeeper"),
        ("fast", "node-1.example", "10.1.0.6]:3261", "/srv/fast"),
    ):
        spec = agents[f"storage-lunkeeper-array-{name}"]
        (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ]
        assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        assert spec["tolerations"] == [{"operator": "Exists"}] and spec["hostNetwork"]
        (container,) = spec["containers"]
        assert f"--portal=[{address}" in container["args"] and f"--pool={pool}" in container["args"]
        assert {"name": "pool", "mountPath": pool} in container["volumeMounts"]
        # What is not there is not made: the pool's disk may be missing.
        assert {"name": "pool", "hostPath": {"path": pool, "type": "Directory"}} in spec["volumes"]
        strategy = find(things, "DaemonSet", f"storage-lunkeeper-array-{name}")["spec"]["updateStrategy"]
        assert strategy["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}


def test_an_upgrade_that_leaves_an_agent_alone_does_not_replace_its_pod(values):
    """Its restart interrupts I/O. The chart's version is in the labels of other pods."""
    labels = find(render(values(LOCAL_ARRAY)), "DaemonSet", "storage-lunkeeper-array-local")["spec"][
        "template"
    ]["metadata"]["labels"]
    assert not {"helm.sh/chart", "app.kubernetes.io/version"} & labels.keys()


def test_each_further_tgtd_of_a_local_array_has_a_port(values):
    """An agent with one says nothing of it: an upgrade of the chart must not replace its pod."""
    agents = pods(render(values(EVERYTHING)))
    for name, option, ports in (
        ("local", set(), {"portal": 3260}),
        ("fast", {"--tgtds=3"}, {"portal": 3261, "portal-1": 3262, "portal-2": 3263}),
    ):
        (container,) = agents[f"storage-lunkeeper-array-{name}"]["containers"]
        assert {word for word in container["args"] if word.startswith("--tgtds")} == option
        declared = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert {name: port for name, port in declared.items() if "portal" in name} == ports


def test_several_arrays_share_settings_but_no_address_and_a_given_zero_counts(values):
    shared = {**LOCAL_ARRAY["localArray"], "portalAddress": "10.1.0.1", "overcommit": 2, "tgtds": 2}
    others = [
        {"name": "a", "node": "node-2", "path": "/a", "overcommit": 0},
        {"name": "b", "node": "node-3", "path": "/b"},
        {"name": "c", "node": shared["node"], "path": "/c", "portalPort": 3270, "agentPort": 7490},
    ]
    others[2]["metricsPort"] = 9820
    agents = pods(render(values({"localArray": shared, "localArrays": others})))

    def told(name):
        words = agents[f"storage-lunkeeper-array-{name}"]["containers"][0]["args"]
        return {word for word in words if word.startswith(("--portal", "--overcommit", "--tgtds"))}

    assert told("local") == {"--portal=[10.1.0.1]:3260", "--overcommit=2", "--tgtds=2"}
    assert told("a") == {"--portal=[$(NODE_ADDRESS)]:3260", "--tgtds=2"}
    assert told("b") == {"--portal=[$(NODE_ADDRESS)]:3260", "--overcommit=2", "--tgtds=2"}
    # Of the same node: the address is its own.
    assert told("c") == {"--portal=[10.1.0.1]:3270", "--overcommit=2", "--tgtds=2"}


def test_the_image_is_on_an_arrays_node_before_an_upgrade_takes_its_agent_away(values):
    things = render(values({**LOCAL_ARRAY, "imagePullSecrets": [{"name": "registry"}]}))
    agent = pods(things)["storage-lunkeeper-array-local"]
    (job,) = (
        thing
        for thing in things
        if (thing["metadata"].get("annotations") or {}).get("helm.sh/hook") == "pre-upgrade,pre-rollback"
    )
    pod = job["spec"]["template"]["spec"]
    for same in ("affinity", "tolerations", "imagePullSecrets", "priorityClassName"):
        assert pod[same] == agent[same]
    (container,) = pod["containers"]
    assert container["image"] == agent["containers"][0]["image"] and container["args"] == ["version"]
    assert job["spec"]["activeDeadlineSeconds"] < 300, "helm waits for five minutes"
    off = render(values({**LOCAL_ARRAY, "agent": {"pullFirst": False}}))
    assert job["metadata"]["name"] not in str(off)


def test_agents_have_no_right_in_kubernetes(values):
    things = render(values(LOCAL_ARRAY))
    spec = pods(things)["storage-lunkeeper-array-local"]
    assert spec["automountServiceAccountToken"] is False
    subjects = [
        subject["name"]
        for thing in things
        if thing["kind"].endswith("RoleBinding")
        for subject in thing["subjects"]
    ]
    assert spec["serviceAccountName"] == "storage-lunkeeper-array"
    assert "storage-lunkeeper-array" not in subjects
    assert not spec["containers"][0]["securityContext"].get("privileged")


def test_nodes_reach_a_local_array(values):
    node = pods(render(values(LOCAL_ARRAY)))["storage-lunkeeper-node"]
    assert "--array-name=local" in node["containers"][0]["args"]
