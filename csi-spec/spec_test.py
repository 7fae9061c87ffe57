"""Compares our .proto files with the standards they speak, element by element.

Each standard comes from its Go module (the module cache, or the module proxy), so this needs `go` and, the
first time, a network. Both sides are compiled by protoc, and everything in the two descriptors has to be
equal: services, methods, messages, fields, oneofs, reserved ranges, enums, extensions and the options on
any of them, whatever their order in the file. Left out: comments, and the name of the file, by which no
peer asks.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from google.protobuf import descriptor_pb2
from google.protobuf import text_format

HERE = pathlib.Path(__file__).resolve().parent
CSI_MODULE = "github.com/container-storage-interface/spec"


def run(command, cwd):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} failed: {done.stdout}{done.stderr}")
    return done.stdout


def compile_proto(root, name):
    """The FileDescriptorProto of the file `name` below the import root `root`."""
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch) / "descriptors"
        run(["protoc", "-I", str(root), f"--descriptor_set_out={out}", name], scratch)
        return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file[0]


def download(module):
    """The directory of a Go module given as path@version."""
    with tempfile.TemporaryDirectory() as outside_any_module:
        answer = run(["go", "mod", "download", "-json", module], outside_any_module)
        return pathlib.Path(json.loads(answer)["Dir"])


def elements(message, path=""):
    """All that a descriptor says, as a flat {path: value}. Named things go by name, not position."""
    out = {}
    for field, value in message.ListFields():
        if path == "" and field.name in ("name", "source_code_info"):
            continue
        where = f"{path}{field.name}"
        if field.name == "options":
            out[where] = text_format.MessageToString(value, as_one_line=True, print_unknown_fields=True)
        elif field.name == "oneof_index":
            continue  # an index into the parent's list; kept below, by name
        elif field.message_type is None:
            out[where] = list(value) if field.label == field.LABEL_REPEATED else value
        else:
            for index, item in enumerate(value):
                out.update(elements(item, f"{where}[{getattr(item, 'name', index)}]."))
    for field in getattr(message, "field", []):
        if field.HasField("oneof_index"):
            out[f"{path}field[{field.name}].oneof"] = message.oneof_decl[field.oneof_index].name
    return out


def differences(ours, standard):
    """One line for each element that is not the same on both sides; empty if all are."""
    ours, standard = elements(ours), elements(standard)
    return [
        f"{path}: ours {ours.get(path, 'absent')!r}, the standard's {standard.get(path, 'absent')!r}"
        for path in sorted(ours.keys() | standard.keys())
        if ours.get(path) != standard.get(path)
    ]


class SpecTest(unittest.TestCase):
    def expect_same(self, name, module, directory, file):
        found = differences(compile_proto(HERE, name), compile_proto(download(module) / directory, file))
        if found:
            self.fail(f"{name} is not {module}:\n" + "\n".join(found))

    def test_csi_1_13_is_the_standard(self):
        self.expect_same("csi/v1/csi.proto", f"{CSI_MODULE}@v1.13.0", ".", "csi.proto")

    def test_csi_0_3_is_the_standard(self):
        self.expect_same("csi/v0/csi.proto", f"{CSI_MODULE}@v0.3.0", ".", "csi.proto")

    def test_registration_is_that_of_kubelet(self):
        self.expect_same(
            "registration/registration.proto",
            "k8s.io/kubelet@v0.36.3",
            "pkg/apis/pluginregistration/v1",
            "api.proto",
        )

    def test_a_change_of_any_kind_is_found_and_named(self):
        right = (HERE / "csi/v1/csi.proto").read_text()
        changes = [
            ("string target_path = 4;", "string target_path = 14;", "field[target_path].number"),
            ("string target_path = 4;", "bytes target_path = 4;", "field[target_path].type"),
            ("string target_path = 4;", "string destination = 4;", "field[destination]"),
            ("repeated string snapshot_ids = 2;", "string snapshot_ids = 2;", "field[snapshot_ids].label"),
            ("secrets = 7 [(csi_secret) = true];", "secrets = 7;", "field[secrets].options"),
            ("bool csi_secret = 1059;", "bool csi_secret = 1061;", "extension[csi_secret].number"),
            ("EXPAND_VOLUME = 9;", "EXPAND_VOLUME = 18;", "value[EXPAND_VOLUME].number"),
            ("reserved 11;", "", "reserved_range"),
            ("oneof access_type {", "oneof access {", "field[block].oneof"),
            ("(stream GetMetadataDeltaResponse)", "(GetMetadataDeltaResponse)", "server_streaming"),
            ("option (alpha_service) = true;", "", "service[SnapshotMetadata].options"),
            ("package csi.v1;", "package csi.v2;", "package"),
        ]
        standard = compile_proto(HERE, "csi/v1/csi.proto")
        for old, new, named in changes:
            with self.subTest(change=f"{old} -> {new}"), tempfile.TemporaryDirectory() as scratch:
                self.assertIn(old, right)
                (pathlib.Path(scratch) / "csi.proto").write_text(right.replace(old, new))
                found = differences(compile_proto(scratch, "csi.proto"), standard)
                self.assertTrue(any(named in line for line in found), found)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
