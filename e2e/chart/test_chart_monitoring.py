"""docs/monitoring.md lists the metrics that the program serves; the dashboard and the alerts use no other."""

import json
import re

import pytest
import yaml

from chart.charts import EVERYTHING, find, render
from chart.test_chart_alerts import promtool
from harness.places import ROOT

PAGE = (ROOT / "docs/monitoring.md").read_text()
# What Prometheus and its operator add to each figure.
ADDED = {"namespace", "pod", "le"}


def sources():
    return [
        path.read_text()
        for path in ROOT.glob("[a-z]*/**/*.cc")
        if not path.name.endswith("_test.cc") and path.parts[len(ROOT.parts)] != "build"
    ]


def documented():
    """{metric: its labels}, as the page's tables have them."""
    rows = re.findall(r"^\| `(lunkeeper_\w+)` \|([^|]*)\|", PAGE, re.MULTILINE)
    assert len(rows) == len({name for name, _ in rows})
    return {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}


@pytest.fixture
def rendered(values):
    return render(values(EVERYTHING))


def panels(rendered):
    board = json.loads(find(rendered, "ConfigMap", "storage-lunkeeper-dashboard")["data"]["lunkeeper.json"])
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def alerts(rendered):
    (group,) = find(rendered, "PrometheusRule")["spec"]["groups"]
    return group["rules"]


def test_the_page_lists_every_metric(rendered):
    served = {name for text in sources() for name in re.findall(r'"(lunkeeper_[a-z_]+)"', text)}
    assert documented().keys() == served


def test_the_page_lists_labels_that_the_program_gives():
    for metric, labels in documented().items():
        texts = [text for text in sources() if f'"{metric}"' in text]
        # What a counter's file calls its label, or the one that the file hands over.
        given = {label for text in texts for label in re.findall(r'\{\{?"(\w+)",', text)}
        assert labels <= given, metric


def test_the_page_lists_every_alert_as_it_is(rendered):
    rows = re.findall(r"^\| `(Lunkeeper\w+)` \| (\w+) \|", PAGE, re.MULTILINE)
    assert sorted(rows) == sorted((rule["alert"], rule["labels"]["severity"]) for rule in alerts(rendered))


def check_names(query, shown=""):
    """A query uses only metrics that are served, and labels that all of them have."""
    known = documented()
    metrics = {
        re.sub("_(bucket|count|sum)$", "", name) for name in re.findall(r"\blunkeeper_[a-z_]+", query)
    }
    assert metrics and metrics <= known.keys(), query
    groups = re.findall(r"\b(?:by|on|without) \(([^)]*)\)", query)
    matchers = re.findall(r"\{([^}]*)\}", query)
    used = {label for group in groups for label in group.split(", ")}
    used |= {label for matcher in matchers for label in re.findall(r"(\w+)[=!]", matcher)}
    used |= set(re.findall(r"\{\{(\w+)\}\}", shown))
    for metric in metrics:
        assert used <= known[metric] | ADDED, f"{query}: {metric} has only {known[metric]}"
    assert "le" not in used or "_bucket" in query, query


def test_alerts_use_what_is_served(rendered):
    for rule in alerts(rendered):
        check_names(rule["expr"])


def test_panels_use_what_is_served(rendered):
    for panel in panels(rendered):
        for target in panel["targets"]:
            check_names(target["expr"], target["legendFormat"])


# A gauge may fall, and what only rises is one that restarts: Prometheus knows which by its type alone.
def test_what_only_rises_is_a_counter(rendered):
    queries = [target["expr"] for panel in panels(rendered) for target in panel["targets"]]
    queries += [alert["expr"] for alert in alerts(rendered)]
    rising = {name for query in queries for name in re.findall(r"(?:increase|rate)\((lunkeeper_\w+)", query)}
    assert not [name for name in rising if not name.endswith(("_total", "_bucket", "_count", "_sum"))]
    gauges = {name for text in sources() for name in re.findall(r'SetGauge\(\s*"(lunkeeper_\w+)"', text)}
    assert not [name for name in gauges if name.endswith("_total")]


def test_promtool_accepts_each_panels_query(rendered, tmp_path):
    queries = [target["expr"] for panel in panels(rendered) for target in panel["targets"]]
    assert len(queries) > 20
    rules = [
        {"record": f"panel:{number}", "expr": query.replace("$__range", "1h")}
        for number, query in enumerate(queries)
    ]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    code, told = promtool(tmp_path, "check rules", "rules.yaml")
    assert code == 0, told


def test_panels_lie_beside_each_other_and_have_numbers_of_their_own(rendered):
    board = json.loads(find(rendered, "ConfigMap", "storage-lunkeeper-dashboard")["data"]["lunkeeper.json"])
    taken = {}
    for panel in board["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert x < 24 and taken.setdefault((x, y), panel["id"]) == panel["id"], panel["title"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_no_page_names_a_metric_that_is_not_served():
    for page in (ROOT / "docs").glob("*.md"):
        assert set(re.findall(r"\blunkeeper_[a-z_]+", page.read_text())) <= documented().keys(), page.name
