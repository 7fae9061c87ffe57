"""Debian's Prometheus, which collects the metrics of a test's processes."""

import json
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.cleanup import Closing, wait_until
from harness.processes import Daemon, free_port

Series = dict[str, Any]  # {"metric": labels, "values": [[time, text], …]}


class Prometheus(Closing):
    """`targets`: {pod's name: port of its /metrics on this machine}."""

    def __init__(self, folder: Path, targets: Mapping[str, int]) -> None:
        self.port, self.targets = free_port(), targets
        folder.mkdir()
        config = folder / "prometheus.yaml"
        jobs = [
            {"targets": [f"127.0.0.1:{port}"], "labels": {"pod": pod, "namespace": "lunkeeper"}}
            for pod, port in targets.items()
        ]
        config.write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
                    "scrape_configs": [{"job_name": "lunkeeper", "static_configs": jobs}],
                }
            )
        )
        self.daemon = Daemon(
            "prometheus",
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            log=folder / "prometheus.log",
            dies_with_us=True,
        ).start()
        wait_until(self._collects, 60, lambda: f"Prometheus collects from all\n{self.daemon.tail()}", 0.2)

    def _collects(self) -> bool:
        assert self.daemon.running(), self.daemon.tail()
        try:
            up = self.query("up")
        except OSError:
            return False
        return len(up) == len(self.targets) and all(series["values"][0][1] == "1" for series in up)

    def query(self, expression: str) -> list[Series]:
        """Its series now, each with one value."""
        found = self._ask("query", query=expression)
        return [{"metric": each["metric"], "values": [each["value"]]} for each in found]

    def query_range(self, expression: str, begin: float, end: float, step: float) -> list[Series]:
        return self._ask("query_range", query=expression, start=begin, end=end, step=step)

    def _ask(self, what: str, **parameters: object) -> list[Series]:
        where = f"http://127.0.0.1:{self.port}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(where, timeout=20) as answer:
            series: list[Series] = json.load(answer)["data"]["result"]
        return series

    def close(self) -> None:
        self.daemon.kill()
