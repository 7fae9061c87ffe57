"""What happens to a provider and its plugin on their way: nothing, or what a seed says.

A provider passes a point before and after each call and each time that it saves a state; there, and while a
call runs, processes die. One seed makes the same choices again, as long as the run meets the same points.
"""

import random
import re

from harness.processes import kill_pid

# What may happen, and how often beside the others.
KINDS = {"plugin": 4, "provider": 4, "both": 2, "upgrade": 1, "tgtd": 1, "reboot": 1}
DELAYS = (0.01, 0.05, 0.3)  # s of a call at most, before something happens to it


# A provider that starts asks much and changes nothing, and starts often here.
QUIET = re.compile(r"Get|List|saved the disks")
QUIET_SHARE = 0.2


class ProviderKilled(Exception):
    """The provider dies here: nothing that it would do next is done."""


class Rebooted(ProviderKilled):
    """And the machine with it."""


class NoFaults:
    """Nothing happens."""

    hits, on = 0, True

    def pass_point(self, name):
        """Between two things that the provider does."""

    def plan_call(self, name):
        """None, or (seconds, what to do then) for a call that begins."""


class Faults(NoFaults):
    """Makes them happen. `events` says what has happened, for a person."""

    def __init__(self, rig):
        self.rig, self.hits, self.events = rig, 0, []

    def hit(self, kind, name):
        self.hits += 1
        self.events.append(f"{kind} at {name}")
        if kind in ("plugin", "both"):
            self.rig.controller.kill()
        elif kind == "upgrade":
            self.rig.controller.stop()
        elif kind == "tgtd" and (pid := self.rig.tgtd()):
            kill_pid(pid)
        elif kind == "reboot":
            raise Rebooted(name)
        if kind in ("provider", "both"):
            raise ProviderKilled(name)


class EveryPoint(Faults):
    """One kind of fault, at each point once."""

    def __init__(self, rig, kind):
        super().__init__(rig)
        self.kind, self.met = kind, set()

    def pass_point(self, name):
        if self.on and name not in self.met:
            self.met.add(name)
            self.hit(self.kind, name)


class Schedule(Faults):
    """What a seed says."""

    def __init__(self, rig, seed):
        super().__init__(rig)
        self.random = random.Random(seed)
        self.rate = self.random.choice((0.03, 0.1, 0.2, 0.3))
        self.most = self.random.randint(5, 20)

    def pass_point(self, name):
        if kind := self._choose(name):
            self.hit(kind, name)

    def plan_call(self, name):
        kind = self._choose(name)
        if kind is None:
            return None
        return self.random.uniform(0, self.random.choice(DELAYS)), lambda: self.hit(kind, f"during {name}")

    def _choose(self, name):
        rate = self.rate * (QUIET_SHARE if QUIET.search(name) else 1)
        if not self.on or self.hits >= self.most or self.random.random() >= rate:
            return None
        return self.random.choices(list(KINDS), list(KINDS.values()))[0]
