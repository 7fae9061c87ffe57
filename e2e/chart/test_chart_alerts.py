"""The chart's alerts, by promtool: each fires at its fault, and none on a cluster that is well."""

import dataclasses
import re
import subprocess

import pytest
import yaml

from chart.charts import EVERYTHING, find, render
from chart.well import ALWAYS, DAY, TAINTED, WELL, call, series


@dataclasses.dataclass
class Fault:
    alert: str
    changed: dict  # of WELL: the series that are otherwise; None: that are not there
    fires: dict  # {labels that the alert has beside its severity: its summary}
    at: str = "30m"


def only(metric, values):
    """All series of a metric, with these values one after another."""
    names = [name for name in WELL if name.startswith(metric + "{")]
    return dict(zip(names, values, strict=True))


AGES = "lunkeeper_node_storage_heartbeat_age_seconds"
IN_LUNKEEPER = (("namespace", "lunkeeper"),)


def of_pod(pod):
    return (*IN_LUNKEEPER, ("pod", pod))


CACHE_LOST = "A device failed for good, and node-3 could not write back what a volume had cached"
FAULTS = {
    "a certificate ends in ten days": Fault(
        "LunkeeperCertificateEnds",
        {
            series(
                "lunkeeper_certificate_end_seconds", "node-1", file="/etc/node-1.crt"
            ): f"{10 * DAY}x{ALWAYS}"
        },
        {
            (
                *IN_LUNKEEPER,
                ("pod", "node-1"),
                ("file", "/etc/node-1.crt"),
            ): "The certificate /etc/node-1.crt of node-1 is good for 9d 23h 30m 0s more"
        },
    ),
    **{
        f"a pool is {used / 10:.0f} % full": Fault(
            alert,
            only("lunkeeper_pool_used_bytes", [f"{used}x{ALWAYS}"]),
            {(("array", "local"),): f"The pool of array local is {used / 10:.0f}% full"},
        )
        for used, alert in (
            (810, "LunkeeperPoolFills"),
            (900, "LunkeeperPoolFills"),
            (910, "LunkeeperPoolIsNearlyFull"),
        )
    },
    "a tgtd hangs": Fault(
        "LunkeeperTgtdIsNotWell",
        only("lunkeeper_tgtd_well", [f"1x100 0x{ALWAYS - 101}", f"1x{ALWAYS}"]),
        {(("array", "local"), ("tgtd", "0")): "tgtd 0 of array local hangs, or does not start"},
    ),
    "an array has many grants, and all are in one tgtd": Fault(
        "LunkeeperTgtdsAreFew",
        {
            **only("lunkeeper_array_grants", [f"300x20 600x{ALWAYS - 21}"]),
            **only("lunkeeper_tgtd_grants", [f"300x20 600x{ALWAYS - 21}", f"0x{ALWAYS}"]),
        },
        {(("array", "local"),): "Array local has 600 grants in one tgtd"},
    ),
    "a tgtd dies each five minutes": Fault(
        "LunkeeperTgtdDies",
        only("lunkeeper_tgtd_deaths_total", [f"0x19 1x19 2x19 3x19 4x19 5x{ALWAYS - 100}"]),
        {(("array", "local"),): "tgtd of array local dies again and again"},
    ),
    "the gateway that stood by is gone": Fault(
        "LunkeeperNoStandby",
        only("lunkeeper_array_has_standby", [f"1x100 0x{ALWAYS - 101}"]),
        {(("array", "local"),): "No gateway stands by for array local"},
        at="31m",
    ),
    "a grant is not taken back": Fault(
        "LunkeeperReleaseIsStuck",
        only("lunkeeper_array_oldest_release_seconds", [f"0x100 0+15x{ALWAYS - 101}"]),
        {(("array", "local"),): "Array local has been taking a grant back for 5m 0s"},
    ),
    "an array is away for two nodes": Fault(
        "LunkeeperArrayAway",
        only(AGES, ["0.4x100 0+15x5000", "0.4x100 0+15x5000", f"0.4x{ALWAYS}", f"0.4x{ALWAYS}"]),
        {(("array", "rack1"),): "Array rack1 is away for 2 nodes"},
    ),
    "an array is away that only one node of three uses": Fault(
        "LunkeeperArrayAway",
        {series(AGES, "node-3", array="rack2"): "0.4x99 0+15x5000"},
        {(("array", "rack2"),): "Array rack2 is away for 1 nodes"},
    ),
    "a limit holds a failover back": Fault(
        "LunkeeperFailoverHeldBack",
        {series("lunkeeper_failover_held_back_nodes", "controller-1"): f"0x100 2x{ALWAYS - 101}"},
        {(): "A limit holds back the failover of 2 nodes"},
        at="26m",
    ),
    "one node of three has lost its path": Fault(
        "LunkeeperStoragePathLost",
        {series(AGES, "node-2", array="rack1"): "0.4x99 0+15x5000"},
        {(("array", "rack1"), *of_pod("node-2")): "node-2 has not reached array rack1 for 5m 15s"},
    ),
    "a device has failed": Fault(
        "LunkeeperDeviceFailed",
        {series("lunkeeper_volume_health", "node-3", volume="v3", state="failed"): f"0x100 1x{ALWAYS - 101}"},
        {
            (
                *IN_LUNKEEPER,
                ("pod", "node-3"),
                ("volume", "v3"),
            ): "The device of volume v3 on the node of node-3 has failed for good"
        },
    ),
    "a device has been reconnecting for long": Fault(
        "LunkeeperDeviceReconnects",
        {
            series(
                "lunkeeper_volume_health", "node-1", volume="v1", state="reconnecting"
            ): f"0x100 1x{ALWAYS - 101}"
        },
        {
            (*IN_LUNKEEPER, ("pod", "node-1"), ("volume", "v1")): "The device of volume v1 on the node of "
            "node-1 has been without its target for 30 seconds"
        },
    ),
    "a data path is dead": Fault(
        "LunkeeperDataPathAway",
        {series("lunkeeper_node_datapath_answers", "node-2"): f"1x100 0x{ALWAYS - 101}"},
        {(*IN_LUNKEEPER, ("pod", "node-2")): "The data path on the node of node-2 does not answer"},
    ),
    "a device failed with data in the cache": Fault(
        "LunkeeperWritesLost",
        {call("node-3", "csi.v1.Node/NodeUnstageVolume", "DATA_LOSS"): f"_x100 1x{ALWAYS - 101}"},
        {of_pod("node-3"): CACHE_LOST},
    ),
    "such a device for the second time": Fault(
        "LunkeeperWritesLost",
        {call("node-3", "csi.v1.Node/NodeUnstageVolume", "DATA_LOSS"): f"1x400 2x{ALWAYS - 401}"},
        {of_pod("node-3"): CACHE_LOST},
        at="2h",
    ),
    "kubelet does not take a plugin": Fault(
        "LunkeeperNodeNotRegistered",
        {series("lunkeeper_registered", "node-1"): f"0x{ALWAYS}"},
        {of_pod("node-1"): "kubelet has not registered node-1, so no volume is mounted there"},
    ),
    **{
        f"the {name.replace('_', ' ')} is wrong": Fault(
            alert,
            {series(f"lunkeeper_{name}_good", "controller-2"): f"0x{ALWAYS}"},
            {(*IN_LUNKEEPER, ("pod", "controller-2")): f"controller-2 cannot read {what}"},
        )
        for name, alert, what in (
            (
                "arrays_file",
                "LunkeeperArraysFileWrong",
                "its list of arrays, and goes on with the last good one",
            ),
            (
                "failover_settings",
                "LunkeeperFailoverSettingsWrong",
                "the settings of failover: it goes on with the last good ones, or is paused if it has none",
            ),
        )
    },
    **{
        f"failover does not act: {why}": Fault(
            "LunkeeperFailoverDoesNotAct",
            changed,
            {(): "No controller carries out failovers, or more than one says that it does"},
        )
        for why, changed in {
            "nobody leads": only("lunkeeper_failover_leading", [f"0x{ALWAYS}"] * 2),
            "two lead": only("lunkeeper_failover_leading", [f"1x{ALWAYS}"] * 2),
            "the leader sees nothing": only("lunkeeper_failover_synced", [f"0x{ALWAYS}", f"1x{ALWAYS}"]),
            "no controller is there": only("lunkeeper_failover_leading", [None] * 2),
        }.items()
    },
    "the leader does not see an array": Fault(
        "LunkeeperFailoverSeesNoArray",
        {series("lunkeeper_failover_unseen_arrays", "controller-1"): f"1x{ALWAYS}"},
        {(): "The leading controller cannot look at 1 arrays"},
    ),
    "the leader does not see a part of an array": Fault(
        "LunkeeperFailoverSeesNotAllGrants",
        {series("lunkeeper_failover_unseen_grants", "controller-1"): f"40x{ALWAYS}"},
        {(): "The leading controller does not see whether 40 grants are used, as a tgtd does not answer"},
    ),
    "failover is paused for long": Fault(
        "LunkeeperFailoverPaused",
        {series("lunkeeper_failover_paused", "controller-1"): f"1x{ALWAYS}"},
        {(): "Failover has been paused, or a dry run, for 15 minutes"},
    ),
    "a node is fenced": Fault(
        "LunkeeperNodeFenced",
        {series("lunkeeper_failover_nodefences", "controller-2", phase="AwaitingNode"): f"1x{ALWAYS}"},
        {(): "A node is fenced"},
    ),
    "a plugin is silent": Fault(
        "LunkeeperPluginIsSilent",
        {series(TAINTED, "controller-1"): f"0x50 2x{ALWAYS - 51}"},
        {(): "For 10 minutes 2 nodes have taken no new pods, as their plugin is silent"},
    ),
    "nodes died of a volume": Fault(
        "LunkeeperVolumeHeldBack",
        {series("lunkeeper_failover_volumes_held_back", "controller-2"): f"1x{ALWAYS}"},
        {(): "Volumes are not moved any more, as nodes died soon after they mounted them (1)"},
    ),
    "an array does not fence": Fault(
        "LunkeeperFenceFails",
        {series("lunkeeper_failover_fence_failures_total", "controller-2"): f"0x100 0+1x{ALWAYS - 101}"},
        {(): "An array does not carry out a fence, so a node's pods cannot be moved"},
    ),
}


def rules(values, content=EVERYTHING):
    return find(render(values(content)), "PrometheusRule")["spec"]


def written(samples):
    """'1x3' is promtool's '1+0x2', for one sample that is repeated; a plain number or a+bxn stays."""

    def one(word):
        value, times, count = word.partition("x")
        return f"{value}+0x{int(count) - 1}" if times and "+" not in value and value != "_" else word

    return " ".join(one(word) for word in samples.split())


def promtool(folder, verb, *files):
    told = subprocess.run(
        ["promtool", *verb.split(), *files], cwd=folder, capture_output=True, text=True, timeout=120
    )
    return told.returncode, told.stdout + told.stderr


def run_case(folder, given, shown, expected):
    """`expected` are the alerts, as promtool wants them, at times."""
    (folder / "rules.yaml").write_text(yaml.safe_dump(given))
    test = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": [
                    {"series": name.replace("'", '"'), "values": written(values)}
                    for name, values in shown.items()
                    if values is not None
                ],
                "alert_rule_test": expected,
            }
        ],
    }
    (folder / "test.yaml").write_text(yaml.safe_dump(test))
    code, told = promtool(folder, "test rules", "test.yaml")
    assert code == 0, told


def test_promtool_accepts_the_rules(values, tmp_path):
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules(values)))
    code, told = promtool(tmp_path, "check rules", "rules.yaml")
    assert code == 0, told


def test_on_a_cluster_that_is_well_nothing_fires(values, tmp_path):
    given = rules(values)
    names = [rule["alert"] for rule in given["groups"][0]["rules"]]
    times = ("5m", "25m30s", "26m30s", "51m", "52m", "6h", "23h")
    run_case(
        tmp_path,
        given,
        WELL,
        [{"eval_time": time, "alertname": name, "exp_alerts": []} for time in times for name in names],
    )


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_an_alert_fires_at_its_fault(values, tmp_path, fault):
    given = rules(values)
    (rule,) = (rule for rule in given["groups"][0]["rules"] if rule["alert"] == fault.alert)
    expected = [
        {
            "exp_labels": {**rule["labels"], **dict(labels)},
            "exp_annotations": {"summary": summary, "description": rule["annotations"]["description"]},
        }
        for labels, summary in fault.fires.items()
    ]
    run_case(
        tmp_path,
        given,
        {**WELL, **fault.changed},
        [{"eval_time": fault.at, "alertname": fault.alert, "exp_alerts": expected}],
    )


def test_each_alert_has_a_fault_that_it_fires_at(values):
    names = {rule["alert"] for rule in rules(values)["groups"][0]["rules"]}
    assert names == {fault.alert for fault in FAULTS.values()}


def test_each_alert_says_how_bad_it_is_and_what_to_do(values):
    for rule in rules(values)["groups"][0]["rules"]:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert "{{" not in rule["annotations"]["description"]
        assert len(rule["annotations"]["description"]) > 20


def test_without_failover_no_alert_is_about_it(values):
    content = {**EVERYTHING, "failover": {"enabled": False}}
    assert "failover_" not in re.sub("description: .*", "", yaml.safe_dump(rules(values, content)))
