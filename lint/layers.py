"""Walls: what each folder may include, and what it may never reach, not even through another header."""

import dataclasses
import re

from lint.tree import Tree, room_of

# Of each folder, what it may include besides itself; its tests also every testing/ folder. "x/" is the folder
# x without the folders in it; "x/*" is x with them; "x/y.h" is one header.
DOMAIN = ("base/", "devices/")  # helpers, and names such as VolumeId and NodeId
SEAM = (*DOMAIN, "devices/array/")  # and the interface of an array
WALLS: dict[str, tuple[str, ...]] = {
    "base": (),
    "csi-spec": ("csi/*", "registration/"),
    "devices": ("base/",),
    "devices/heartbeat": DOMAIN,
    "devices/array": DOMAIN,
    "devices/array/tgt": (*SEAM, "devices/heartbeat/"),
    "devices/array/remote": SEAM,
    "devices/filesystem": DOMAIN,
    "devices/iscsi": DOMAIN,
    "devices/libiscsi": DOMAIN,  # for tests alone
    "devices/datapath": (*DOMAIN, "devices/iscsi/"),
    # The domain's names are plain values.
    "fencing/core": ("base/check.h", "devices/types.h", "devices/node_id.h"),
    "fencing/kube": ("base/",),
    "fencing/protocol": (*DOMAIN, "fencing/core/"),
    "fencing/coordinator": (
        *SEAM,
        "fencing/core/",
        "fencing/kube/",
        "fencing/protocol/",
    ),
    "fencing/agent": (
        *SEAM,
        "devices/heartbeat/",
        "devices/iscsi/block_session.h",
        "devices/datapath/initiator.h",
        "devices/datapath/limit_setter.h",
        "node/grant_source.h",
        "fencing/core/",
        "fencing/protocol/",
    ),
    "fencing/failover": (*SEAM, "fencing/core/", "fencing/kube/", "fencing/protocol/"),
    # The simulator runs failover, what gives nodes their grants, and the nodes' end of both as they are, and
    # makes up what is around them.
    "fencing/sim": (
        *SEAM,
        "devices/datapath/initiator.h",
        "fencing/core/",
        "fencing/kube/",
        "fencing/protocol/",
        "fencing/failover/",
        "devices/heartbeat/",
        "fencing/coordinator/known_replicas.h",
        "fencing/coordinator/node_requests.h",
        "fencing/agent/coordinator_grant_source.h",
        "fencing/agent/heartbeat_connection.h",
        "fencing/agent/heartbeat_lun.h",
        "fencing/agent/heartbeat_lun_access.h",
        "fencing/agent/heartbeat_sender.h",
        "fencing/agent/replica_table.h",
        "fencing/agent/storage_heartbeats.h",
    ),
    "fencing/scale": (*SEAM, "fencing/core/", "fencing/kube/", "fencing/protocol/", "fencing/failover/"),
    "identity": ("base/", "csi/*"),
    "controller": (*SEAM, "csi/*"),
    "node": (
        *SEAM,
        "csi/*",
        "registration/",
        "devices/datapath/initiator.h",
        "devices/datapath/limit_setter.h",
        "devices/filesystem/filesystem.h",
        "devices/filesystem/mount_options.h",
        "devices/filesystem/mounter.h",
    ),
    "plugin": ("*",),
}
# The real array in tests: its own and plugin's, and one of the node's agent, whose heartbeats it receives.
REAL_ARRAY = "devices/array/tgt/testing/"
REAL_ARRAY_TESTS = ("devices/array/tgt/", "plugin/", "fencing/agent/storage_heartbeats_test.cc")


@dataclasses.dataclass(frozen=True)
class Never:
    """Code in `folder` never reaches code in `others`, directly or through headers.

    The folder "" is all folders but those in `but`.
    """

    folder: str
    others: tuple[str, ...]
    but: tuple[str, ...] = ()


NEVERS = (
    Never("fencing/agent/", ("fencing/failover/", "fencing/kube/", "fencing/coordinator/")),
    Never("fencing/coordinator/", ("fencing/agent/",)),
    # Of fencing/ messages know the core alone; what they carry of devices/ are plain values.
    Never("fencing/protocol/", ("devices/array/", "devices/datapath/", "fencing/kube/", "fencing/agent/")),
    # What the simulator runs has no gRPC.
    Never("fencing/sim/", ("fencing/protocol/coordinator.", "fencing/agent/replicas.h")),
    Never("", ("devices/array/tgt/",), but=("plugin/", "devices/array/tgt/")),
    Never("", ("plugin/",), but=("plugin/",)),
)
# fencing/core is a pure function: it can name no clock, thread, random source, file, network or Kubernetes
# type. So these are all the libraries' headers that it has.
PURE = re.compile(
    r"algorithm|array|charconv|compare|cstddef|cstdint|cstdio|functional|iterator|limits|map|memory|optional"
    r"|set|string|string_view|unordered_map|unordered_set|utility|variant|vector|boost/container/.*"
)
# And what headers of its wall have besides: to print a value, and to end the process.
PURE_ENOUGH = (("devices/types.h", "ostream"), ("base/check.h", "cstdlib"))


def allows(entries: tuple[str, ...], header: str) -> bool:
    """Whether one of the entries of a wall covers a header."""
    folder = header.rpartition("/")[0] + "/"
    return any(
        entry in (header, folder) or entry.endswith("*") and header.startswith(entry[:-1])
        for entry in entries
    )


def wall_problems(tree: Tree, name: str) -> list[str]:
    """The includes of one file that its folder's wall keeps out."""
    room, kind = room_of(name), tree.layout.kind_of(name)
    if room not in WALLS:
        return [f"{name}: its folder has no wall in lint/layers.py"]
    entries = (f"{room}/", *WALLS[room])
    problems = []
    for number, header in tree.includes(name):
        if tree.layout.support.search(header):
            if kind == "product":
                problems.append(f"{name}:{number}: the product does not include {header}, which is for tests")
            elif header.startswith(REAL_ARRAY) and not name.startswith(REAL_ARRAY_TESTS):
                problems.append(f"{name}:{number}: a fake array will do instead of {header}")
        elif not allows(entries, header):
            problems.append(f"{name}:{number}: may not include {header} (allowed here: {', '.join(entries)})")
    return problems


def check_walls(tree: Tree) -> list[str]:
    """Each file includes what its folder may know, and no more."""
    return [problem for name in tree.cpp() for problem in wall_problems(tree, name)]


def check_nevers(tree: Tree) -> list[str]:
    """No code reaches what it must not depend on, not even through other headers."""
    problems = []
    for name in tree.cpp("product", "simulation"):
        kept_out = [
            other
            for never in NEVERS
            if name.startswith(never.folder) and not name.startswith(never.but or "\0")
            for other in never.others
        ]
        ways = tree.reached_from(name)
        for other in kept_out:
            way = next((way for header, way in ways.items() if header.startswith(other)), None)
            if way:
                problems.append(f"{name}: reaches {other} by {' -> '.join(way[1:])}")
    return problems


def check_purity(tree: Tree) -> list[str]:
    """fencing/core reaches nothing that may differ from one run to the next; its tests may read files."""
    own = [name for name in tree.cpp("product") if name.startswith("fencing/core/")]
    reached = {header for name in own for header in (name, *tree.reached_from(name)) if header in tree}
    return [
        f"{header}:{number}: fencing/core reaches {library}"
        for header in sorted(reached)
        for number, library in tree.libraries(header)
        if not PURE.fullmatch(library) and (header, library) not in PURE_ENOUGH
    ]
