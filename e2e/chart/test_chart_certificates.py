"""The Helm chart without a cluster: who makes certificates, and who may read them."""

import json
import re

import pytest

from chart.charts import CHART, EVERYTHING, LOCAL_ARRAY, ONE_ARRAY, every_pod, find, pods, render, run_helm

MADE_UP = re.compile(r"\b(gen[A-Z]\w*|rand\w+|lookup|uuidv4|now|date|htpasswd|derivePassword|encryptAES)\b")

# It prints nothing: an upgrade that forgets a local array is refused.
REFUSES = '{{- range (lookup "apps/v1" "DaemonSet" .Release.Namespace "").items }}'


def test_nothing_is_made_up_while_rendering(values):
    """`helm template` and Argo CD render again and again: the text stays the same, and has no key in it."""
    once, twice = (
        run_helm("template", "storage", CHART, f"--values={values(ONE_ARRAY)}").stdout for _ in range(2)
    )
    assert once and once == twice
    for template in CHART.glob("templates/**/*.[yt]*"):
        if template.name == "NOTES.txt":  # for the one who installs; it is in no object
            continue
        actions = re.findall(r"\{\{-? *(?!/\*).*?\}\}", template.read_text(), re.DOTALL)
        found = [action for action in actions if MADE_UP.search(action)]
        assert found == ([REFUSES] if template.name == "_helpers.tpl" else []), template


@pytest.mark.parametrize("content", [ONE_ARRAY, LOCAL_ARRAY], ids=["elsewhere", "local"])
def test_only_one_account_may_read_the_authoritys_key(values, content):
    things = render(values(content))
    readers = {
        thing["metadata"]["name"]: (rule["resourceNames"], rule["verbs"])
        for thing in things
        for rule in thing.get("rules", [])
        if "secrets" in rule["resources"] and set(rule["verbs"]) & {"get", "list", "watch"}
    }
    names = ["storage-lunkeeper-authority", "storage-lunkeeper-coordinator-tls"]
    if content == LOCAL_ARRAY:
        names += ["storage-lunkeeper-array-local-tls", "storage-lunkeeper-controller-tls"]
    assert readers == {"storage-lunkeeper-pki": (names, ["get", "patch"])}
    subjects = find(things, "RoleBinding", "storage-lunkeeper-pki")["subjects"]
    assert [subject["name"] for subject in subjects] == ["storage-lunkeeper-pki"]
    specs = every_pod(things).values()
    assert sum(spec["serviceAccountName"] == "storage-lunkeeper-pki" for spec in specs) == 2
    assert names[0] not in {secret for spec in specs for secret in secrets_of(spec).values()}


def secrets_of(spec):
    """{volume: Secret} of a pod."""
    return {
        volume["name"]: volume["secret"]["secretName"]
        for volume in spec.get("volumes", [])
        if "secret" in volume
    }


def told_to_the_job(things):
    """{option of the Job: its values}."""
    job, cron = find(things, "Job"), find(things, "CronJob")
    assert job["spec"]["template"] == cron["spec"]["jobTemplate"]["spec"]["template"]
    told = {}
    for option in job["spec"]["template"]["spec"]["containers"][0]["args"][2:]:
        name, _, value = option.lstrip("-").partition("=")
        told.setdefault(name, []).append(value)
    return told


def test_what_the_job_makes_is_what_the_others_read(values):
    things = render(values(ONE_ARRAY))
    told = told_to_the_job(things)
    ((secret, host),) = (value.split("=") for value in told["server"])
    read = {volume["name"]: volume for spec in pods(things).values() for volume in spec["volumes"]}
    # Not optional: kubelet starts no pod without them.
    assert read["coordinator-tls"]["secret"] == {"secretName": secret, "defaultMode": 0o440}
    assert read["coordinator-ca"]["configMap"] == {"name": told["ca-config-map"][0]}
    node = pods(things)["storage-lunkeeper-node"]["containers"][0]
    assert f"--coordinator-address={host}:7443" in node["args"]
    assert "client" not in told


def test_a_local_arrays_agent_and_the_controllers_each_have_their_own_certificate(values):
    """Made by the Job, for the name at which controllers look for the agent, and for this cluster."""
    things = render(values({**LOCAL_ARRAY, "cluster": "prod"}))
    told = told_to_the_job(things)
    servers = dict(value.split("=") for value in told["server"])
    host = servers.pop("storage-lunkeeper-array-local-tls")
    assert list(servers) == ["storage-lunkeeper-coordinator-tls"]
    assert told["client"] == ["storage-lunkeeper-controller-tls=controller.prod.cluster.lunkeeper.io"]
    assert secrets_of(pods(things)["storage-lunkeeper-array-local"]) == {
        "tls": "storage-lunkeeper-array-local-tls"
    }
    assert secrets_of(pods(things)["storage-lunkeeper-controller"]) == {
        "coordinator-tls": "storage-lunkeeper-coordinator-tls",
        "array-local": "storage-lunkeeper-controller-tls",
    }
    (array,) = json.loads(find(things, "ConfigMap", "storage-lunkeeper-arrays")["data"]["arrays.json"])[
        "arrays"
    ]
    assert array["address"] == f"{host}:7480"
    service = find(things, "Service", host.split(".")[0])
    assert host == f"{service['metadata']['name']}.lunkeeper.svc"
    agent = find(things, "DaemonSet", "storage-lunkeeper-array-local")["spec"]["template"]
    assert service["spec"]["selector"].items() <= agent["metadata"]["labels"].items()


def test_a_local_array_with_secrets_of_ones_own_asks_the_job_for_nothing(values):
    own = {**LOCAL_ARRAY["localArray"], "agentSecret": "a", "tlsSecret": "b"}
    tls = {"source": "secret", "secretName": "c", "caConfigMap": "d"}
    things = render(values({"localArray": own, "coordinator": {"tls": tls}}))
    assert not [thing for thing in things if thing["metadata"]["name"].endswith("-pki")]
    assert secrets_of(pods(things)["storage-lunkeeper-array-local"]) == {"tls": "a"}
    assert secrets_of(pods(things)["storage-lunkeeper-controller"])["array-local"] == "b"


def test_a_local_arrays_certificates_are_made_beside_those_of_cert_manager(values):
    things = render(values({**LOCAL_ARRAY, "coordinator": EVERYTHING["coordinator"]}))
    told = told_to_the_job(things)
    assert told["server"] == ["storage-lunkeeper-array-local-tls=storage-lunkeeper-array-local.lunkeeper.svc"]
    assert "ca-config-map" not in told
    for rule in find(things, "Role", "storage-lunkeeper-pki")["rules"]:
        assert rule["verbs"] == ["create"] or "storage-lunkeeper-coordinator-tls" not in rule["resourceNames"]


def test_a_daily_job_that_cannot_run_keeps_no_later_one_away(values):
    """A Job's pod is never changed: one with an image that is not there would wait for it for ever."""
    cron = find(render(values(ONE_ARRAY)), "CronJob")["spec"]
    assert cron["concurrencyPolicy"] == "Forbid"
    assert 60 < cron["jobTemplate"]["spec"]["activeDeadlineSeconds"] < 24 * 3600


def test_a_secret_that_is_missing_takes_its_array_along_and_no_controller(values):
    content = {**ONE_ARRAY, **LOCAL_ARRAY}
    mounted = {
        volume["name"]: volume["secret"].get("optional", False)
        for volume in pods(render(values(content)))["storage-lunkeeper-controller"]["volumes"]
        if "secret" in volume
    }
    # The Job makes its own within seconds, and a pod that waits for them has them sooner than one that runs.
    assert mounted == {"coordinator-tls": False, "array-rack1": True, "array-local": False}


def test_a_changed_job_has_another_name(values):
    """Kubernetes refuses to change a Job."""

    def name(*changes):
        return find(render(values(ONE_ARRAY), *changes), "Job")["metadata"]["name"]

    assert name() == name("--set=node.maxVolumes=3")
    changes = ("image.tag=next", "pki.validDays=30", "logs.format=text")
    assert len({name(), *(name(f"--set={change}") for change in changes)}) == 4


@pytest.mark.parametrize(
    "tls",
    [EVERYTHING["coordinator"]["tls"], {"source": "secret", "secretName": "a", "caConfigMap": "b"}],
    ids=lambda tls: tls["source"],
)
def test_there_is_no_job_for_certificates_that_others_make(values, tls):
    things = render(values({**ONE_ARRAY, "coordinator": {"tls": tls}}))
    jobs = [thing for thing in things if thing["kind"] in ("Job", "CronJob")]
    assert [job["metadata"]["name"] for job in jobs] == ["storage-lunkeeper-uninstall"]
    assert not [thing for thing in things if thing["metadata"]["name"].endswith("-pki")]


@pytest.mark.parametrize("days,refused", [(7, False), (20, False), (30, True), (60, True)])
def test_no_alert_is_about_certificates_that_are_not_yet_due(values, days, refused):
    """They are renewed when a third of 90 days is left."""
    content = {**LOCAL_ARRAY, "metrics": {"alerts": {"enabled": True, "certificateDays": days}}}
    done = run_helm("template", "storage", CHART, f"--values={values(content)}")
    assert (done.returncode != 0) == refused
    assert not refused or "want less than a third" in done.stderr
