"""Where things stand in the tree: the folders of C++ code and their order, as data for the rules."""

import dataclasses
import json
import pathlib
import re

# Each folder of C++ stands on a floor, lowest first. A file includes its own folder and lower floors only.
FLOORS = (
    ("base",),
    ("csi-spec", "devices"),
    ("devices/heartbeat",),
    (
        "devices/array",
        "devices/filesystem",
        "devices/iscsi",
        "devices/libiscsi",
        "fencing/core",
        "fencing/kube",
    ),
    ("devices/array/remote", "devices/array/tgt", "devices/datapath", "fencing/protocol"),
    ("controller", "identity", "node"),
    ("fencing/agent", "fencing/coordinator", "fencing/failover"),
    ("fencing/scale", "fencing/sim"),
    ("plugin",),
)
GENERATED = ("csi", "registration")  # top-level folders of generated headers

TEST = re.compile(r"(_test|_fuzz)\.cc$")
SUPPORT = re.compile(r"(^|/)testing/")
# Names that say "for tests". Such a file belongs into a testing/ folder.
SUPPORT_NAME = re.compile(r"(^|/)(fake_\w+|\w+_fixture|\w+_rig|scripted_\w+|testing)\.(h|cc)$")
# Worlds made up for a purpose: they model the product, so a class there may have the name of what it models.
SIMULATION = re.compile(r"^fencing/(sim|scale)/")


@dataclasses.dataclass(frozen=True)
class Layout:
    """How one version of the tree is laid out."""

    floors: tuple[tuple[str, ...], ...] = FLOORS
    support: re.Pattern[str] = SUPPORT

    def floor_of(self, folder: str) -> int | None:
        """The number of a folder's floor, 0 being the lowest; None when no floor has the folder."""
        return next((number for number, folders in enumerate(self.floors) if folder in folders), None)

    def kind_of(self, name: str) -> str:
        """What a C++ file is for: "test", "support" (of tests), "simulation" or "product"."""
        if TEST.search(name):
            return "test"
        if self.support.search(name):
            return "support"
        return "simulation" if SIMULATION.match(name) else "product"

    def top_folders(self) -> set[str]:
        """The top-level folders that hold C++ code."""
        return {folder.split("/")[0] for folders in self.floors for folder in folders}


NOW = Layout()


def read_layout(path: pathlib.Path) -> Layout:
    """The layout of another version, for `counts`: {"floors": [[FOLDER…]…], "support": REGEX} in JSON."""
    content = json.loads(path.read_text())
    return Layout(tuple(tuple(folders) for folders in content["floors"]), re.compile(content["support"]))
