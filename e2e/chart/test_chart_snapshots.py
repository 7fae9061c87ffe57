"""The Helm chart: snapshots, groups of them, and the blocks that changed between them."""

import yaml

from chart.charts import ONE_ARRAY, find, pods, render

SNAPSHOT_METADATA = "storage-lunkeeper-snapshot-metadata"


def test_snapshots_are_there_when_the_cluster_can_have_them(values):
    """By themselves, or as it is said."""
    crds = "--api-versions=snapshot.storage.k8s.io/v1"

    def shown(enabled, *arguments):
        content = {**ONE_ARRAY, "snapshots": {"enabled": enabled}}
        return "snapshot" in yaml.safe_dump(render(values(content), *arguments))

    assert [shown("auto"), shown("auto", crds)] == [False, True]
    assert [shown(True), shown(True, crds)] == [True, True]
    assert [shown(False), shown(False, crds)] == [False, False]


def check_switch(values, api, setting, parts):
    """All of the parts are there or none: only with snapshots, and by itself where the API is.

    `setting(wanted)` is the value of the chart below `snapshots`. Returns what was rendered, as texts.
    """
    crds, texts = f"--api-versions={api}", []

    def shown(enabled, wanted, *arguments):
        content = {**ONE_ARRAY, "snapshots": {"enabled": enabled, **setting(wanted)}}
        texts.append(yaml.safe_dump(render(values(content), *arguments)))
        found = {part for part in parts if part in texts[-1]}
        assert found in (parts, set()), found
        return bool(found)

    assert [shown(True, "auto"), shown(True, "auto", crds)] == [False, True]
    assert [shown(True, True), shown(True, False, crds)] == [True, False]
    assert [shown(False, True), shown(False, "auto", crds)] == [False, False]
    return texts


def test_groups_of_snapshots_are_there_when_the_cluster_can_have_them(values):
    """Only with snapshots; the sidecar's feature, its rights and the class come together."""
    check_switch(
        values,
        "groupsnapshot.storage.k8s.io/v1",
        lambda wanted: {"groups": wanted},
        {"CSIVolumeGroupSnapshot=true", "volumegroupsnapshotcontents", "VolumeGroupSnapshotClass"},
    )


def test_changed_blocks_are_there_when_the_cluster_can_have_them(values):
    """Only with snapshots; the sidecar, its rights, its certificate and its port come together."""
    texts = check_switch(
        values,
        "cbt.storage.k8s.io/v1beta1",
        lambda wanted: {"metadata": {"enabled": wanted}},
        {
            "csi-snapshot-metadata:",
            "subjectaccessreviews",
            f"--server={SNAPSHOT_METADATA}-tls={SNAPSHOT_METADATA}.lunkeeper.svc",
            f"secretName: {SNAPSHOT_METADATA}-tls",
            "port: blocks",
        },
    )
    # Without the CA's certificate there is nothing to publish.
    assert not [text for text in texts if "SnapshotMetadataService" in text]


def test_backup_programs_find_changed_blocks_where_they_are_served(values):
    things = render(
        values({**ONE_ARRAY, "snapshots": {"enabled": True, "metadata": {"enabled": True, "caCert": "Y2E="}}})
    )
    found, service = find(things, "SnapshotMetadataService"), find(things, "Service", SNAPSHOT_METADATA)
    assert found["metadata"]["name"] == found["spec"]["audience"] == "csi.lunkeeper.io"
    assert found["spec"]["caCert"] == "Y2E="
    assert found["spec"]["address"] == f"{SNAPSHOT_METADATA}.lunkeeper.svc:50051"
    spec = pods(things)["storage-lunkeeper-controller"]
    (sidecar,) = (each for each in spec["containers"] if each["name"] == "snapshot-metadata")
    assert "--port=50051" in sidecar["args"]
    # It reads the audience there, whatever its options are.
    assert {
        "apiGroups": ["cbt.storage.k8s.io"],
        "resources": ["snapshotmetadataservices"],
        "resourceNames": [found["metadata"]["name"]],
        "verbs": ["get"],
    } in find(things, "ClusterRole")["rules"]
    (port,) = service["spec"]["ports"]
    assert {"name": port["targetPort"], "containerPort": port["port"]} in sidecar["ports"]
    # With a certificate of one's own, none is made.
    own = {"enabled": True, "metadata": {"enabled": True, "tlsSecret": "mine"}}
    things = render(values({**ONE_ARRAY, "snapshots": own}))
    volumes = pods(things)["storage-lunkeeper-controller"]["volumes"]
    assert "mine" in [volume["secret"]["secretName"] for volume in volumes if "secret" in volume]
    assert f"{SNAPSHOT_METADATA}-tls" not in yaml.safe_dump(things)
