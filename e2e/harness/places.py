"""Where the programs are, and the Python side of the protocols, made by protoc when it is first asked for."""

import importlib
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
LUNKEEPER = pathlib.Path(os.environ.get("LUNKEEPER", ROOT / "build/dev/plugin/lunkeeper"))
BUILD = LUNKEEPER.parent.parent
FAKE = BUILD / "plugin/lunkeeper-fake"
API_SERVER = BUILD / "fencing/failover/api_server"
BLOCK_CHECKER = BUILD / "devices/libiscsi/block_checker"
ZOMBIE_WRITER = BUILD / "devices/libiscsi/zombie_writer"
LOGS = ROOT / "build/logs/e2e"

# Messages and services of each of our protocols, as `module: file below its include folder`.
PROTOCOLS = {
    "csi.v0.csi_pb2": ("csi-spec", "csi/v0/csi.proto"),
    "csi.v1.csi_pb2": ("csi-spec", "csi/v1/csi.proto"),
    "plugin.admin_pb2": (".", "plugin/admin.proto"),
}

_loaded: dict[str, types.ModuleType] = {}
_loading = threading.Lock()


def protocol(module: str) -> types.ModuleType:
    """The generated module, for example protocol("csi.v1.csi_pb2")."""
    with _loading:
        if module not in _loaded:
            _loaded[module] = generate(module, *PROTOCOLS[module])
        return _loaded[module]


def generate(module: str, folder: str, *names: str) -> types.ModuleType:
    """The module that protoc makes of files below an include folder."""
    with tempfile.TemporaryDirectory() as out:
        subprocess.run(
            ["protoc", f"-I{ROOT / folder}", f"--python_out={out}", *names], check=True, cwd=ROOT / folder
        )
        sys.path.insert(0, out)
        try:
            return importlib.import_module(module)
        finally:
            sys.path.remove(out)
