"""What failover asks of an array twice a second, as a controller does, over mutual TLS.

The calls of PollArray (fencing/failover/array_actions.cc), in its order. Who holds what is sent again only if
it has changed.
"""

import time

import grpc

from harness import places

PROTOCOLS = ("devices/connection.proto", "devices/array/remote/array.proto")
SERVICE = "/lunkeeper.array.v1.ArrayService/"


class Looker:
    """A controller's connection to an agent of an AgentRig."""

    def __init__(self, rig):
        self.protocol = places.generate("devices.array.remote.array_pb2", ".", *PROTOCOLS)
        agent = rig.agents[0]
        files = (rig.authority.certificate, rig.key, rig.certificate)
        self.channel = grpc.secure_channel(
            agent.address,
            grpc.ssl_channel_credentials(*(file.read_bytes() for file in files)),
            options=[
                ("grpc.ssl_target_name_override", f"{agent.array_name}.example"),
                ("grpc.max_receive_message_length", -1),
            ],
        )
        self.metadata = [("lunkeeper-array", agent.array_name)]
        self.version, self.grants, self.sent = "", 0, 0

    def call(self, name, message, **fields):
        """One call; the message is named after the method."""
        request = getattr(self.protocol, f"{message}Request")(**fields)
        response = getattr(self.protocol, f"{message}Response")
        method = self.channel.unary_unary(
            SERVICE + name, type(request).SerializeToString, response.FromString
        )
        return method(request, timeout=60, metadata=self.metadata)

    def look_ms(self):
        """How long one look takes. `sent`: the grants that came with it; `grants`: all there are."""
        started = time.monotonic()
        self.call("ListFences", "ListFences")
        held = self.call("ListGrants", "ListGrants", holders_only=True, known_version=self.version)
        self.call("Wanted", "Wanted")
        self.call("Sessions", "Sessions")
        self.call("ListHeartbeats", "ListHeartbeats")
        took = (time.monotonic() - started) * 1000
        assert not any(grant.connection.chap_secret for grant in held.grants), "a look has secrets"
        self.version, self.sent = held.version, len(held.grants)
        if not held.unchanged:
            self.grants = len(held.grants)
        return took
