"""The Helm chart without a cluster: who makes the coordinator's certificates, and who may read them."""

import re

import pytest

from chart.charts import CHART, EVERYTHING, ONE_ARRAY, every_pod, find, pods, render, run_helm

MADE_UP = re.compile(r"\b(gen[A-Z]\w*|rand\w+|lookup|uuidv4|now|date|htpasswd|derivePassword|encryptAES)\b")


def test_nothing_is_made_up_while_rendering(values):
    """`helm template` and Argo CD render again and again: the text stays the same, and has no key in it."""
    once, twice = (
        run_helm("template", "storage", CHART, f"--values={values(ONE_ARRAY)}").stdout for _ in range(2)
    )
    assert once and once == twice
    for template in (path for path in CHART.glob("templates/**/*") if path.is_file()):
        actions = re.findall(r"\{\{-? *(?!/\*).*?\}\}", template.read_text(), re.DOTALL)
        assert not [action for action in actions if MADE_UP.search(action)], template


def test_only_one_account_may_read_the_authoritys_key(values):
    things = render(values(ONE_ARRAY))
    readers = {
        thing["metadata"]["name"]: (rule["resourceNames"], rule["verbs"])
        for thing in things
        for rule in thing.get("rules", [])
        if "secrets" in rule["resources"] and set(rule["verbs"]) & {"get", "list", "watch"}
    }
    names = ["storage-lunkeeper-coordinator-authority", "storage-lunkeeper-coordinator-tls"]
    assert readers == {"storage-lunkeeper-pki": (names, ["get", "patch"])}
    subjects = find(things, "RoleBinding", "storage-lunkeeper-pki")["subjects"]
    assert [subject["name"] for subject in subjects] == ["storage-lunkeeper-pki"]
    specs = every_pod(things).values()
    assert sum(spec["serviceAccountName"] == "storage-lunkeeper-pki" for spec in specs) == 2
    mounted = {
        volume["secret"]["secretName"]
        for spec in specs
        for volume in spec.get("volumes", [])
        if "secret" in volume
    }
    assert mounted == {"storage-lunkeeper-coordinator-tls", "lunkeeper-rack1"}


def test_what_the_job_makes_is_what_the_others_read(values):
    things = render(values(ONE_ARRAY))
    job, cron = find(things, "Job"), find(things, "CronJob")
    assert job["spec"]["template"] == cron["spec"]["jobTemplate"]["spec"]["template"]
    options = job["spec"]["template"]["spec"]["containers"][0]["args"][2:]
    told = dict(option.lstrip("-").split("=") for option in options)
    read = {volume["name"]: volume for spec in pods(things).values() for volume in spec["volumes"]}
    # Not optional: kubelet starts no pod without them.
    assert read["coordinator-tls"]["secret"] == {"secretName": told["secret"], "defaultMode": 0o440}
    assert read["coordinator-ca"]["configMap"] == {"name": told["ca-config-map"]}
    node = pods(things)["storage-lunkeeper-node"]["containers"][0]
    assert f"--coordinator-address={told['host']}:7443" in node["args"]


def test_a_changed_job_has_another_name(values):
    """Kubernetes refuses to change a Job."""

    def name(*changes):
        return find(render(values(ONE_ARRAY), *changes), "Job")["metadata"]["name"]

    assert name() == name("--set=node.maxVolumes=3")
    changes = ("image.tag=next", "coordinator.tls.validDays=30", "logs.format=text")
    assert len({name(), *(name(f"--set={change}") for change in changes)}) == 4


@pytest.mark.parametrize(
    "tls",
    [EVERYTHING["coordinator"]["tls"], {"source": "secret", "secretName": "a", "caConfigMap": "b"}],
    ids=lambda tls: tls["source"],
)
def test_there_is_no_job_for_certificates_that_others_make(values, tls):
    things = render(values({**ONE_ARRAY, "coordinator": {"tls": tls}}))
    assert not {"Job", "CronJob"} & {thing["kind"] for thing in things}
    assert not [thing for thing in things if thing["metadata"]["name"].endswith("-pki")]
