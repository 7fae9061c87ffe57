"""An API server whose answers come late, for everybody but its own host.

    with late_answers(cluster.control, seconds=3): ...

Not every kernel can delay packets. So the control plane's host leads connections to the API server into
late_proxy.py.
"""

import contextlib
import pathlib
import sys
from collections.abc import Iterator

from cluster import control_plane
from cluster.control_plane import ControlPlane
from cluster.faults import nft
from harness.cleanup import wait_until
from harness.processes import MARK, Daemon

TABLE = "inet late"
PROXY = pathlib.Path(__file__).with_name("late_proxy.py")
PROXY_PORT = 8443


@contextlib.contextmanager
def late_answers(control: ControlPlane, seconds: float) -> Iterator[None]:
    """All connections are ended at the start and at the end, as nothing else would change the old ones."""
    log = control.folder / "late-answers.log"
    log.unlink(missing_ok=True)
    network = f"--net=/run/netns/{control.namespace}"
    proxy = Daemon(
        "late answers",
        [
            *("nsenter", network, sys.executable, PROXY),
            *(control.address, PROXY_PORT, control_plane.PORT, seconds),
        ],
        log=log,
        environment={MARK: control.mark},
        dies_with_us=True,
    ).start()
    try:
        wait_until(lambda: "listens" in log.read_text(), 20, proxy.tail)
        nft(control, lead_into_proxy(control.address))
        yield
    finally:
        nft(control, f"add table {TABLE}\ndelete table {TABLE}")
        proxy.kill()


def lead_into_proxy(address: str) -> str:
    """Rules: new connections go to the proxy, and older ones are reset."""
    ours = f'iifname "eth0" tcp dport {control_plane.PORT}'
    return (
        f"table {TABLE} {{"
        f" chain new {{ type nat hook prerouting priority -100; {ours} dnat ip to {address}:{PROXY_PORT}; }};"
        f" chain old {{ type filter hook input priority 0; {ours} reject with tcp reset; }}; }}"
    )
