"""Commands of the documents, run on the cluster with an administrator's kubectl and helm."""

import os
import subprocess

from cluster import programs
from harness import docs


def run(cluster, name, folder, kubeconfig=None):
    """Runs the block with this mark, in a folder with the files and programs of it; returns its output."""
    done = subprocess.run(
        [
            "nsenter",
            f"--net=/run/netns/{cluster.control.namespace}",
            "bash",
            "-euo",
            "pipefail",
            "-c",
            docs.commands(name),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env={
            **os.environ,
            "KUBECONFIG": str(kubeconfig or cluster.control.kubeconfig),
            "PATH": f"{folder}:{programs.search_path()}:{os.environ['PATH']}",
        },
    )
    assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
    return done.stdout
