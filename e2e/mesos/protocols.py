"""What differs between the two protocols that Mesos' storage local resource provider speaks.

Everything else in this folder uses the words of 1.x.
"""

import dataclasses

from harness import places
from harness.csi import V0, V1


@dataclasses.dataclass(frozen=True)
class Protocol:
    number: str  # as --csi-versions has it
    module: str
    volume_id: str  # names of fields, of a Volume first
    volume_context: str
    context: str
    publish_context: str
    node_id_call: str
    plugin_makes_target: bool  # otherwise the provider makes it, as a folder, and removes it in the end


ONE = Protocol(
    "1", V1, "volume_id", "volume_context", "volume_context", "publish_context", "NodeGetInfo", True
)
ZERO = Protocol("0.3", V0, "id", "attributes", "volume_attributes", "publish_info", "NodeGetId", False)
BOTH = (ONE, ZERO)


def capability(filesystem: str = "", block: bool = False) -> dict:
    """A profile's VolumeCapability: one node, as a file system or as a block device."""
    mode = places.protocol(V1).VolumeCapability.AccessMode.SINGLE_NODE_WRITER  # 1, in 0.3 as well
    use = {"block": {}} if block else {"mount": {"fs_type": filesystem} if filesystem else {}}
    return {"access_mode": {"mode": mode}, **use}
