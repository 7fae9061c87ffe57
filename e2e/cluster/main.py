"""`./dev cluster VERB`: see the usage below."""

import argparse
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from cluster import deploy, programs  # noqa: E402
from cluster.cluster import USUAL_NAME, Cluster  # noqa: E402
from harness.cleanup import interrupt_on_sigterm  # noqa: E402
from harness.story import tell  # noqa: E402


def up(cluster: Cluster, options: argparse.Namespace) -> None:
    programs.build_all()
    tell("the programs are built")
    with cluster.locked():
        cluster.up()
        tell("the cluster is up")
        deploy.prepare(cluster)
        if not options.bare:
            deploy.install(cluster)
            tell("Lunkeeper is installed")
    print(cluster.tell())


def down(cluster: Cluster, options: argparse.Namespace) -> None:
    with cluster.locked():
        cluster.down()
    tell("nothing of the cluster is left")


def status(cluster: Cluster, options: argparse.Namespace) -> None:
    print(cluster.tell())


def shell(cluster: Cluster, options: argparse.Namespace) -> None:
    """In the control plane's network, with kubectl and helm; or inside a host."""
    command = options.command or [os.environ.get("SHELL", "bash")]
    environment = {
        **os.environ,
        "KUBECONFIG": str(cluster.control.kubeconfig),
        "PS1": f"({options.host or 'cluster'}) \\w # ",
        "PATH": f"{programs.search_path()}:{os.environ['PATH']}",
    }
    host = cluster.hosts()[options.host] if options.host else None
    entering = host.entering() if host else ["nsenter", f"--net=/run/netns/{cluster.control.namespace}"]
    os.execvpe(entering[0], [*entering, *command], environment)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="./dev cluster", description="A Kubernetes cluster on this machine, for tests."
    )
    parser.add_argument(
        "--name", default=USUAL_NAME, help="several may run at a time, each under its own name"
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    starting = verbs.add_parser("up", help="start it afresh, with Lunkeeper in it")
    starting.add_argument("--bare", action="store_true", help="without Lunkeeper")
    starting.set_defaults(run=up)
    verbs.add_parser("down", help="end it, and remove everything of it").set_defaults(run=down)
    verbs.add_parser("status", help="what runs").set_defaults(run=status)
    inside = verbs.add_parser(
        "shell", help="a shell with kubectl and helm, or on a host; or a command instead"
    )
    inside.add_argument("--host", choices=list(Cluster().hosts()))
    inside.add_argument("command", nargs=argparse.REMAINDER)
    inside.set_defaults(run=shell)
    options = parser.parse_args()
    interrupt_on_sigterm()
    options.run(Cluster(options.name), options)


if __name__ == "__main__":
    main()
