"""Helm on our chart, with two sets of values: the smallest one, and one that uses every part of the chart."""

import subprocess

import yaml

from cluster import programs
from harness.places import ROOT

CHART = ROOT / "charts/lunkeeper"
ONE_ARRAY = {"arrays": [{"name": "rack1", "address": "10.0.0.5:7480", "tlsSecret": "lunkeeper-rack1"}]}
LOCAL_ARRAY = {"localArray": {"node": "node-1", "path": "/srv/lunkeeper"}}
EVERYTHING = {
    "image": {"tag": "1.2.3"},
    "imagePullSecrets": [{"name": "registry"}],
    "cluster": "prod",
    "arrays": [
        *ONE_ARRAY["arrays"],
        {
            "name": "rack2",
            "address": "[fd00::5]:7480",
            "serverName": "two",
            "tlsSecret": "rack2",
            "default": True,
        },
        {"name": "rack3", "address": "10.0.0.7:7480"},
    ],
    **LOCAL_ARRAY,
    "localArrays": [
        {
            "name": "fast",
            "node": "node-1.example",
            "path": "/srv/fast",
            "portalAddress": "10.1.0.6",
            "otherPortalAddresses": ["10.2.0.6", "fd00::6"],
            "portalPort": 3261,
            "tgtds": 3,
            "agentPort": 7481,
            "metricsPort": 9811,
            "overcommit": 2.5,
            "keepFreePercent": 10,
            "agentSecret": "fast-agent",
            "tlsSecret": "fast-controller",
        }
    ],
    "agent": {"podAnnotations": {"c": "d"}},
    "storageClasses": [
        {
            "name": "fast",
            "default": True,
            "reclaimPolicy": "Retain",
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowVolumeExpansion": False,
            "mountOptions": ["noatime"],
            "annotations": {"example.com/tier": "gold"},
            "parameters": {
                "array": "rack2",
                "fsType": "xfs",
                "provisioning": "thick",
                "durability": "sync",
                "digests": "all",
            },
        },
        {"name": "plain"},
    ],
    "snapshots": {
        "groups": True,
        "groupClasses": [{"name": "together", "deletionPolicy": "Retain"}],
        "metadata": {"enabled": True, "caCert": "bm90IGEgQ0E="},
    },
    "volumeAttributesClasses": [
        {"name": "silver", "parameters": {"maxIops": "1000", "maxBandwidth": "100Mi", "durability": "sync"}}
    ],
    "controller": {
        "replicas": 3,
        "nodeSelector": {"role": "infra"},
        "podAnnotations": {"a": "b"},
        "tolerations": [{"key": "infra", "operator": "Exists"}],
    },
    "node": {
        "groups": [
            {"name": "row1", "nodeSelector": {"row": "1"}, "arrays": ["rack1", "rack2"]},
            {"name": "row2", "nodeSelector": {"row": "2"}, "arrays": ["rack2"]},
        ]
    },
    "datapath": {"poolMiB": 256, "threads": 4, "updateStrategy": "OnDelete"},
    "coordinator": {
        "tls": {
            "source": "cert-manager",
            "caConfigMap": "trust",
            "issuer": {"kind": "ClusterIssuer", "name": "ca"},
        }
    },
    "metrics": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboard": {"enabled": True},
        "alerts": {"enabled": True, "labels": {"release": "prometheus"}},
    },
    "failover": {
        "paused": True,
        "dryRun": True,
        "optIn": True,
        "ownerKinds": ["StatefulSet"],
        "overBudget": "stop",
    },
    "networkPolicy": {"metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]},
}


def run_helm(*arguments):
    return subprocess.run(
        [programs.path("helm"), *map(str, arguments)], capture_output=True, text=True, timeout=60
    )


def render(path, *arguments):
    done = run_helm("template", "storage", CHART, "--namespace=lunkeeper", f"--values={path}", *arguments)
    assert done.returncode == 0, done.stderr
    return [thing for thing in yaml.safe_load_all(done.stdout) if thing]


def find(things, kind, name=None):
    return next(
        thing for thing in things if thing["kind"] == kind and name in (None, thing["metadata"]["name"])
    )


def pods(things):
    """{name of the workload: the spec of its pods}."""
    return {
        thing["metadata"]["name"]: thing["spec"]["template"]["spec"]
        for thing in things
        if thing["kind"] in ("Deployment", "DaemonSet")
    }


def every_pod(things):
    """Like pods(), with those of Jobs and CronJobs."""
    jobs = {
        thing["metadata"]["name"]: thing["spec"]["template"]["spec"]
        for thing in things
        if thing["kind"] == "Job"
    }
    crons = {
        f"{thing['metadata']['name']} (daily)": thing["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        for thing in things
        if thing["kind"] == "CronJob"
    }
    return pods(things) | jobs | crons
