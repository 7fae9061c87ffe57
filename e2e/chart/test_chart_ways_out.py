"""The Helm chart without a cluster: what it does not foresee can be set all the same, and presets of
distributions.
"""

import importlib
import json
import re

import pytest
import yaml

from chart.charts import CHART, EVERYTHING, LOCAL_ARRAY, ONE_ARRAY, every_pod, find, pods, render, run_helm
from harness.places import ROOT

WORKLOADS = {"controller": "controller", "node": "node", "datapath": "datapath", "agent": "array-local"}
NOT_IN_A_NAMESPACE = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CSIDriver",
    "CustomResourceDefinition",
    "SnapshotMetadataService",
    "StorageClass",
    "VolumeAttributesClass",
    "VolumeGroupSnapshotClass",
    "VolumeSnapshotClass",
}


@pytest.mark.parametrize("content", [ONE_ARRAY, LOCAL_ARRAY, EVERYTHING], ids=["one", "local", "everything"])
def test_what_is_rendered_says_in_which_namespace_it_is(values, content):
    """So kubectl needs no --namespace, and puts nothing into another one."""
    for thing in render(values(content), "--api-versions=snapshot.storage.k8s.io/v1"):
        if thing["kind"] not in NOT_IN_A_NAMESPACE:
            assert thing["metadata"].get("namespace") in ("lunkeeper", "kube-node-lease"), thing


@pytest.mark.parametrize("which,name", WORKLOADS.items())
def test_each_pod_takes_what_the_chart_does_not_foresee(values, which, name):
    volume = {"name": "more", "emptyDir": {}}
    given = {
        "extraArgs": ["--more=1"],
        "extraEnv": [{"name": "MORE", "value": "2"}],
        "extraEnvFrom": [{"secretRef": {"name": "proxies"}}],
        "extraInitContainers": [{"name": "first", "image": "busybox"}],
        "hostAliases": [{"ip": "10.0.0.5", "hostnames": ["rack1"]}],
        "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]},
        "dnsPolicy": "Default",
        "extraVolumes": [volume],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
        "annotations": {"example.com/a": "owner"},
        "podAnnotations": {"example.com/b": "pod"},
        "podLabels": {"example.com/c": "pod"},
        "securityContext": {"readOnlyRootFilesystem": False, "runAsUser": 7, "capabilities": {}},
        "podSecurityContext": {"fsGroup": 8},
    }
    things = render(values({**LOCAL_ARRAY, which: given}))
    owner = next(
        thing
        for thing in things
        if thing["metadata"]["name"] == f"storage-lunkeeper-{name}"
        and thing["kind"] in ("Deployment", "DaemonSet")
    )
    assert owner["metadata"]["annotations"] == given["annotations"]
    pod = owner["spec"]["template"]
    assert given["podAnnotations"].items() <= pod["metadata"]["annotations"].items()
    assert given["podLabels"].items() <= pod["metadata"]["labels"].items()
    assert pod["spec"]["securityContext"]["fsGroup"] == 8 and volume in pod["spec"]["volumes"]
    container = pod["spec"]["containers"][0]
    assert container["args"][-1] == "--more=1" and given["extraEnv"][0] in container["env"]
    assert container["envFrom"] == given["extraEnvFrom"]
    assert pod["spec"]["initContainers"] == given["extraInitContainers"]
    for same in ("hostAliases", "dnsConfig", "dnsPolicy"):
        assert pod["spec"][same] == given[same]
    assert given["extraVolumeMounts"][0] in container["volumeMounts"]
    assert given["securityContext"].items() <= container["securityContext"].items()
    # What was not given stays.
    default = pods(render(values(LOCAL_ARRAY)))[f"storage-lunkeeper-{name}"]["containers"][0]
    assert default["securityContext"].keys() <= container["securityContext"].keys()


def test_replicas_are_spread_over_nodes_or_as_one_says(values):
    def constraints(**controller):
        specs = pods(render(values({**ONE_ARRAY, "controller": controller})))
        return specs["storage-lunkeeper-controller"]["topologySpreadConstraints"]

    (usual,) = constraints()
    assert usual["topologyKey"] == "kubernetes.io/hostname"
    own = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]
    assert constraints(topologySpreadConstraints=own) == own


def test_sidecars_take_more_options_too(values):
    names = {
        "provisioner": "provisioner",
        "resizer": "resizer",
        "snapshotter": "snapshotter",
        "snapshotMetadata": "snapshot-metadata",
    }
    sidecars = {key: {"extraArgs": [f"--more-{name}"]} for key, name in names.items()}
    everything = {"enabled": True, "metadata": {"enabled": True}}
    things = render(values({**ONE_ARRAY, "sidecars": sidecars, "snapshots": everything}))
    for container in pods(things)["storage-lunkeeper-controller"]["containers"][1:]:
        assert container["args"][-1] == f"--more-{container['name']}"


def test_the_provisioner_tells_for_whom_a_volume_is(values):
    def told(**sidecars):
        containers = pods(render(values({**ONE_ARRAY, "sidecars": sidecars})))["storage-lunkeeper-controller"]
        (provisioner,) = (each for each in containers["containers"] if each["name"] == "provisioner")
        return [argument for argument in provisioner["args"] if "metadata" in argument]

    assert told() == ["--extra-create-metadata=true"]
    assert told(extraCreateMetadata=False) == ["--extra-create-metadata=false"]


def test_pods_go_where_they_are_told_to(values):
    """The data path is where the node plugin is, always."""
    place = {"nodeSelector": {"a": "b"}, "affinity": {"nodeAffinity": {}}}
    toleration = {"key": "c", "operator": "Exists"}
    strategy = {"type": "OnDelete"}
    node = {**place, "tolerations": [toleration], "updateStrategy": strategy}
    specs = pods(render(values({**ONE_ARRAY, "node": node})))
    for name in ("node", "datapath"):
        assert place.items() <= specs[f"storage-lunkeeper-{name}"].items()
        assert toleration in specs[f"storage-lunkeeper-{name}"]["tolerations"]
    things = render(values({**ONE_ARRAY, "node": {"updateStrategy": strategy}}))
    assert find(things, "DaemonSet", "storage-lunkeeper-node")["spec"]["updateStrategy"]["type"] == "OnDelete"


def test_service_accounts_may_be_others(values):
    accounts = {
        which: {"serviceAccount": {"create": False, "name": f"own-{which}"}}
        for which in ("controller", "node", "agent", "pki", "uninstall")
    }
    things = render(values({**LOCAL_ARRAY, **accounts}))
    assert not [thing for thing in things if thing["kind"] == "ServiceAccount"]
    used = {spec["serviceAccountName"] for spec in every_pod(things).values()}
    assert used == {f"own-{which}" for which in accounts} | {"default"}, "which pulls an image, no more"
    subjects = {
        subject["name"]
        for thing in things
        if thing["kind"].endswith("RoleBinding")
        for subject in thing["subjects"]
    }
    assert subjects == {"own-controller", "own-pki", "own-uninstall"}
    asked = pods(things)["storage-lunkeeper-controller"]["containers"][0]["args"]
    assert "--coordinator-account=system:serviceaccount:lunkeeper:own-node" in asked
    annotated = render(values({**ONE_ARRAY, "node": {"serviceAccount": {"annotations": {"a": "b"}}}}))
    account = find(annotated, "ServiceAccount", "storage-lunkeeper-node")
    assert account["metadata"]["annotations"] == {"a": "b"}
    assert account["automountServiceAccountToken"] is False


def test_objects_may_have_other_names_and_more_labels(values):
    def names(**content):
        return {thing["metadata"]["name"] for thing in render(values({**ONE_ARRAY, **content}))}

    assert "storage-disks-controller" in names(nameOverride="disks")
    assert "disks-controller" in names(fullnameOverride="disks")
    things = render(values({**LOCAL_ARRAY, "commonLabels": {"team": "storage"}}))
    for thing in things:
        if thing["kind"] not in ("CustomResourceDefinition",):
            assert thing["metadata"]["labels"]["team"] == "storage", thing
    without = [name for name, labels in labels_of_pods(things).items() if "team" not in labels]
    assert without == [AGENT], "a label that changes would interrupt all I/O of its volumes"


AGENT = "DaemonSet storage-lunkeeper-array-local"


def test_kubectl_lunkeeper_finds_the_pods_also_under_another_name(values):
    script = (ROOT / "packaging/kubectl-lunkeeper").read_text()
    [selector] = re.findall(r'"--selector=([^"]*)"', script)
    for content in ({}, {"nameOverride": "disks"}):
        labelled = labels_of_pods(render(values({**LOCAL_ARRAY, **content}))).items()
        for component in ("controller", "node"):
            wanted = dict(part.split("=") for part in selector.replace("$component", component).split(","))
            found = [name for name, labels in labelled if wanted.items() <= labels.items()]
            assert len(found) == 1 and found[0].endswith(f"-{component}"), (content, found)


def labels_of_pods(things):
    """{kind and name of what makes pods: their labels}."""
    found = {}
    for thing in things:
        spec = thing.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            found[f"{thing['kind']} {thing['metadata']['name']}"] = spec["template"]["metadata"]["labels"]
    assert len(found) == 8, found.keys()
    return found


def test_only_the_pods_of_agents_do_not_say_of_which_version_they_are(values):
    """Each upgrade would interrupt the I/O of their nodes otherwise."""
    version = "app.kubernetes.io/version"
    labels = labels_of_pods(render(values(LOCAL_ARRAY)))
    without = [name for name in labels if version not in labels[name]]
    assert without == [AGENT]


def test_kubernetes_keeps_as_many_old_versions_as_one_says(values):
    def kept(**content):
        things = render(values({**LOCAL_ARRAY, **content}))
        owners = [thing for thing in things if thing["kind"] in ("Deployment", "DaemonSet")]
        return [thing["spec"]["revisionHistoryLimit"] for thing in owners]

    assert kept() == [10] * 4 and kept(revisionHistoryLimit=2) == [2] * 4


def test_a_pod_may_take_its_time_to_end(values):
    asked = {which: {"terminationGraceSeconds": 77} for which in WORKLOADS}
    specs = pods(render(values({**LOCAL_ARRAY, **asked})))
    assert [spec["terminationGracePeriodSeconds"] for spec in specs.values()] == [77] * 4
    unset = {which: {"terminationGraceSeconds": None} for which in WORKLOADS}
    specs = pods(render(values({**LOCAL_ARRAY, **unset})))
    assert sorted(spec["terminationGracePeriodSeconds"] for spec in specs.values()) == [30, 30, 30, 3600]


def test_controllers_may_have_more_rights(values):
    rule = {"apiGroups": ["example.com"], "resources": ["things"], "verbs": ["get"]}
    things = render(values({**ONE_ARRAY, "controller": {"extraRules": [rule]}}))
    assert find(things, "ClusterRole", "storage-lunkeeper-controller")["rules"][-1] == rule


def test_no_container_of_the_plugin_can_change_its_image(values):
    for name, spec in every_pod(render(values(LOCAL_ARRAY))).items():
        for container in spec["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True, (name, container["name"])


def test_every_setting_that_is_allowed_has_a_default_and_a_place_in_the_values():
    schema = json.loads((CHART / "values.schema.json").read_text())

    def compare(part, default, where):
        part = schema["$defs"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part
        if default and "properties" in part and where != "/coordinator/tls/issuer":
            assert part["properties"].keys() == default.keys(), where
            for name, inner in part["properties"].items():
                compare(inner, default[name], f"{where}/{name}")

    # Resources, and what Kubernetes names, are free.
    schema["$defs"]["resources"].pop("properties")
    for which in ("agent", "datapath"):
        schema["properties"][which]["properties"]["resources"].pop("properties")
    compare(schema, yaml.safe_load((CHART / "values.yaml").read_text()), "")


def test_a_drain_takes_one_replica_at_a_time_or_all(values):
    def budgets(**budget):
        things = render(values({**ONE_ARRAY, "controller": {"podDisruptionBudget": budget}}))
        return [thing["spec"] for thing in things if thing["kind"] == "PodDisruptionBudget"]

    (usual,) = budgets()
    assert usual["maxUnavailable"] == 1 and usual["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert not budgets(enabled=False)
    (other,) = budgets(unhealthyPodEvictionPolicy="IfHealthyBudget")
    assert other["unhealthyPodEvictionPolicy"] == "IfHealthyBudget"


PATHS = {
    "": ("/var/lib/kubelet", "/run/containerd/containerd.sock"),
    "talos": ("/var/lib/kubelet", "/run/containerd/containerd.sock"),
    "kind": ("/var/lib/kubelet", "/run/containerd/containerd.sock"),
    "k3s": ("/var/lib/kubelet", "/run/k3s/containerd/containerd.sock"),
    "rke2": ("/var/lib/kubelet", "/run/k3s/containerd/containerd.sock"),
    "k0s": ("/var/lib/k0s/kubelet", "/run/k0s/containerd.sock"),
    "microk8s": (
        "/var/snap/microk8s/common/var/lib/kubelet",
        "/var/snap/microk8s/common/run/containerd.sock",
    ),
    "openshift": ("/var/lib/kubelet", "/run/crio/crio.sock"),
}


@pytest.mark.parametrize("distro", PATHS)
def test_a_distributions_paths_are_known(values, distro):
    kubelet, socket = PATHS[distro]
    node = pods(render(values({**ONE_ARRAY, "distro": distro})))["storage-lunkeeper-node"]
    (container,) = node["containers"]
    assert f"--registration-dir={kubelet}/plugins_registry" in container["args"]
    assert f"--runtime-socket={socket}" in container["args"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    folders = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in node["volumes"]}
    for name, path in (("kubelet", kubelet), ("runtime", socket.rpartition("/")[0])):
        assert mounts[name] == folders[name] == path


def test_paths_that_are_given_win_over_the_distributions(values):
    own = {"kubeletDir": "/a/kubelet", "runtimeSocket": "/b/c.sock"}
    node = pods(render(values({**ONE_ARRAY, "distro": "k0s", "node": own})))["storage-lunkeeper-node"]
    assert {"--registration-dir=/a/kubelet/plugins_registry", "--runtime-socket=/b/c.sock"} <= set(
        node["containers"][0]["args"]
    )


def test_on_openshift_each_account_may_run_as_its_pods_want(values):
    things = render(values({**LOCAL_ARRAY, "distro": "openshift"}))
    allowed = {
        subject["name"]: thing["roleRef"]["name"].rpartition(":")[2]
        for thing in things
        if thing["kind"] == "RoleBinding" and ":scc:" in thing["roleRef"]["name"]
        for subject in thing["subjects"]
    }
    privileged = {f"storage-lunkeeper-{name}" for name in ("node", "array")}
    assert allowed == {
        f"storage-lunkeeper-{name}": "privileged"
        if f"storage-lunkeeper-{name}" in privileged
        else "nonroot-v2"
        for name in ("controller", "node", "array", "pki", "uninstall")
    }
    used = {spec["serviceAccountName"] for spec in every_pod(things).values()}
    assert used - {"default"} == allowed.keys(), "what pulls an image runs as OpenShift lets anybody"
    assert pods(things)["storage-lunkeeper-array-local"]["securityContext"]["seLinuxOptions"] == {
        "type": "spc_t"
    }
    assert "openshift" not in str(render(values(LOCAL_ARRAY)))


def test_the_charts_description_is_true(values):
    """What artifacthub.io shows: the images, the kinds, and settings in the README."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (ROOT / chart["icon"].partition("/main/")[2]).exists()
    things = render(values({**ONE_ARRAY, "snapshots": {"enabled": True, "metadata": {"enabled": True}}}))
    used = {each["image"] for spec in every_pod(things).values() for each in spec["containers"]}
    shown = yaml.safe_load(chart["annotations"]["artifacthub.io/images"])
    assert {each["image"] for each in shown} == used
    kinds = {
        (thing["spec"]["names"]["kind"], version["name"], thing["metadata"]["name"])
        for thing in things
        if thing["kind"] == "CustomResourceDefinition"
        for version in thing["spec"]["versions"]
    }
    told = yaml.safe_load(chart["annotations"]["artifacthub.io/crds"])
    assert {(each["kind"], each["version"], each["name"]) for each in told} == kinds
    known = yaml.safe_load((CHART / "values.yaml").read_text())
    for setting in re.findall(r"^\| (`[^|]+`) \|", (CHART / "README.md").read_text(), re.MULTILINE):
        for path in re.findall("`([^`]+)`", setting):
            found = known
            for part in path.split("."):
                found = found[part]


def test_the_chart_of_a_release_renders_the_same(values, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "packaging")
    release = importlib.import_module("release")
    release.pack_chart(tmp_path, "lunkeeper.tgz", 1)
    told = [
        run_helm("template", "storage", chart, f"--values={values(EVERYTHING)}")
        for chart in (CHART, tmp_path / "lunkeeper.tgz")
    ]
    assert told[1].returncode == 0, told[1].stderr
    assert told[0].stdout == told[1].stdout
