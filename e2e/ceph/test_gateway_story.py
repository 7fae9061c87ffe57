"""What operators see when an array on Ceph goes from one gateway to another: a controller and two agents."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.agents import Agent, page
from agent.coordinated import CoordinatedRig
from harness.ceph import Ceph
from harness.cleanup import wait_until
from harness.gateways import status_of
from harness.places import LUNKEEPER
from harness.processes import free_port, kill_pid
from harness.rig import free_control_port
from harness.store import options_of


class GatewayRig(CoordinatedRig):  # type: ignore[misc]
    """The array has a second agent, which is not started yet."""

    def __init__(self, folder: Path, pool: Path, ceph: Ceph) -> None:
        self.ceph = ceph
        self.second_address = f"127.0.0.1:{free_port()}"
        super().__init__(folder, pool)

    def entries(self) -> Any:
        (entry,) = super().entries()
        return [{**entry, "address": [entry["address"], self.second_address]}]

    def make_controller(self, array: list[str]) -> Any:
        controller = super().make_controller(array)
        portal, pool = f"127.0.0.1:{free_port()}", self.folder / "second-pool"
        pool.mkdir()
        self.second = Agent(
            self,
            self.array_name,
            pool,
            portal,
            free_control_port(),
            host="-second",
            address=self.second_address,
        )
        self.cleanup.add(self._forget, self.second)
        self.cleanup.add(lambda: self.die(self.second))
        (first,) = self.agents
        first.argv += [*options_of(self.ceph), f"--peer-portal={portal}"]
        self.second.argv += [*options_of(self.ceph), f"--peer-portal={self.portal}"]
        return controller

    @staticmethod
    def die(agent: Agent) -> None:
        tgtd = agent.tgtd()
        agent.kill()
        if tgtd is not None:
            with contextlib.suppress(ProcessLookupError):
                kill_pid(tgtd)

    def stands_by(self, agent: Agent) -> None:
        """Starts it for that."""
        said = len(agent.log.read_text()) if agent.log.exists() else 0
        agent.start()
        wait_until(lambda: "this agent stands by" in agent.log.read_text()[said:], 60, agent.tail)

    def told(self, reason: str) -> list[str]:
        """The events of this reason on failover's Lease."""
        events = self.api.get("/apis/events.k8s.io/v1/events")["items"]
        return [
            str(each["note"])
            for each in events
            if each["reason"] == reason and each["regarding"]["name"] == "lunkeeper-failover"
        ]

    def counted(self, what: str) -> float:
        line = rf'^lunkeeper_array_{what}_total{{array="{self.array_name}"}} (\S+)$'
        found = re.search(line, page(self.metrics_port, "/metrics"), re.MULTILINE)
        return float(found[1]) if found else -1


@pytest.fixture
def rig(folder: Path, plain_pool: Path, ceph: Ceph) -> Iterator[GatewayRig]:
    rig = GatewayRig(folder / "story", plain_pool, ceph)
    yield rig
    rig.close()


@pytest.mark.timeout(400)
def test_each_change_of_the_gateway_is_told_once(rig: GatewayRig) -> None:
    (first,) = rig.agents
    wait_until(lambda: rig.counted("handovers") == 0, 60, "the controller has looked")
    rig.stands_by(rig.second)
    command = [str(LUNKEEPER), "array", "handover", f"--endpoint=unix://{first.socket}"]
    subprocess.run(command, check=True, timeout=120)
    wait_until(lambda: "gave it away; it was ready" in status_of(rig.controller), 60, rig.controller.tail)
    wait_until(lambda: rig.counted("handovers") == 1, 30, "it is counted")
    wait_until(lambda: len(rig.told("ArrayHandedOver")) == 1, 30, "it is an event")

    rig.controller.kill()
    rig.controller.start()
    wait_until(rig.controller.ready, 60, rig.controller.tail)
    wait_until(lambda: "gave it away; it was ready" in status_of(rig.controller), 60, rig.controller.tail)
    assert rig.told("ArrayTakenOver") == []

    first.process.wait(60)
    rig.stands_by(first)
    rig.die(rig.second)
    wait_until(lambda: len(rig.told("ArrayTakenOver")) == 1, 60, rig.controller.tail)
    assert re.search(r"was shut out after \d+\.\d s of silence", rig.told("ArrayTakenOver")[0])
    assert len(rig.told("ArrayHandedOver")) == 1  # nor by the controller that was started again
    wait_until(lambda: rig.counted("takeovers") == 1, 30, "it is counted")
    assert rig.counted("handovers") == 0  # since its start
