"""The Helm chart without a cluster: storage hosts that join with an invitation."""

import json

from chart.charts import ONE_ARRAY, every_pod, find, pods, render

JOINING = {"cluster": "prod", "arrays": [{"name": "rack3", "address": "10.0.0.7:7480"}]}
ACCOUNT = "storage-lunkeeper-array-rack3"


def test_a_storage_host_is_invited_to_read_its_own_certificate_and_nothing_else(values):
    things = render(values(JOINING))
    invitation = find(things, "Secret", f"{ACCOUNT}-join")
    assert invitation["type"] == "kubernetes.io/service-account-token" and "data" not in invitation
    assert invitation["metadata"]["annotations"] == {
        "kubernetes.io/service-account.name": ACCOUNT,
        "lunkeeper.io/certificate": f"{ACCOUNT}-tls",
    }
    assert find(things, "Role", ACCOUNT)["rules"] == [
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [f"{ACCOUNT}-tls"], "verbs": ["get"]}
    ]
    binding = find(things, "RoleBinding", ACCOUNT)
    assert [subject["name"] for subject in binding["subjects"]] == [ACCOUNT]
    assert [
        thing["metadata"]["name"]
        for thing in things
        if thing["kind"].endswith("Binding") and ACCOUNT in str(thing["subjects"])
    ] == [ACCOUNT]
    assert ACCOUNT not in {spec["serviceAccountName"] for spec in every_pod(things).values()}


def test_its_certificate_is_for_the_name_that_controllers_expect(values):
    things = render(values(JOINING))
    asked = find(things, "Job")["spec"]["template"]["spec"]["containers"][0]["args"]
    (array,) = json.loads(find(things, "ConfigMap", "storage-lunkeeper-arrays")["data"]["arrays.json"])[
        "arrays"
    ]
    assert array["address"] == "10.0.0.7:7480"
    assert f"--server={ACCOUNT}-tls={array['serverName']}" in asked
    assert "--client=storage-lunkeeper-controller-tls=controller.prod.cluster.lunkeeper.io" in asked
    volumes = pods(things)["storage-lunkeeper-controller"]["volumes"]
    (mounted,) = (volume for volume in volumes if volume["name"] == "array-rack3")
    assert mounted["secret"]["secretName"] == "storage-lunkeeper-controller-tls"


def test_the_gateways_of_an_array_share_its_invitation_and_its_certificates_name(values):
    gateways = ["10.0.0.7:7480", "10.0.0.8:7480"]
    things = render(values({**JOINING, "arrays": [{"name": "rack3", "address": gateways}]}))
    (array,) = json.loads(find(things, "ConfigMap", "storage-lunkeeper-arrays")["data"]["arrays.json"])[
        "arrays"
    ]
    assert array["address"] == gateways
    asked = find(things, "Job")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert f"--server={ACCOUNT}-tls={array['serverName']}" in asked


def test_a_storage_host_with_secrets_of_ones_own_is_not_invited(values):
    assert not [thing for thing in render(values(ONE_ARRAY)) if thing["kind"] == "Secret"]
