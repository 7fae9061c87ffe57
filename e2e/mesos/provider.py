"""A storage local resource provider: disks and pools as a framework sees them, and what it asks for.

A framework's CREATE_DISK or DESTROY_DISK is saved before it begins, and again, with its outcome, at its end.
A provider that finds one without an outcome in its folder does it again, with the same UUID: so the volume's
name is the same, and the plugin answers with the volume that it has made before.
"""

import uuid

from mesos import checkpoint
from mesos.service import CallFailed, Service
from mesos.volumes import Refused, Volumes

RAW, MOUNT, BLOCK = "RAW", "MOUNT", "BLOCK"
PENDING, FINISHED, FAILED = "PENDING", "FINISHED", "FAILED"


class OperationFailed(Exception):
    """What a framework learns of its operation. `error`: why."""

    def __init__(self, error):
        super().__init__(str(error))
        self.error = error


class Provider:
    """`profiles`: {name: (capability, parameters)}, as an operator's profile matrix has them."""

    def __init__(self, plugin, work, profiles, boot_id, faults=None):
        self.service = Service(plugin, work, faults)
        self.volumes = Volumes(self.service, work, boot_id)
        self.profiles = profiles
        self.path = work / "resource_provider.state"
        self.disks = {}  # by volume id: type, profile, capacity, context
        self.pools = {}  # by profile: capacity
        self.operations = {}  # by UUID
        self.ready = False

    def recover(self):
        self.volumes.recover()
        saved = checkpoint.load(self.path) or {"disks": {}, "pools": {}, "operations": {}}
        self.disks, self.pools, self.operations = (saved[key] for key in ("disks", "pools", "operations"))
        for operation in self.operations.values():
            if operation["status"] == PENDING:
                self._apply(operation)
        self.operations = {}  # all have an outcome now, which the framework learns
        self.reconcile()
        self.ready = True

    def reconcile(self):
        """What Mesos does at each reconciliation interval."""
        listed = self.volumes.list()
        assert len({volume_id for volume_id, _, _ in listed}) == len(listed), "a volume is listed twice"
        for volume_id, capacity, context in listed:
            raw = {"type": RAW, "profile": None, "capacity": capacity, "context": context}
            known = self.disks.setdefault(volume_id, raw)
            # Mesos calls a plugin that changes either non-conforming.
            assert known["context"] == context, f"{volume_id}: {known['context']} became {context}"
            assert known["capacity"] == capacity, f"{volume_id}: {known['capacity']} became {capacity}"
        for volume_id in set(self.disks) - {volume_id for volume_id, _, _ in listed}:
            assert self.disks[volume_id]["type"] == RAW, f"disk {volume_id} is missing"
            del self.disks[volume_id]
        self.pools = {
            name: self.volumes.capacity(capability, parameters)
            for name, (capability, parameters) in self.profiles.items()
        }
        self._save()

    def create_disk(self, profile, capacity=None, volume_id=None):
        """From a pool, or from a disk that was there before; its volume's id."""
        capability, _ = self.profiles[profile]
        target = BLOCK if "block" in capability else MOUNT
        return self._operate(
            kind="CREATE_DISK", profile=profile, target=target, capacity=capacity, id=volume_id
        )

    def destroy_disk(self, volume_id):
        self._operate(kind="DESTROY_DISK", id=volume_id)

    def _operate(self, **operation):
        name = str(uuid.uuid4())
        operation.update(uuid=name, status=PENDING, error=None)
        self.operations[name] = operation
        self._save()
        error = self._apply(operation)
        del self.operations[name]  # acknowledged
        self._save()
        if error is not None:
            raise OperationFailed(error)
        return operation["id"]

    def _apply(self, operation):
        """None, or why it failed, for good; then both are saved."""
        try:
            if operation["kind"] == "CREATE_DISK":
                self._apply_create(operation)
            else:
                self.volumes.delete(operation["id"])
                self.disks.pop(operation["id"], None)
            operation["status"] = FINISHED
            error = None
        except (CallFailed, Refused, OSError) as failure:
            operation.update(status=FAILED, error=str(failure))
            error = failure
        self._save()
        return error

    def _apply_create(self, operation):
        capability, parameters = self.profiles[operation["profile"]]
        if operation["id"] is None:
            capacity = operation["capacity"]
            volume_id, context = self.volumes.create(operation["uuid"], capacity, capability, parameters)
        else:
            volume_id = operation["id"]
            capacity, context = (self.disks[volume_id][key] for key in ("capacity", "context"))
            self.volumes.validate(volume_id, context, capability, parameters)
        self.disks[volume_id] = {
            "type": operation["target"],
            "profile": operation["profile"],
            "capacity": capacity,
            "context": context,
        }
        operation["id"] = volume_id

    def raw_disks(self):
        """The ids of the disks that no framework has made a MOUNT or a BLOCK of."""
        return {volume_id for volume_id, disk in self.disks.items() if disk["type"] == RAW}

    def _save(self):
        checkpoint.save(
            self.path, {"disks": self.disks, "pools": self.pools, "operations": self.operations}
        )
        self.service.faults.pass_point("saved the disks")
