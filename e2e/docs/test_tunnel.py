"""The tunnel of docs/networks.md, between a storage host and a node in network namespaces of their own."""

import os
import secrets
import subprocess
import sys
import time

import pytest

from harness import docs, mounts
from harness.checker import BlockChecker
from harness.cleanup import Cleanup, wait_until
from harness.processes import MARK, kill_pid, marked_with
from harness.rig import Rig
from harness.volume import MIB, Volume

OUTSIDE, INSIDE = "192.0.2.5", "10.99.0.1"  # the storage host's addresses in the text
PORT = 3260
# Writes down every packet of an interface.
SNIFFER = """
import socket, sys
line = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
line.bind(("outer", 0))
print("ready", flush=True)
with open(sys.argv[1], "wb", buffering=0) as file:
    while True:
        file.write(line.recv(1 << 17))
"""


class Host:
    """Namespaces with an address outside, and with a folder of its own for WireGuard."""

    def __init__(self, address: str) -> None:
        self.mark = f"tunnel-{secrets.token_hex(6)}"
        self.environment = {**os.environ, MARK: self.mark}
        prepare = (
            f"mount --make-rprivate / && {mounts.drop_others()} && mkdir -p /run/wireguard && "
            "mount -t tmpfs tmpfs /run/wireguard && mount -t tmpfs tmpfs /etc/wireguard && "
            "ip link set lo up && echo ready && exec sleep 3600"
        )
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--net", "sh", "-c", prepare],
            stdout=subprocess.PIPE,
            text=True,
            env=self.environment,
        )
        assert self.process.stdout.readline() == "ready\n"
        self.address = address

    def networked(self, argv: list) -> list[str]:
        """`argv` in the network of this host."""
        return ["nsenter", f"--net=/proc/{self.process.pid}/ns/net", *map(str, argv)]

    def run(self, script: str) -> str:
        enter = ["nsenter", f"--target={self.process.pid}", "--mount", "--net"]
        done = subprocess.run(
            [*enter, "bash", "-euo", "pipefail", "-c", script],
            capture_output=True,
            text=True,
            timeout=60,
            env=self.environment,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def join(self) -> None:
        self.run(f"ip address add {self.address}/24 dev outer && ip link set outer up")

    def close(self) -> None:
        for pid in marked_with(self.mark):
            kill_pid(pid)
        self.process.wait()


def configure(host: Host, text: str) -> None:
    host.run(f"cat > /etc/wireguard/wg0.conf <<'END'\n{text}\nEND\nchmod 600 /etc/wireguard/wg0.conf")
    host.run(docs.commands("tunnel-up"))


@pytest.fixture(scope="module")
def hosts():
    """A storage host and a node with a tunnel between them, set up as written."""
    with Cleanup() as cleanup:
        storage, node = Host(OUTSIDE), Host("192.0.2.11")
        cleanup.add(storage.close)
        cleanup.add(node.close)
        storage.run(f"ip link add outer type veth peer name outer netns {node.process.pid}")
        storage.join()
        node.join()
        theirs, ours = (host.run(docs.commands("tunnel-key")).split()[-1] for host in (storage, node))
        configure(storage, docs.example("ini", "ListenPort").replace("PUBLIC-KEY-OF-NODE-A", ours))
        configure(node, docs.example("ini", "Endpoint").replace("PUBLIC-KEY-OF-THE-STORAGE-HOST", theirs))
        yield storage, node


@pytest.fixture(params=[INSIDE, OUTSIDE])
def rig(request, folder, xfs_pool, hosts):
    """An array whose portal is at that address of the storage host, and a node's data path on the node."""
    storage, node = hosts
    with Rig(folder / request.param, xfs_pool, split=True, start=False) as rig:
        given, wanted = f"--portal={rig.portal}", f"--portal={request.param}:{PORT}"
        rig.controller.argv = storage.networked([wanted if o == given else o for o in rig.controller.argv])
        rig.nodes[0].datapath.argv = node.networked(rig.nodes[0].datapath.argv)
        rig.portal = f"{request.param}:{PORT}"
        rig.start()
        yield rig


@pytest.fixture
def volume(rig):
    volume = Volume(rig, rig.nodes[0], "tunnelled", block=True, size=16 * MIB).up(with_controller=True)
    yield volume
    volume.down(with_controller=True).delete()


class Packets:
    """What passes outside, as the node sees it."""

    def __init__(self, host: Host, folder) -> None:
        self.file = folder / "packets"
        argv = host.networked([sys.executable, "-c", SNIFFER, self.file])
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        assert self.process.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def wait_for(self, size: int) -> bytes:
        wait_until(lambda: self.file.stat().st_size >= size, 30, "the packets are seen")
        return self.file.read_bytes()


def test_nothing_is_in_the_clear_in_the_tunnel_and_all_is_without_it(rig, hosts, tmp_path):
    clear = rig.portal.startswith(OUTSIDE)
    marker = secrets.token_bytes(16)
    with Packets(hosts[1], tmp_path) as packets:
        volume = Volume(rig, rig.nodes[0], "seen", block=True, size=16 * MIB).up(with_controller=True)
        device = os.open(volume.target, os.O_WRONLY)
        os.write(device, marker * (MIB // len(marker)))
        os.fsync(device)
        os.close(device)
        volume.down(with_controller=True).delete()
        seen = packets.wait_for(MIB)
    assert (marker in seen) == clear
    assert (b"iqn.2026-11.io.lunkeeper" in seen) == clear


@pytest.mark.parametrize("rig", [INSIDE], indirect=True)
def test_nothing_of_iscsi_is_left_outside(rig, hosts):
    ask = "import socket, sys; sys.exit(socket.socket().connect_ex((sys.argv[1], int(sys.argv[2]))))"
    for address, answers in ((OUTSIDE, False), (INSIDE, True)):
        asked = subprocess.run(hosts[1].networked([sys.executable, "-c", ask, address, PORT]), timeout=30)
        assert (asked.returncode == 0) == answers, address


@pytest.mark.parametrize("rig", [INSIDE], indirect=True)
def test_a_cut_tunnel_is_ridden_out(rig, hosts, volume):
    storage, node = hosts
    checker = BlockChecker(volume).start()
    checker.wait_for_writes(50)

    def cut_by(host: Host, cut: str, mend: str) -> None:
        host.run(cut)
        time.sleep(6)  # longer than a node waits for an answer before it looks for another portal
        written = checker.acknowledged()
        host.run(mend)
        wait_until(lambda: checker.acknowledged() > written + 50, 60, "I/O goes on")

    cut_by(node, "ip link set outer down", "ip link set outer up")
    cut_by(storage, "wg-quick down wg0", "wg-quick up wg0")
    cut_by(node, "wg-quick down wg0", "wg-quick up wg0")
    assert checker.stop_good()
    checker.verify()
