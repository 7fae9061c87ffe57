"""The cluster's network: a namespace with a bridge, and one for each host, connected by veth pairs.

Nothing of it is visible from the machine's own network, so the addresses are the same in every cluster.
"""

import json
import subprocess

from harness.pool import run

BRIDGE_SUFFIX = "net"
SUBNET = "10.77.0"
POD_SUBNETS = "10.78"


def namespace(cluster: str, host: str) -> str:
    return f"{cluster}-{host}"


def existing() -> set[str]:
    shown = run("ip", "netns", "list").split("\n")
    return {line.split()[0] for line in shown if line}


def make(cluster: str, hosts: dict[str, int]) -> None:
    """Makes the namespaces of `hosts`, {name: number}. A host's address is SUBNET.number.

    The first host is the default route of the others, for addresses of Services. Pod subnets have routes to
    their own hosts, so that nodes reach each other's pods without the first host.
    """
    switch = namespace(cluster, BRIDGE_SUFFIX)
    run("ip", "netns", "add", switch)
    ip(switch, "link", "add", "br0", "type", "bridge")
    ip(switch, "link", "set", "br0", "up")
    router = next(iter(hosts))
    for name, number in hosts.items():
        join(cluster, name, number)
        if name != router:
            ip(namespace(cluster, name), "route", "add", "default", "via", address(hosts[router]))
        for other, other_number in hosts.items():
            if other != name and other.startswith("node"):
                ip(
                    namespace(cluster, name),
                    "route",
                    "add",
                    pod_subnet(other_number),
                    "via",
                    address(other_number),
                )


def join(cluster: str, name: str, number: int) -> None:
    switch, ours = namespace(cluster, BRIDGE_SUFFIX), namespace(cluster, name)
    run("ip", "netns", "add", ours)
    ip(ours, "link", "set", "lo", "up")
    ip(switch, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", ours)
    ip(switch, "link", "set", name, "master", "br0", "up")
    ip(ours, "addr", "add", f"{address(number)}/24", "dev", "eth0")
    ip(ours, "link", "set", "eth0", "up")
    run("nsenter", f"--net=/run/netns/{ours}", "sysctl", "-qw", "net.ipv4.ip_forward=1")


def remove(cluster: str) -> None:
    for name in sorted(existing()):
        if name.startswith(f"{cluster}-"):
            subprocess.run(["ip", "netns", "delete", name], check=False, timeout=20)


def plug(cluster: str, host: str, connected: bool) -> None:
    """Connects a host's cable, or pulls it."""
    ip(namespace(cluster, BRIDGE_SUFFIX), "link", "set", host, "up" if connected else "down")


def forget_pods(cluster: str, host: str) -> None:
    """Deletes a dead host's links to its pods.

    The kernel does so some time after their last process ended. A new pod with the address of a link that
    still exists would never get a route.
    """
    links = json.loads(
        run("ip", "-json", "-n", namespace(cluster, host), "link", "show", "type", "veth") or "[]"
    )
    for name in {link["ifname"] for link in links} - {"eth0"}:
        subprocess.run(
            ["ip", "-n", namespace(cluster, host), "link", "delete", name],
            check=False,
            timeout=20,
            stderr=subprocess.DEVNULL,
        )  # or it has just gone


def ip(where: str, *arguments: str) -> None:
    run("ip", "-n", where, *arguments)


def address(number: int) -> str:
    return f"{SUBNET}.{number}"


def pod_subnet(number: int) -> str:
    return f"{POD_SUBNETS}.{number}.0/24"
