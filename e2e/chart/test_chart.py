"""The Helm chart without a cluster: refused values, rendered objects, and their permissions."""

import json
import os
import pathlib
import re
import subprocess

import pytest
import yaml

from chart.charts import CHART, EVERYTHING, LOCAL_ARRAY, ONE_ARRAY, every_pod, find, pods, render, run_helm
from harness.places import LUNKEEPER, ROOT

SNAPSHOTS = pathlib.Path(__file__).parent / "snapshots"


@pytest.mark.parametrize("content", [ONE_ARRAY, EVERYTHING], ids=["one array", "everything"])
def test_the_chart_is_clean(values, content):
    done = run_helm("lint", "--strict", CHART, f"--values={values(content)}")
    assert done.returncode == 0, done.stdout


BAD_VALUES = {
    "no array": ("arrays=null", "there is no array: set localArray.node and localArray.path, or arrays"),
    "a local array without a pool": ("localArray.node=a", "local array local: path is missing"),
    "a local array without a node": ("localArray.path=/a", "local array local: node is missing"),
    "a local array with a relative pool": ("localArray.node=a,localArray.path=b", "/localArray/path"),
    "a local array with one Secret of two": (
        "localArray.node=a,localArray.path=/b,localArray.tlsSecret=c",
        "agentSecret and tlsSecret go together",
    ),
    "a local array with another's name": (
        "localArray.node=a,localArray.path=/b,localArray.name=rack1",
        "rack1 is there twice",
    ),
    "two local arrays on one port": (
        "localArray.node=a,localArray.path=/b,"
        "localArrays[0].node=a,localArrays[0].path=/c,localArrays[0].name=c",
        "local array c: port a:3260 is another's",
    ),
    "two local arrays, one of whose tgtds has the other's port": (
        "localArray.node=a,localArray.path=/b,localArray.tgtds=2,"
        "localArrays[0].node=a,localArrays[0].path=/c,localArrays[0].name=c,localArrays[0].portalPort=3261,"
        "localArrays[0].agentPort=7481,localArrays[0].metricsPort=9811",
        "local array c: port a:3261 is another's",
    ),
    "a local array without a tgtd": ("localArray.node=a,localArray.tgtds=0", "/localArray/tgtds"),
    "snapshots perhaps": ("snapshots.enabled=maybe", "/snapshots/enabled"),
    "an array without an address": ("arrays[0].address=null", "/arrays/0/address"),
    "an array whose address has no port": ("arrays[0].address=10.0.0.5", "/arrays/0/address"),
    "an array one of whose addresses has no port": (
        "arrays[0].address={10.0.0.5:7480,10.0.0.6}",
        "/arrays/0/address",
    ),
    "an array with capital letters": ("arrays[0].name=Rack1", "/arrays/0/name"),
    "a misspelt setting": ("controller.replica=3", "additional properties 'replica' not allowed"),
    "no controller": ("controller.replicas=0", "/controller/replicas"),
    "an unknown file system": (
        "storageClasses[0].name=x,storageClasses[0].parameters.fsType=zfs",
        "'ext4', 'xfs'",
    ),
    "an unknown parameter": (
        "storageClasses[0].name=x,storageClasses[0].parameters.colour=red",
        "'colour' not allowed",
    ),
    "a file system named twice": (
        r"storageClasses[0].name=x,storageClasses[0].parameters.fsType=xfs,"
        r"storageClasses[0].parameters.csi\.storage\.k8s\.io/fstype=xfs",
        "/storageClasses/0/parameters",
    ),
    "an unknown file system, by Kubernetes' key": (
        r"storageClasses[0].name=x,storageClasses[0].parameters.csi\.storage\.k8s\.io/fstype=zfs",
        "'ext4', 'xfs'",
    ),
    "a Secret without a namespace": (
        r"storageClasses[0].name=x,"
        r"storageClasses[0].parameters.csi\.storage\.k8s\.io/node-stage-secret-name=y",
        "go together",
    ),
    "Secrets by a pattern that the sidecars may not read": (
        r"storageClasses[0].name=x,"
        r"storageClasses[0].parameters.csi\.storage\.k8s\.io/provisioner-secret-name=y,"
        r"storageClasses[0].parameters.csi\.storage\.k8s\.io/provisioner-secret-namespace=${pvc.namespace}",
        "want one Secret",
    ),
    "a reclaim policy of old": (
        "storageClasses[0].name=x,storageClasses[0].reclaimPolicy=Recycle",
        "'Delete', 'Retain'",
    ),
    "a limit of nothing": (
        "volumeAttributesClasses[0].name=x,volumeAttributesClasses[0].parameters.maxBandwidth=fast",
        "/volumeAttributesClasses/0/parameters/maxBandwidth",
    ),
    "an attribute that cannot change": (
        "volumeAttributesClasses[0].name=x,volumeAttributesClasses[0].parameters.fsType=xfs",
        "'fsType' not allowed",
    ),
    "certificates from nowhere": ("coordinator.tls.source=vault", "'job', 'cert-manager', 'secret'"),
    "cert-manager without an issuer": (
        "coordinator.tls.source=cert-manager,coordinator.tls.caConfigMap=x",
        "missing properties 'kind', 'name'",
    ),
    "a Secret without a name": (
        "coordinator.tls.source=secret,coordinator.tls.caConfigMap=x",
        "/coordinator/tls/secretName",
    ),
    "a memory limit for the data path": ("datapath.resources.limits.memory=64Mi", "'limits' not allowed"),
    "a sidecar without a tag": ("sidecars.resizer.image=csi-resizer", "/sidecars/resizer/image"),
    "half a digest": ("sidecars.resizer.image=csi-resizer:v1@sha256:12", "/sidecars/resizer/image"),
    "half a digest and no tag": ("sidecars.resizer.image=csi-resizer@sha256:12", "/sidecars/resizer/image"),
    "a relative kubelet folder": ("node.kubeletDir=var/lib/kubelet", "/node/kubeletDir"),
    "a budget of nothing": ("failover.budgetPercent=0", "/failover/budgetPercent"),
    "a mass of nothing": ("failover.massPercent=0", "/failover/massPercent"),
    "an unknown policy": ("failover.partitioned=shoot", "'fence', 'hold'"),
    "an unknown policy for crash loops": ("failover.crashLoops=often", "'after-outage', 'always'"),
    "an unknown policy for idle pods": ("failover.idlePods=stay", "'move', 'wait'"),
    "no kicks": ("failover.kicksPerWindow=0", "/failover/kicksPerWindow"),
    "a window below its floor": ("failover.kickWindowSeconds=59", "/failover/kickWindowSeconds"),
    "an unknown policy past the budget": ("failover.overBudget=all", "'one-by-one', 'stop'"),
    "an owner that is no kind": ("failover.ownerKinds={statefulset}", "/failover/ownerKinds/0"),
    "an owner of no group": ("failover.ownerKinds={Cluster.}", "/failover/ownerKinds/0"),
    "no time at all": ("failover.gracefulSeconds=0", "/failover/gracefulSeconds"),
    "a silent plugin's time below its floor": (
        "failover.pluginNotReadySeconds=9",
        "/failover/pluginNotReadySeconds",
    ),
    "a silence below its floor": ("failover.silenceSeconds=2.4", "/failover/silenceSeconds"),
    "a probation below its floor": ("failover.probationSeconds=9", "/failover/probationSeconds"),
    "two arrays of one name": (
        "arrays[1].name=rack1,arrays[1].address=a:1,arrays[1].tlsSecret=x",
        "rack1 is there twice",
    ),
    "a class on an array that is not there": (
        "storageClasses[0].name=x,storageClasses[0].parameters.array=rack9",
        "there is no array rack9; there are rack1",
    ),
    "a group of nodes that reaches an array that is not there": (
        "node.groups[0].name=a,node.groups[0].nodeSelector.row=x,node.groups[0].arrays[0]=rack9",
        "node.groups: a: there is no array rack9; there are rack1",
    ),
    "a group of all nodes": (
        "node.groups[0].name=a,node.groups[0].arrays[0]=rack1",
        "missing property 'nodeSelector'",
    ),
    "a mirror with a scheme": ("global.imageRegistry=https://mirror", "/global/imageRegistry"),
    "an unknown log level": ("logs.level=loud", "'debug', 'info', 'warn', 'error'"),
}


@pytest.mark.parametrize("setting,reason", BAD_VALUES.values(), ids=BAD_VALUES)
def test_a_bad_value_is_refused_with_its_reason(values, setting, reason):
    done = run_helm("template", "storage", CHART, f"--values={values(ONE_ARRAY)}", f"--set={setting}")
    assert done.returncode != 0
    assert reason in done.stderr, done.stderr


def bad_values(leaf):
    """Values that this part of the schema must refuse: of another type, or just past a limit."""
    bad = [7 if leaf.get("type", "string") == "string" else "wrong"]
    bad += [leaf["minimum"] - 1, leaf["maximum"] + 1] if "minimum" in leaf else []
    bad += ["a" * (leaf["maxLength"] + 1)] if "maxLength" in leaf else []
    may_be_empty = "" in leaf.get("enum", []) or "pattern" in leaf and re.search(leaf["pattern"], "")
    return bad + ([""] if leaf.keys() & {"minLength", "pattern", "enum"} and not may_be_empty else [])


def spoil(schema, definitions, turn, where=""):
    """(Values that are wrong wherever possible, in another way at each turn; the expected complaints.)"""
    schema = schema.get("anyOf", [schema])[0]
    schema = definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if "items" in schema:
        value, said = spoil(schema["items"], definitions, turn, f"{where}/0")
        return [value], said
    if "properties" not in schema:
        bad = bad_values(schema)
        return bad[turn % len(bad)], [f"at '{where}': "]
    parts = {
        name: spoil(part, definitions, turn, f"{where}/{name.replace('/', '~1')}")
        for name, part in schema["properties"].items()
    }
    assert schema["additionalProperties"] is False, f"{where} takes anything"
    return (
        {"misspelt": True, **{name: value for name, (value, _) in parts.items()}},
        [
            f"at '{where}': additional properties 'misspelt' not allowed",
            *(line for _, said in parts.values() for line in said),
        ],
    )


@pytest.mark.parametrize("turn", range(4))
def test_no_setting_takes_what_is_wrong_for_it(values, turn):
    """Every one of the schema's, and each is named."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    del schema["properties"]["global"]  # helm's own
    wrong, said = spoil(schema, schema["$defs"], turn)
    done = run_helm("template", "storage", CHART, f"--values={values(wrong)}")
    assert done.returncode != 0 and len(said) > 100
    assert not [line for line in said if line not in done.stderr], done.stderr


@pytest.mark.parametrize("name,content", [("one_array", ONE_ARRAY), ("everything", EVERYTHING)])
def test_what_is_rendered_is_what_was_looked_at(values, name, content):
    """After an intended change run it with UPDATE_SNAPSHOTS=1, and read the difference."""
    shown = run_helm(
        "template",
        "storage",
        CHART,
        "--namespace=lunkeeper",
        f"--values={values(content)}",
        "--api-versions=snapshot.storage.k8s.io/v1",
    ).stdout
    path = SNAPSHOTS / f"{name}.yaml"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.write_text(shown)
    assert shown == path.read_text()


def test_every_option_exists(values):
    """The program knows all options that its pods start with."""
    known = {
        verb: subprocess.run(
            [LUNKEEPER, *verb.split(), "--help"], capture_output=True, text=True, timeout=20
        ).stdout
        for verb in ("serve", "datapath", "pki renew", "array", "uninstall-check")
    }
    for things in (render(values(content)) for content in (ONE_ARRAY, LOCAL_ARRAY, EVERYTHING)):
        for container in sum((spec["containers"] for spec in every_pod(things).values()), []):
            words = [argument for argument in container["args"] if not argument.startswith("--")]
            verb, options = " ".join(words), container["args"][len(words) :]
            if verb in known:
                unknown = [
                    option
                    for option in options
                    if option.split("=")[0] not in re.findall(r"--[a-z-]+", known[verb])
                ]
                assert not unknown, f"lunkeeper {verb} does not know {unknown}"


def test_each_group_of_nodes_is_told_what_it_reaches(values):
    reached = {
        name: [
            argument.split("=")[1]
            for argument in spec["containers"][0]["args"]
            if "--array-name=" in argument
        ]
        for name, spec in pods(render(values(EVERYTHING))).items()
        if "-node" in name
    }
    assert reached == {
        "storage-lunkeeper-node-row1": ["rack1", "rack2"],
        "storage-lunkeeper-node-row2": ["rack2"],
    }


def test_a_class_may_have_kubernetes_own_parameters(values):
    """As classes of other drivers have them; the sidecars may read the Secrets that they are to read, and no
    other.
    """
    parameters = {"csi.storage.k8s.io/fstype": "xfs"}
    for use in (
        "provisioner",
        "controller-expand",
        "controller-publish",
        "node-stage",
        "node-publish",
        "node-expand",
    ):
        parameters |= {
            f"csi.storage.k8s.io/{use}-secret-name": f"{use}-key",
            f"csi.storage.k8s.io/{use}-secret-namespace": "keys",
        }
    things = render(values({**ONE_ARRAY, "storageClasses": [{"name": "old", "parameters": parameters}]}))
    assert find(things, "StorageClass", "old")["parameters"] == parameters
    roles = {
        thing["metadata"]["name"]: thing
        for thing in things
        if thing["metadata"].get("namespace") == "keys" and thing["kind"] == "Role"
    }
    assert {name: role["rules"] for name, role in roles.items()} == {
        f"storage-lunkeeper-old-{use}": [
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [f"{use}-key"], "verbs": ["get"]}
        ]
        for use in ("provisioner", "controller-expand")
    }
    for name in roles:
        binding = find(things, "RoleBinding", name)
        assert binding["metadata"]["namespace"] == "keys" and binding["roleRef"]["name"] == name
        assert [subject["name"] for subject in binding["subjects"]] == ["storage-lunkeeper-controller"]


def test_sidecars_outlive_a_slow_api_server(values):
    """One that cannot renew its lease for the deadline exits; ten seconds are client-go's own default."""
    for container in pods(render(values(ONE_ARRAY)))["storage-lunkeeper-controller"]["containers"][1:]:
        lease = dict(
            re.findall(
                r"--leader-election-(lease-duration|renew-deadline|retry-period)=(\S+)",
                "\n".join(container["args"]),
            )
        )
        assert lease == {"lease-duration": "15s", "renew-deadline": "10s", "retry-period": "5s"}, container[
            "name"
        ]


def test_nodes_have_no_right_in_kubernetes(values):
    things = render(values(ONE_ARRAY))
    bound = [
        subject["name"]
        for thing in things
        if thing["kind"].endswith("RoleBinding")
        for subject in thing["subjects"]
    ]
    assert sorted(bound) == ["storage-lunkeeper-controller"] * 3 + [
        "storage-lunkeeper-pki",
        "storage-lunkeeper-uninstall",
    ]
    for name in ("storage-lunkeeper-node", "storage-lunkeeper-datapath"):
        spec = pods(things)[name]
        assert spec["serviceAccountName"] == "storage-lunkeeper-node"
        assert spec["automountServiceAccountToken"] is False
    assert find(things, "ServiceAccount", "storage-lunkeeper-node")["automountServiceAccountToken"] is False


def test_nodes_mount_no_secret(values):
    """The Node authorizer lets a kubelet read what its pods mount, so a node's pods may mount no key."""
    for name, spec in pods(render(values(ONE_ARRAY))).items():
        secrets = [volume for volume in spec["volumes"] if "secret" in volume]
        assert bool(secrets) == name.endswith("-controller"), name


def test_what_is_watched_let_in_and_signed_is_what_runs(values):
    """The NetworkPolicy and the objects of Prometheus' operator and cert-manager name things that exist."""
    things = render(values(EVERYTHING), "--api-versions=snapshot.storage.k8s.io/v1")
    labels = {
        thing["metadata"]["name"]: thing["spec"]["template"]["metadata"]["labels"].items()
        for thing in things
        if thing["kind"] in ("Deployment", "DaemonSet")
    }
    ports = {
        name: {port["name"] for container in spec["containers"] for port in container.get("ports", [])}
        for name, spec in pods(things).items()
    }

    def selected(selector):
        return [name for name in labels if selector.items() <= labels[name]]

    monitor, service = (
        find(things, "ServiceMonitor")["spec"],
        find(things, "Service", "storage-lunkeeper-metrics"),
    )
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    assert sum("metrics" in ports[name] for name in selected(service["spec"]["selector"])) == 5

    policy = find(things, "NetworkPolicy")["spec"]
    assert selected(policy["podSelector"]["matchLabels"]) == ["storage-lunkeeper-controller"]
    # Probes come from the pod's own node, which no policy keeps away.
    probed = {"health", "blocks-health"}
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} | probed == ports[
        "storage-lunkeeper-controller"
    ]

    certificate, controller = (
        find(things, "Certificate")["spec"],
        pods(things)["storage-lunkeeper-controller"],
    )
    assert certificate["secretName"] in [
        volume["secret"]["secretName"] for volume in controller["volumes"] if "secret" in volume
    ]
    asked = {
        argument.partition("=")[2]
        for spec in pods(things).values()
        for argument in spec["containers"][0]["args"]
        if argument.startswith("--coordinator-address=")
    }
    assert asked == {f"{certificate['dnsNames'][0]}:7443"}


def test_no_role_has_a_wildcard(values):
    for thing in render(values(EVERYTHING)):
        for rule in thing.get("rules", []):
            assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]], rule


def test_without_failover_there_are_no_rights_for_it(values):
    things = render(values({**ONE_ARRAY, "failover": {"enabled": False}}))
    assert not [thing for thing in things if thing["kind"] == "CustomResourceDefinition"]
    rules = find(things, "ClusterRole")["rules"]
    assert not [
        rule
        for rule in rules
        if {"pods", "nodefences", "volumelocks"} & set(rule["resources"])
        or "delete" in rule["verbs"]
        and "nodes" in rule["resources"]
    ]
    assert "--no-failover" in pods(things)["storage-lunkeeper-controller"]["containers"][0]["args"]
