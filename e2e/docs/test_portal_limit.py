"""The firewall of docs/security.md before the portals, in a network namespace of its own."""

import subprocess
import sys

from harness import docs

LIMIT = 512
# Prints how many connections each address could make, and whether a place that is free again is given.
CLIENT = """
import socket

server = socket.create_server(("127.0.0.1", 3260), backlog=4096)

def connect(source):
    try:
        return socket.create_connection(("127.0.0.1", 3260), 5, (source, 0))
    except ConnectionRefusedError:
        return None

stranger = [connect("127.0.0.66") for _ in range(2000)]
node = [connect("127.0.0.67") for _ in range(300)]
made = [sum(each is not None for each in all_of_one) for all_of_one in (stranger, node)]
stranger[0].close()
server.accept()[0].close()
print(*made, connect("127.0.0.66") is not None)
"""


def test_an_address_is_refused_more_connections_than_it_needs_and_another_one_is_not():
    program = f"exec {sys.executable} - <<'PROGRAM'\n{CLIENT}\nPROGRAM"
    script = f"set -e\nip link set lo up\n{docs.commands('portal-limit')}\n{program}"
    done = subprocess.run(
        ["unshare", "--net", "bash", "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == [str(LIMIT), "300", "True"], f"{done.stdout}{done.stderr}"
