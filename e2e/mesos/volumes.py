"""The provider's view of each volume: a ladder of four rungs, which it climbs and descends a call at a time.

                rising              falling
    CREATED     CONTROLLER_PUBLISH  CONTROLLER_UNPUBLISH
    NODE_READY  NODE_STAGE          NODE_UNSTAGE
    VOL_READY   NODE_PUBLISH        NODE_UNPUBLISH
    PUBLISHED

Before a call the step's state is saved, and after it the rung that it has led to. A provider that is killed
finds in its folder what it was about to do: it repeats a rising call or undoes it with the falling one, and
repeats a falling call before anything else.
"""

import dataclasses
import os
import pathlib
import shutil
from urllib.parse import quote, unquote

from harness.leaks import mounts
from mesos import checkpoint

CREATED, NODE_READY, VOL_READY, PUBLISHED = "CREATED", "NODE_READY", "VOL_READY", "PUBLISHED"


@dataclasses.dataclass(frozen=True)
class Step:
    lower: str
    upper: str
    rising: str
    falling: str


STEPS = (
    Step(CREATED, NODE_READY, "CONTROLLER_PUBLISH", "CONTROLLER_UNPUBLISH"),
    Step(NODE_READY, VOL_READY, "NODE_STAGE", "NODE_UNSTAGE"),
    Step(VOL_READY, PUBLISHED, "NODE_PUBLISH", "NODE_UNPUBLISH"),
)
ATTACH, STAGE, PUBLISH = STEPS
# A reboot undoes what came after the volume was staged, and leaves no trace of it.
LOST_BY_REBOOT = {VOL_READY, PUBLISHED, STAGE.falling, PUBLISH.rising, PUBLISH.falling}


class Refused(Exception):
    """The plugin answered, and the answer is no."""


class Volumes:
    """`boot_id`: the machine's. `managed`: with a controller service, which an unmanaged plugin has not."""

    def __init__(self, service, work, boot_id, managed=True):
        self.service, self.boot_id, self.managed = service, boot_id, managed
        self.states_folder, self.mounts_folder = work / "volumes", work / "mounts"
        self.mounts_folder.mkdir(parents=True, exist_ok=True)
        self.states = {}
        self.node_id = None

    @property
    def protocol(self):
        return self.service.protocol

    def recover(self):
        self._prepare()
        for folder in sorted(self.states_folder.glob("*")):
            state = checkpoint.load(folder / "volume.state")
            if state is None:
                continue
            self.states[unquote(folder.name)] = state
            if state["state"] in LOST_BY_REBOOT and state["boot_id"] != self.boot_id:
                state.update(state=NODE_READY, boot_id=None)
        # A container has used it and may have left data to clean, for which it must be reached.
        for volume_id in [volume for volume, state in self.states.items() if state["required"]]:
            self.publish(volume_id)
        for folder in self.mounts_folder.glob("*"):
            if unquote(folder.name) not in self.states:
                self._remove_mount_folder(unquote(folder.name))

    def _prepare(self):
        self.service.endpoint()
        call = self.service.call
        kinds = {entry.service.type for entry in call("GetPluginCapabilities").capabilities}
        assert 1 in kinds, "no CONTROLLER_SERVICE"  # the number is the same in both
        services = 2 if self.managed else 1
        infos = [call("GetPluginInfo") for _ in range(services)]  # each service is asked, here by one socket
        assert all(info == infos[0] for info in infos)
        names = self._capabilities("Controller") if self.managed else set()
        self.attaches = "PUBLISH_UNPUBLISH_VOLUME" in names
        self.lists, self.measures = "LIST_VOLUMES" in names, "GET_CAPACITY" in names
        assert "STAGE_UNSTAGE_VOLUME" in self._capabilities("Node")
        if self.attaches:
            self.node_id = call(self.protocol.node_id_call).node_id

    def _capabilities(self, service):
        answer = self.service.call(f"{service}GetCapabilities")
        return {entry.rpc.Type.Name(entry.rpc.type) for entry in answer.capabilities}

    def list(self):
        """[(id, capacity, context)], all in one answer."""
        assert self.lists
        answer = self.service.call("ListVolumes")
        assert not answer.next_token, "Mesos asks for no second page"
        return [self._read(entry.volume) for entry in answer.entries]

    def capacity(self, capability, parameters):
        assert self.measures
        answer = self.service.call("GetCapacity", volume_capabilities=[capability], parameters=parameters)
        return answer.available_capacity

    def _read(self, volume):
        context = dict(getattr(volume, self.protocol.volume_context))
        return getattr(volume, self.protocol.volume_id), volume.capacity_bytes, context

    def create(self, name, capacity, capability, parameters):
        """(id, context). Idempotent by name until its state is saved, and refused afterwards."""
        answer = self.service.call(
            "CreateVolume",
            repeat=True,
            name=name,
            capacity_range={"required_bytes": capacity, "limit_bytes": capacity},
            volume_capabilities=[capability],
            parameters=parameters,
        )
        volume_id, given, context = self._read(answer.volume)
        assert given == capacity, f"{given} bytes instead of {capacity}"
        self._track(volume_id, capability, parameters, context)
        return volume_id, context

    def validate(self, volume_id, context, capability, parameters):
        """For a disk that the provider has not made."""
        known = self.states.get(volume_id)
        if known is not None:
            if (known["capability"], known["parameters"]) != (capability, parameters):
                raise Refused("it is known, with another capability or other parameters")
            return
        fields = {"parameters": parameters} if self.protocol.number == "1" else {}
        request = {
            "volume_id": volume_id,
            "volume_capabilities": [capability],
            self.protocol.context: context,
            **fields,
        }
        answer = self.service.call("ValidateVolumeCapabilities", **request)
        if self.protocol.number == "1":
            self._check_confirmed(answer, context, capability, parameters)
        elif not answer.supported:
            raise Refused(answer.message)
        self._track(volume_id, capability, parameters, context)

    def _check_confirmed(self, answer, context, capability, parameters):
        """Mesos compares each part with what it has asked."""
        if not answer.HasField("confirmed"):
            raise Refused(answer.message)
        confirmed = answer.confirmed
        wanted = type(confirmed)(volume_capabilities=[capability]).volume_capabilities[0]
        assert dict(confirmed.volume_context) == context, "another context than was asked about"
        assert wanted in confirmed.volume_capabilities, "the capability that was asked about is not confirmed"
        assert dict(confirmed.parameters) == parameters, "other parameters than were asked about"

    def _track(self, volume_id, capability, parameters, context, **more):
        if volume_id in self.states:
            raise Refused(f"volume {volume_id} is known already")
        self.states[volume_id] = {
            "state": CREATED,
            "capability": capability,
            "parameters": parameters,
            "context": context,
            "publish_context": {},
            "boot_id": None,
            "required": False,
            "pre_provisioned": False,
            **more,
        }
        self._save(volume_id)

    def track_static(self, volume_id, capability, context):
        """A volume that a task names itself: there is nothing but what it says."""
        self._track(volume_id, capability, {}, context, state=NODE_READY, pre_provisioned=True)

    def delete(self, volume_id):
        """True when the volume is gone; its data are removed first where a container has left any."""
        state = self.states.get(volume_id)
        if state is not None:
            if state["required"]:
                assert state["state"] == PUBLISHED
                self._clean(volume_id)
                state["required"] = False
                self._save(volume_id)
            self._descend(volume_id, CREATED)
        self.service.call("DeleteVolume", repeat=True, volume_id=volume_id)
        if state is not None:
            self._forget(volume_id)

    def _clean(self, volume_id):
        target = self.target(volume_id)
        if not target.is_dir():  # a block device: its data go with the volume
            return
        # The array lives in the plugin, and Mesos' container daemon launches one that has ended.
        self.service.endpoint()
        for entry in target.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def publish(self, volume_id):
        self._climb(volume_id, PUBLISHED)

    def unpublish(self, volume_id):
        self._descend(volume_id, NODE_READY)
        if self.states[volume_id]["pre_provisioned"]:
            self._forget(volume_id)

    def detach(self, volume_id):
        self._descend(volume_id, CREATED)

    def state(self, volume_id):
        return self.states[volume_id]["state"]

    def _climb(self, volume_id, goal):
        while (now := self.state(volume_id)) != goal:
            (step,) = [step for step in STEPS if now in (step.lower, step.rising, step.falling)]
            self._take(volume_id, step, up=now != step.falling)

    def _descend(self, volume_id, goal):
        while (now := self.state(volume_id)) != goal:
            (step,) = [step for step in STEPS if now in (step.upper, step.rising, step.falling)]
            self._take(volume_id, step, up=False)

    def _take(self, volume_id, step, up):
        state = self.states[volume_id]
        if step is ATTACH and not self.attaches:
            state["state"] = step.upper if up else step.lower
            return
        if up:
            self._make_paths(volume_id, step)
        passing = step.rising if up else step.falling
        if state["state"] != passing:
            state["state"] = passing
            self._save(volume_id)
        changed = getattr(self, f"_{passing.lower()}")(volume_id, state)
        state.update(state=step.upper if up else step.lower, **changed)
        self._save(volume_id)

    # The calls of the steps. Each returns what else of the volume's state has changed.

    def _controller_publish(self, volume_id, state):
        answer = self.service.call(
            "ControllerPublishVolume", **self._used(volume_id, state), node_id=self.node_id, readonly=False
        )
        return {"publish_context": dict(getattr(answer, self.protocol.publish_context))}

    def _controller_unpublish(self, volume_id, state):
        self.service.call("ControllerUnpublishVolume", volume_id=volume_id, node_id=self.node_id)
        return {"publish_context": {}}

    def _node_stage(self, volume_id, state):
        self.service.call("NodeStageVolume", **self._at_node(volume_id, state))
        return {"boot_id": self.boot_id}

    def _node_unstage(self, volume_id, state):
        staging = str(self.staging(volume_id))
        self.service.call("NodeUnstageVolume", volume_id=volume_id, staging_target_path=staging)
        return {"boot_id": None}

    def _node_publish(self, volume_id, state):
        target = self.target(volume_id)
        self.service.call(
            "NodePublishVolume", **self._at_node(volume_id, state), target_path=str(target), readonly=False
        )
        assert target.exists(), "the plugin did not make the target path"
        return {"required": True}

    def _node_unpublish(self, volume_id, state):
        target = self.target(volume_id)
        assert self.protocol.plugin_makes_target or target.exists()
        self.service.call("NodeUnpublishVolume", volume_id=volume_id, target_path=str(target))
        gone = not os.path.lexists(target)
        assert gone == self.protocol.plugin_makes_target, "whose is the target path?"
        return {}

    def _used(self, volume_id, state):
        return {
            "volume_id": volume_id,
            "volume_capability": state["capability"],
            self.protocol.context: state["context"],
        }

    def _at_node(self, volume_id, state):
        return {
            **self._used(volume_id, state),
            self.protocol.publish_context: state["publish_context"],
            "staging_target_path": str(self.staging(volume_id)),
        }

    def _make_paths(self, volume_id, step):
        if step is STAGE:
            self.staging(volume_id).mkdir(parents=True, exist_ok=True)
        elif step is PUBLISH and not self.protocol.plugin_makes_target:
            if not self.target(volume_id).exists():
                self.target(volume_id).mkdir()

    def staging(self, volume_id):
        return self._mount_folder(volume_id) / "staging"

    def target(self, volume_id):
        return self._mount_folder(volume_id) / "target"

    def _mount_folder(self, volume_id):
        return self.mounts_folder / quote(volume_id, safe="")

    def _state_folder(self, volume_id) -> pathlib.Path:
        return self.states_folder / quote(volume_id, safe="")

    def _save(self, volume_id):
        checkpoint.save(self._state_folder(volume_id) / "volume.state", self.states[volume_id])
        self.service.faults.pass_point(f"saved {self.state(volume_id)}")

    def _forget(self, volume_id):
        del self.states[volume_id]
        shutil.rmtree(self._state_folder(volume_id))
        self.service.faults.pass_point("forgotten")
        self._remove_mount_folder(volume_id)

    def _remove_mount_folder(self, volume_id):
        folder = self._mount_folder(volume_id)
        assert not mounts(folder), "Mesos would remove what is mounted there"
        shutil.rmtree(folder, ignore_errors=True)
