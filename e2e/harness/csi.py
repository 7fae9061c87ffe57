"""Calls to a Lunkeeper server over its unix socket.

A client has a method for each method of one version of CSI and of our own protocols; it takes plain Python
values:

    client = Client("/run/lk/csi.sock")
    volume = client.CreateVolume(name="a", capacity_range={"required_bytes": 1 << 20}, ...).volume

A stream's messages come as a list. A call that fails raises grpc.RpcError; `code_of` runs one and gives the
code's name ("OK", "NOT_FOUND", …).
"""

import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import grpc

from harness import places

# The deadline of a call, unless the caller sets another. Stage may wait for a grant.
SECONDS = 60

V0, V1 = "csi.v0.csi_pb2", "csi.v1.csi_pb2"

Call = Callable[..., Any]  # takes a request, or its fields; returns the response


STREAMS = {"Backup", "GetMetadataAllocated", "GetMetadataDelta"}  # Debian's protobuf does not tell


class Client:
    def __init__(self, socket: Path, version: str = V1) -> None:
        # Each client has a channel of its own. gRPC shares connections between equal channels, and so one
        # client would wait for the back-off of another one's broken connection.
        self.channel = grpc.insecure_channel(
            f"unix:{socket}",
            options=[
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.initial_reconnect_backoff_ms", 20),
                # The least time that one attempt gets, despite its name: on a busy machine the server's first
                # answer takes longer than the pauses between attempts.
                ("grpc.min_reconnect_backoff_ms", 2000),
                ("grpc.max_reconnect_backoff_ms", 100),
            ],
        )
        self.methods: dict[str, tuple[Any, Any]] = {}  # a request's class and the stub, by the method's name
        # CSI last: the operator's service has a ListVolumes too, and the one of CSI is meant.
        for module in (*sorted(places.PROTOCOLS.keys() - {V0, V1}), version):
            if (places.ROOT / places.PROTOCOLS[module][0] / places.PROTOCOLS[module][1]).exists():
                self._add_services(places.protocol(module))

    def _add_services(self, module: types.ModuleType) -> None:
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                request = getattr(module, method.input_type.name)
                response = getattr(module, method.output_type.name)
                streams = method.name in STREAMS
                call = (self.channel.unary_stream if streams else self.channel.unary_unary)(
                    f"/{service.full_name}/{method.name}",
                    request_serializer=request.SerializeToString,
                    response_deserializer=response.FromString,
                )
                self.methods[method.name] = (request, call)

    def __getattr__(self, name: str) -> Call:
        if name not in self.__dict__.get("methods", {}):
            raise AttributeError(name)
        request, call = self.methods[name]

        def invoke(
            message: Any = None, *, seconds: float = SECONDS, wait: bool = False, **fields: object
        ) -> Any:
            message = message if message is not None else request(**fields)
            answer = call(message, timeout=seconds, wait_for_ready=wait)
            return list(answer) if name in STREAMS else answer

        return invoke

    def stream(self, name: str, **fields: object) -> Iterator[Any]:
        """The messages of one of STREAMS, as they come."""
        request, call = self.methods[name]
        messages: Iterator[Any] = call(request(**fields), timeout=SECONDS)
        return messages

    def close(self) -> None:
        self.channel.close()


def code_of(call: Callable[..., object], *args: object, **fields: object) -> tuple[str, str]:
    """The code's name, and the error's text ("" when it is OK)."""
    try:
        call(*args, **fields)
        return "OK", ""
    except grpc.RpcError as error:
        return error.code().name, error.details()


def capability(
    mode: str = "SINGLE_NODE_WRITER", block: bool = False, fs: str = "xfs", flags: Iterable[str] = ()
) -> dict[str, Any]:
    """A VolumeCapability as a dict."""
    csi = places.protocol("csi.v1.csi_pb2")
    access = {"mode": csi.VolumeCapability.AccessMode.Mode.Value(mode)}
    return {
        "access_mode": access,
        **({"block": {}} if block else {"mount": {"fs_type": fs, "mount_flags": list(flags)}}),
    }
