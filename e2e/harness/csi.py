"""Calls to a Lunkeeper server over its unix socket: any method of our protocols by its name, with plain Python values.

    client = Client("/run/lk/csi.sock")
    volume = client.CreateVolume(name="a", capacity_range={"required_bytes": 1 << 20}, ...).volume

A call that fails raises grpc.RpcError; `code_of` runs one and gives the code's name ("OK", "NOT_FOUND", …).
"""

import grpc

from harness import places

# What each wait of a call is bounded by, unless the caller says otherwise; Stage may wait for a grant.
SECONDS = 60


class Client:
    def __init__(self, socket):
        # A channel of its own for each client: gRPC shares broken connections, with their back-off, between equal channels.
        self.channel = grpc.insecure_channel(f"unix:{socket}", options=[
            ("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 20),
            ("grpc.min_reconnect_backoff_ms", 20), ("grpc.max_reconnect_backoff_ms", 100)])
        self.methods = {}
        for module in places.PROTOCOLS:
            if (places.ROOT / places.PROTOCOLS[module][0] / places.PROTOCOLS[module][1]).exists():
                self._add_services(places.protocol(module))

    def _add_services(self, module):
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                request = getattr(module, method.input_type.name)
                response = getattr(module, method.output_type.name)
                call = self.channel.unary_unary(f"/{service.full_name}/{method.name}",
                                                request_serializer=request.SerializeToString,
                                                response_deserializer=response.FromString)
                self.methods[method.name] = (request, call)

    def __getattr__(self, name):
        if name not in self.__dict__.get("methods", {}):
            raise AttributeError(name)
        request, call = self.methods[name]

        def invoke(message=None, *, seconds=SECONDS, **fields):
            return call(message if message is not None else request(**fields), timeout=seconds)
        return invoke

    def close(self):
        self.channel.close()


def code_of(call, *args, **fields):
    """The code's name, and the error's text ("" when it is OK)."""
    try:
        call(*args, **fields)
        return "OK", ""
    except grpc.RpcError as error:
        return error.code().name, error.details()


def capability(mode="SINGLE_NODE_WRITER", block=False, fs="xfs", flags=()):
    """A VolumeCapability as a dict."""
    csi = places.protocol("csi.v1.csi_pb2")
    access = {"mode": csi.VolumeCapability.AccessMode.Mode.Value(mode)}
    return {"access_mode": access, **({"block": {}} if block else {"mount": {"fs_type": fs, "mount_flags": list(flags)}})}
