"""Faults of a host of the cluster, and how each ends. Power failures are in Host.power_off.

Nothing leaves the host's own namespaces, so nothing outlives the cluster.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence

from cluster.host import Host
from harness.cleanup import wait_until
from harness.processes import alive, command_of, descendants, kill_pid, signal_if_there, state_of

TABLE = "inet faults"
FREEZE_SECONDS = 10


def find_processes(host: Host, *words: str) -> list[int]:
    """Pids of a host's processes whose command line starts with these words, folders not counted."""

    def matches(argv: list[str]) -> bool:
        return bool(argv) and [argv[0].rsplit("/", 1)[-1], *argv[1:]][: len(words)] == list(words)

    return [pid for pid in descendants(host.pid()) if matches(command_of(pid))]


def kill_all(pids: Sequence[int]) -> None:
    assert pids, "there is nothing to kill"
    for pid in pids:
        kill_pid(pid)


@contextlib.contextmanager
def stopped(pids: Sequence[int]) -> Iterator[None]:
    """Stops processes, for as long as the context lasts."""
    for pid in pids:
        signal_if_there(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            signal_if_there(pid, signal.SIGCONT)


def freeze(host: Host) -> None:
    """Stops every process of the host, so that none can start another one. The kernel goes on."""

    def all_stopped() -> bool:
        running = [pid for pid in descendants(host.pid()) if state_of(pid) not in "TtZX"]
        for pid in running:
            signal_if_there(pid, signal.SIGSTOP)
        return not running

    wait_until(all_stopped, FREEZE_SECONDS, f"everything in {host.name} is stopped", pause=0)


def thaw(host: Host) -> None:
    for pid in descendants(host.pid()):
        signal_if_there(pid, signal.SIGCONT)


def cut_off(
    host: Host, *, hosts: Sequence[Host] = (), ports: Sequence[int] = (), pods_only: bool = False
) -> None:
    """Drops all packets between this host (and its pods) and other hosts, or to and from TCP ports elsewhere.

    No error tells of it, as on a broken network. Earlier cuts stay. `pods_only`: what is in the host's own
    network goes on.
    """
    rules = [
        f"ip {end}addr {{ {', '.join(other.address for other in hosts)} }} drop" for end in "sd" if hosts
    ]
    rules += [f"tcp {end}port {{ {', '.join(map(str, ports))} }} drop" for end in "sd" if ports]
    # Before and after addresses of Services become addresses of pods, so that neither passes.
    chains = [
        f"chain {hook}_{order} {{ type filter hook {hook} priority {priority}; {'; '.join(rules)}; }}"
        for hook in (["forward"] if pods_only else ["input", "output", "forward"])
        for order, priority in (("early", -300), ("late", 10))
    ]
    nft(host, "\n".join([f"table {TABLE} {{", *chains, "}"]))


def refuse(host: Host, port: int) -> None:
    """Ends all connections to a TCP port of this host, and refuses new ones: as if nobody listened there."""
    nft(
        host,
        f"table {TABLE} {{ chain refused {{ type filter hook input priority 0;"
        f" tcp dport {port} reject with tcp reset; }}; }}",
    )


def block(host: Host, port: int) -> None:
    """Drops what others send to a TCP port of this host, as its firewall may. Earlier cuts stay."""
    nft(
        host,
        f"table {TABLE} {{ chain blocked {{ type filter hook input priority 0;"
        f" iifname != lo tcp dport {port} drop; }}; }}",
    )


def lose_packets(host: Host, percent: int) -> None:
    """Drops so many percent of a host's packets at random, in both directions.

    Replaces all earlier cuts and losses.
    """
    heal(host)
    chains = [
        f"chain {hook} {{ type filter hook {hook} priority 0;"
        f" meta {end} != lo numgen random mod 100 < {percent} drop; }}"
        for hook, end in (("input", "iifname"), ("output", "oifname"))
    ]
    nft(host, "\n".join([f"table {TABLE} {{", *chains, "}"]))


def heal(host: Host) -> None:
    nft(host, f"add table {TABLE}\ndelete table {TABLE}")


def nft(host: Host, commands: str) -> None:
    done = subprocess.run(
        ["nsenter", f"--net=/run/netns/{host.namespace}", "nft", "-f", "-"],
        input=commands,
        text=True,
        capture_output=True,
        timeout=20,
    )
    if done.returncode != 0:
        raise RuntimeError(f"nft in {host.name}: {done.stderr}")


def kill_service(host: Host, name: str) -> None:
    """Kills a service, and waits until init has restarted it."""
    pid = host.services()[name]
    kill_pid(pid)
    wait_until(
        lambda: host.services().get(name) not in (None, pid),
        30,
        f"{name} of {host.name} runs again",
        pause=0.1,
    )


def stop_service(host: Host, name: str) -> Callable[[], None]:
    """Makes a service hang: it exists and does nothing. Returns the function that lets it go on."""
    pid = host.services()[name]
    os.kill(pid, signal.SIGSTOP)
    return lambda: signal_if_there(pid, signal.SIGCONT) if alive(pid) else None
