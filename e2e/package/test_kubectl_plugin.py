"""`kubectl lunkeeper`, with a kubectl that plays a cluster; e2e/kube has it on a real one."""

import json
import os
import pathlib
import pty
import subprocess
import sys

import pytest

from harness.places import ROOT

PLUGIN = ROOT / "packaging/kubectl-lunkeeper"
# {pod: {"ready": …, "hangs": …}} and the namespace are in a file beside it. It notes how it was called.
KUBECTL = """#!{python}
import json, os, pathlib, sys, time
here = pathlib.Path(__file__).parent
with open(here / "calls", "a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
pods = json.loads((here / "pods").read_text())
if "get" in sys.argv:
    for name, pod in pods.items():
        print(f"\\n{{name}} {{pod.get('ready', True)}}\\n")
    sys.exit(0)
namespace, name = (sys.argv[sys.argv.index("--stdin") + step] for step in (1, 2))
pod = pods[f"{{namespace.removeprefix('--namespace=')}}/{{name}}"]
if pod.get("hangs"):
    (here / "hangs").write_text(str(os.getpid()))
    time.sleep(300)
command = sys.argv[sys.argv.index("--") + 1 :]
if command != ["lunkeeper", "version"]:
    print(name, *command)
    sys.exit(pod.get("code", 0))
"""


@pytest.fixture
def play(tmp_path):
    def run(pods, *arguments, **streams):
        (tmp_path / "kubectl").write_text(KUBECTL.format(python=sys.executable))
        (tmp_path / "kubectl").chmod(0o755)
        (tmp_path / "pods").write_text(json.dumps(pods))
        (tmp_path / "calls").write_text("")
        return subprocess.run(
            [PLUGIN, *arguments],
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},
            text=True,
            timeout=60,
        )

    run.calls = lambda: [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    run.hanging = lambda: pathlib.Path("/proc", (tmp_path / "hangs").read_text())
    return run


def test_the_command_runs_in_a_controller_and_its_exit_code_is_passed_on(play):
    done = play({"lk/c-1": {"code": 3}}, "explain", "pvc/a b", "--namespace", "db")
    assert (done.returncode, done.stdout) == (3, "c-1 lunkeeper explain pvc/a b --namespace db\n")
    listing = play.calls()[0]
    assert "--all-namespaces" in listing and "lunkeeper.io/plugin=controller" in " ".join(listing)


def test_a_terminal_is_passed_on_if_there_is_one(play):
    ours, its = pty.openpty()
    with os.fdopen(ours), os.fdopen(its) as terminal:
        assert play({"lk/c-1": {}}, "top", stdin=terminal, stdout=terminal).returncode == 0
    *_, asked, ran = play.calls()
    assert "--tty" in ran and "--tty" not in asked
    play({"lk/c-1": {}}, "top")
    assert "--tty" not in play.calls()[-1]


def test_a_pod_that_does_not_answer_is_left_out(play):
    done = play({"lk/dead": {"hangs": True}, "lk/alive": {}}, "status")
    assert (done.returncode, done.stdout) == (0, "alive lunkeeper status\n")
    assert not play.hanging().exists()


def test_pods_that_are_not_ready_are_asked_last(play):
    assert play({"lk/new": {"ready": False}, "lk/old": {}}, "status").stdout == "old lunkeeper status\n"
    assert play({"lk/new": {"ready": False}}, "status").stdout == "new lunkeeper status\n"


def test_options_say_which_cluster_namespace_and_node(play):
    done = play({"here/n-1": {}}, "--context=east", "-n", "here", "--node", "worker-1", "doctor")
    assert done.stdout == "n-1 lunkeeper doctor\n"
    listing, *execs = play.calls()
    assert {"--namespace=here", "--field-selector=spec.nodeName=worker-1"} < set(listing)
    assert "lunkeeper.io/plugin=node" in " ".join(listing)
    assert all(call[0] == "--context=east" for call in [listing, *execs])


def test_a_command_runs_on_every_node_whatever_it_finds_on_one(play):
    pods = {"lk/n-1": {}, "lk/n-2": {"code": 1}, "lk/n-3": {"hangs": True}, "lk/n-4": {}}
    done = play({name: pods[name] for name in ("lk/n-1", "lk/n-2", "lk/n-4")}, "--all-nodes", "doctor")
    told = [f"== lk/{name}\n{name} lunkeeper doctor\n" for name in ("n-1", "n-2", "n-4")]
    assert (done.returncode, done.stdout) == (1, "".join(told))
    assert "lunkeeper.io/plugin=node" in " ".join(play.calls()[0])
    done = play(pods, "--all-nodes", "doctor")
    assert done.returncode == 69 and "lk/n-3 does not answer" in done.stderr and told[2] in done.stdout


@pytest.mark.parametrize(
    "pods, arguments, code, says",
    [
        ({}, ["status"], 69, "there is no controller of Lunkeeper: is it installed there?"),
        ({}, ["--node", "x", "status"], 69, "there is no node plugin of Lunkeeper on node x"),
        ({"a/c": {}, "b/c": {}}, ["status"], 2, "more than one namespace"),
        ({"a/c": {}}, ["--colour", "status"], 2, "there is no option --colour"),
        ({"a/c": {}}, ["--node"], 2, "--node needs a value"),
        ({"a/c": {}}, [], 2, "COMMAND"),
    ],
)
def test_what_is_wrong_is_said(play, pods, arguments, code, says):
    done = play(pods, *arguments)
    assert done.returncode == code and says in done.stderr and not done.stdout
