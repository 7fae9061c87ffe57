"""The chart's dashboard: its panels, and what a Prometheus answers to them."""

import json
import math
import re
from typing import Any

from harness.places import ROOT
from harness.prometheus import Prometheus, Series

BOARD = ROOT / "charts/lunkeeper/dashboards/lunkeeper.json"
POINTS = 240  # of a graph
PALETTE = ("green", "yellow", "blue", "orange", "red", "purple")  # as Grafana's goes
Panel = dict[str, Any]


def panels() -> list[Panel]:
    """Rows, which have only a title, among them."""
    board: dict[str, list[Panel]] = json.loads(BOARD.read_text())
    return board["panels"]


def is_graph(panel: Panel) -> bool:
    return bool(panel["type"] == "timeseries")


def legend(template: str, labels: dict[str, str]) -> str:
    """As Grafana fills it in; a label that is not there becomes an empty text."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), template)


def colour(panel: Panel, value: float, number: int) -> str:
    """The name of the colour in which a value is shown, and `number` is how many stand before it.

    What says no colours is a KeyError: Grafana would show all above 80 in red.
    """
    says = panel["fieldConfig"]["defaults"]
    if says.get("color") == {"mode": "palette-classic"}:
        return PALETTE[number % len(PALETTE)]
    reached = [step["color"] for step in says["thresholds"]["steps"] if value >= (step["value"] or -math.inf)]
    return str(reached[-1])


def answer(prometheus: Prometheus, panel: Panel, begin: float, end: float) -> list[dict[str, Any]]:
    """[{"legend", "values": [[time, number], …]}] of one panel, what is no number left out."""
    shown = []
    for target in panel["targets"]:
        query = target["expr"]
        found = (
            prometheus.query_range(query, begin, end, (end - begin) / POINTS)
            if is_graph(panel)
            else prometheus.query(query)
        )
        shown += [
            {"legend": legend(target["legendFormat"], each["metric"]), "values": numbers(each)}
            for each in found
        ]
    return [each for each in shown if each["values"]]


def numbers(series: Series) -> list[list[float]]:
    values = [[float(time), float(text)] for time, text in series["values"]]
    return [value for value in values if math.isfinite(value[1])]


def problems(panel: Panel, shown: list[dict[str, Any]]) -> list[str]:
    """What a person would miss in a panel."""
    title, legends = panel["title"], [each["legend"] for each in shown]
    if not shown:
        return [f"{title}: it stays empty"]
    found = [f"{title}: two series are named {name}" for name in set(legends) if legends.count(name) > 1]
    if len(shown) > 1:
        found += [f"{title}: a series has no name" for name in legends if not name.strip()]
    if is_graph(panel):
        found += [f"{title}: {each['legend']} is one point" for each in shown if len(each["values"]) < 2]
    templates = [target["legendFormat"] for target in panel["targets"]]
    return found + [
        f"{title}: nothing for {template}"
        for template in templates
        if not any(re.fullmatch(legend_pattern(template), name) for name in legends)
    ]


def legend_pattern(template: str) -> str:
    return ".+".join(re.escape(part) for part in re.split(r"\{\{\w+\}\}", template))
