"""A framework on a Mesos agent: it wants disks, writes to them, and asks again for what has failed.

An operation may fail, and a provider may not come up, only after something has happened to them, and with an
answer after which asking again is right. It has to succeed soon then.
"""

import contextlib
import os
import time

from harness.leaks import Leaks
from mesos.faults import ProviderKilled, Rebooted
from mesos.machine import BLOCK_BYTES, MOUNT_BYTES, Machine
from mesos.provider import RAW, OperationFailed
from mesos.service import CallFailed
from mesos.volumes import Refused

STEP_SECONDS = 180  # a call that is lost is noticed after a minute, and asked again
# ABORTED: a call of the provider before this one still runs in the plugin.
AGAIN = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "ABORTED"}
DATA_BYTES = 64 << 10


class Life:
    """`disks`: {name: volume id}. `data`: what was written to each and made durable."""

    def __init__(self, rig, work, faults, chance):
        self.machine, self.faults, self.chance = Machine(rig, work, faults=faults), faults, chance
        self.disks, self.data, self.made_before = {}, {}, set()
        with self.undisturbed():
            self.machine.start()
        self.leaks = Leaks(rig)

    @property
    def provider(self):
        return self.machine.provider

    def excused(self, failure):
        """Whether what has happened explains it."""
        cause = failure.error if isinstance(failure, OperationFailed) else failure
        again = isinstance(cause, Refused) or isinstance(cause, CallFailed) and cause.code.name in AGAIN
        return self.faults.hits > 0 and again

    def step(self, action):
        """Until it is done, with a new provider wherever one has died."""
        deadline = time.monotonic() + STEP_SECONDS
        while True:
            try:
                if self.provider is None:
                    self.machine.start()
                return action()
            except Rebooted:
                self.machine.reboot()
            except ProviderKilled:
                self.machine.kill_provider()
            except (CallFailed, OperationFailed) as failure:
                if not self.excused(failure) or time.monotonic() > deadline:
                    raise
                if not self.recovered():
                    self.machine.kill_provider()
                time.sleep(0.05)

    def recovered(self):
        return self.provider is not None and self.provider.ready

    def make_beforehand(self, profile, size):
        """An operator's volume, which the provider finds."""
        with self.undisturbed():
            self.step(lambda: None)  # there is a provider
            capability, parameters = self.machine.profiles[profile]
            answer = self.provider.service.call(
                "CreateVolume",
                name=f"made-before-{len(self.made_before)}",
                capacity_range={"required_bytes": size},
                volume_capabilities=[capability],
                parameters=parameters,
            )
            volume_id = getattr(answer.volume, self.provider.service.protocol.volume_id)
            self.made_before.add(volume_id)
            self.provider.reconcile()
            return volume_id

    @contextlib.contextmanager
    def undisturbed(self):
        before, self.faults.on = self.faults.on, False
        yield
        self.faults.on = before

    def create(self, name, profile, volume_id=None):
        size = BLOCK_BYTES if "block" in self.machine.profiles[profile][0] else MOUNT_BYTES

        def action():
            made = self.find_made(profile, volume_id)
            if made is None:
                source = volume_id or self.find_stray(size)
                made = self.provider.create_disk(profile, size, volume_id=source)
            self.disks[name] = made

        self.step(action)

    def find_made(self, profile, volume_id):
        """A disk that an earlier attempt has made, though nobody was there to learn of it."""
        candidates = {volume_id} if volume_id else set(self.provider.disks) - self.made_before
        for found in sorted(candidates - set(self.disks.values())):
            disk = self.provider.disks[found]
            if disk["type"] != RAW and disk["profile"] == profile:
                return found
        return None

    def find_stray(self, size):
        """A volume of an operation that failed after all: it is offered as a disk that was there before."""
        strays = self.provider.raw_disks() - self.made_before
        return next((found for found in strays if self.provider.disks[found]["capacity"] == size), None)

    def publish(self, name):
        self.step(lambda: self.provider.volumes.publish(self.disks[name]))
        # No call may follow for long, and the array of this plugin lives in it. Mesos' container daemon
        # launches a plugin as soon as it has ended.
        self.provider.service.endpoint()

    def take_down(self, name):
        """As far as a volume goes without being deleted."""
        self.step(lambda: self.provider.volumes.detach(self.disks[name]))

    def poll(self, name):
        """What comes every ten seconds."""
        self.step(lambda: self.provider.reconcile())

    def place(self, name):
        target = self.provider.volumes.target(self.disks[name])
        return target / "data" if target.is_dir() else target

    def write(self, name):
        """New data, durable when this returns."""
        self.publish(name)
        data = self.chance.randbytes(DATA_BYTES)
        fd = os.open(self.place(name), os.O_RDWR | os.O_CREAT)
        try:
            os.pwrite(fd, data, 0)
            os.fsync(fd)
        finally:
            os.close(fd)
        self.data[name] = data

    def verify(self, name):
        self.publish(name)
        with open(self.place(name), "rb") as file:
            assert file.read(DATA_BYTES) == self.data[name], f"disk {name} has lost its data"

    def destroy(self, name):
        volume_id = self.disks.pop(name)
        self.data.pop(name, None)
        self.step(lambda: self.destroy_once(volume_id))

    def destroy_once(self, volume_id):
        if volume_id not in self.provider.disks:
            return
        # Its data are cleaned through the mount, so a used volume has to be published.
        if self.provider.volumes.states.get(volume_id, {}).get("required"):
            self.provider.volumes.publish(volume_id)
        self.provider.destroy_disk(volume_id)

    def end(self):
        """Everything is destroyed, and nothing is left of it."""
        for name in self.chance.sample(sorted(self.disks), len(self.disks)):
            self.destroy(name)
        with self.undisturbed():
            self.step(lambda: self.provider.reconcile())
            for stray in self.provider.raw_disks():
                self.step(lambda stray=stray: self.destroy_once(stray))
            assert not self.provider.disks and not self.provider.volumes.states
            assert not self.provider.service.leftovers()
            for folder in (self.provider.volumes.states_folder, self.provider.volumes.mounts_folder):
                assert not list(folder.glob("*")), folder
            self.machine.close()
        assert not self.leaks.found(), self.leaks.found()
