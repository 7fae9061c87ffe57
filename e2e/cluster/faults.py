"""What can befall a host of the cluster, beside a power failure (Host.power_off), and how it ends.

Nothing leaves the host's own namespaces, so nothing outlives the cluster.
"""

import os
import signal
import subprocess

from harness.cleanup import wait_until
from harness.processes import alive, children_of, command_of, kill_pid, state_of

TABLE = "inet faults"
FREEZE_SECONDS = 10


def descendants(pid):
    """It, and all that it and they have started: those of containers too, since a host has namespaces of its own."""
    found = [pid]
    for each in found:
        found.extend(children_of(each))
    return found


def find_processes(host, *words):
    """Pids of the processes in a host whose command line starts with these words (paths by their last part)."""
    def matches(argv):
        return argv and [argv[0].rsplit("/", 1)[-1], *argv[1:]][:len(words)] == list(words)
    return [pid for pid in descendants(host.pid()) if matches(command_of(pid))]


def freeze(host):
    """Stops every process of the host; its kernel, which is this machine's, goes on. Nothing is left that could start another."""
    def all_stopped():
        running = [pid for pid in descendants(host.pid()) if state_of(pid) not in "TtZX"]
        for pid in running:
            signal_if_there(pid, signal.SIGSTOP)
        return not running
    wait_until(all_stopped, FREEZE_SECONDS, f"everything in {host.name} is stopped", pause=0)


def thaw(host):
    for pid in descendants(host.pid()):
        signal_if_there(pid, signal.SIGCONT)


def signal_if_there(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def cut_off(host, *, hosts=(), ports=()):
    """No packet passes between this host (and its pods) and those hosts, or to and from those TCP ports elsewhere; without a
    word, as on a broken network. Added to what is cut off already."""
    rules = [f"ip {end}addr {{ {', '.join(other.address for other in hosts)} }} drop" for end in "sd" if hosts]
    rules += [f"tcp {end}port {{ {', '.join(map(str, ports))} }} drop" for end in "sd" if ports]
    # Before the addresses of Services become those of pods, and after: whatever it is called, it does not pass.
    chains = [f"chain {hook}_{order} {{ type filter hook {hook} priority {priority}; {'; '.join(rules)}; }}"
              for hook in ("input", "output", "forward") for order, priority in (("early", -300), ("late", 10))]
    nft(host, "\n".join([f"table {TABLE} {{", *chains, "}"]))


def lose_packets(host, percent):
    """That many of those that come and go at random, on the network; instead of what was lost already."""
    heal(host)
    chains = [f"chain {hook} {{ type filter hook {hook} priority 0; meta {end} != lo numgen random mod 100 < {percent} drop; }}"
              for hook, end in (("input", "iifname"), ("output", "oifname"))]
    nft(host, "\n".join([f"table {TABLE} {{", *chains, "}"]))


def heal(host):
    nft(host, f"add table {TABLE}\ndelete table {TABLE}")


def nft(host, commands):
    done = subprocess.run(["nsenter", f"--net=/run/netns/{host.namespace}", "nft", "-f", "-"], input=commands, text=True,
                          capture_output=True, timeout=20)
    if done.returncode != 0:
        raise RuntimeError(f"nft in {host.name}: {done.stderr}")


def kill_service(host, name):
    """And waits until init has started it again."""
    pid = host.services()[name]
    kill_pid(pid)
    wait_until(lambda: host.services().get(name) not in (None, pid), 30, f"{name} of {host.name} runs again", pause=0.1)


def stop_service(host, name):
    """Hung: it is there and does nothing. The way to let it go on."""
    pid = host.services()[name]
    os.kill(pid, signal.SIGSTOP)
    return lambda: signal_if_there(pid, signal.SIGCONT) if alive(pid) else None
