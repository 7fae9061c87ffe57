"""Runs every command of the documents: here on a host of its own, in e2e/kube on the cluster."""

import html
import os
import pathlib
import re
import subprocess
import sys

import pytest

from harness import dashboard, docs, mounts
from harness.cleanup import Cleanup, wait_until
from harness.places import BUILD, LUNKEEPER, ROOT
from harness.processes import MARK, kill_pid, marked_with

HERE = {"agent", "certificates", "controller", "datapath", "node", "fence", "dev"}
ON_THE_CLUSTER = {
    "install",
    "datapath-upgrade",
    "renew",
    "local-array",
    "uninstall",
    "invitation",
    "kubectl-plugin",
    "changed-blocks",
    "volumes-claim",
    "volumes-snapshot",
    "volumes-restore",
    "volumes-growth",
    "volumes-end",
    "failover-follow",
    "failover-fence",
    "failover-unfence",
    "failover-nodefence",
}
IN_THE_TUNNEL = {"tunnel-key", "tunnel-up"}  # test_tunnel.py
IN_A_NAMESPACE = {"portal-limit"}  # test_portal_limit.py
SHOWN = {
    "ini",
    "yaml",
    "json",
    "console",
    "text",
}  # other blocks: files, which have tests of their own, and pictures


class Machine:
    """Namespaces with the addresses of the documents, and with own folders in the documents' places."""

    def __init__(self, folder):
        self.folder, self.mark = folder, f"docs-{folder.name}"
        (folder / "bin").mkdir()
        (folder / "bin/lunkeeper").symlink_to(LUNKEEPER)
        prepare = "; ".join(
            [
                "set -e",
                "mount --make-rprivate /",
                mounts.drop_others(),
                f"mkdir {folder}/etc",
                f"mount -t tmpfs tmpfs {folder}/etc",
                f"mkdir {folder}/etc/upper {folder}/etc/work",
                "mount -t overlay overlay"
                f" -o lowerdir=/etc,upperdir={folder}/etc/upper,workdir={folder}/etc/work /etc",
                *(f"mount -t tmpfs tmpfs {point}" for point in ("/run", "/srv", "/var/lib")),
                "mkdir /etc/lunkeeper /srv/lunkeeper /run/lock",
                "ip link set lo up",
                "ip address add 10.0.0.5/32 dev lo",
                "echo ready",
                "exec sleep 3600",
            ]
        )
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--net", "sh", "-c", prepare],
            stdout=subprocess.PIPE,
            text=True,
            env=self.environment(),
        )
        assert self.process.stdout.readline() == "ready\n"

    def environment(self):
        return {
            **os.environ,
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            MARK: self.mark,
            "CSI_ENDPOINT": "unix:///run/lunkeeper-csi/controller.sock",
        }

    def inside(self, script):
        return [
            "nsenter",
            f"--target={self.process.pid}",
            "--mount",
            "--net",
            "bash",
            "-euo",
            "pipefail",
            "-c",
            f"cd /etc/lunkeeper\n{script}",
        ]

    def run(self, script):
        done = subprocess.run(
            self.inside(script), capture_output=True, text=True, timeout=60, env=self.environment()
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def works(self, script):
        return (
            subprocess.run(
                self.inside(script), capture_output=True, timeout=60, env=self.environment()
            ).returncode
            == 0
        )

    def start(self, name):
        """Starts a command that keeps running. It may not end by itself."""
        log = self.folder / f"{name}.log"
        with open(log, "ab") as out:
            process = subprocess.Popen(
                self.inside(docs.commands(name)),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self.environment(),
            )

        def answer(script):
            def answered():
                assert process.poll() is None, log.read_text()
                return self.works(script)

            wait_until(answered, 30, lambda: f"{name}: {script}\n{log.read_text()}", pause=0.1)

        return answer

    def close(self):
        for pid in marked_with(self.mark):
            kill_pid(pid)
        self.process.wait()


@pytest.fixture(scope="module")
def machine(folder):
    with Cleanup() as cleanup:
        machine = Machine(folder)
        cleanup.add(machine.close)
        yield machine


def test_every_block_of_commands_is_run_by_a_test():
    marks = {(page, mark) for page, mark, _ in docs.blocks()}
    run = HERE | ON_THE_CLUSTER | IN_THE_TUNNEL | IN_A_NAMESPACE
    assert {mark for _, mark in marks} == {f"test={name}" for name in run}, sorted(marks)


def test_every_block_says_what_it_is():
    for page in docs.PAGES:
        openings = re.findall(r"^```(.*)$", page.read_text(), re.MULTILINE)[::2]
        assert {opening.split(" ")[0] for opening in openings} <= SHOWN | {"sh"}, f"{page.name}: {openings}"


@pytest.fixture(scope="module")
def set_up(machine):
    """With a storage host, a controller and a node, as written."""
    machine.run(docs.commands("certificates"))
    machine.start("agent")("curl -fsS http://127.0.0.1:9810/readyz")
    arrays = docs.example("json", '"arrays": [')
    machine.run(f"cat > arrays.json <<'END'\n{arrays}\nEND")
    machine.start("controller")("lunkeeper status")
    machine.start("datapath")("lunkeeper datapath list")
    machine.start("node")("CSI_ENDPOINT=unix:///run/lunkeeper-csi/node.sock lunkeeper status")
    return machine


def test_a_storage_host_a_controller_and_a_node_are_set_up_as_written(set_up):
    assert "rack1" in set_up.run("lunkeeper status")


def test_a_node_is_fenced_and_unfenced_by_hand_as_written(set_up):
    """With one array, as in the text, and with the generation that the fence printed."""
    set_up.run("""sed -i '/rack2/,/cert/d; s/},$/}/' arrays.json""")
    wait_until(lambda: "rack2" not in set_up.run("lunkeeper status"), 15, "there is one array", pause=0.2)
    fence, unfence = docs.commands("fence").strip().split("\n")
    generation = re.search(r"generation (\d+)", set_up.run(fence))[1]
    set_up.run(unfence.replace("--generation 41", f"--generation {generation}"))


def test_the_quick_demo_keeps_what_it_says():
    told = subprocess.run([sys.executable, ROOT / "e2e/demo.py"], capture_output=True, text=True, timeout=240)
    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stdout.rstrip().endswith("Done: fenced, moved, nothing lost."), told.stdout


def test_what_the_text_names_exists():
    for page, command in docs.inline():
        verbs = re.match(r"lunkeeper((?: [a-z][a-z-]*)+)", command)
        assert verbs, f"{page}: {command}"
        known = subprocess.run(
            [LUNKEEPER, *verbs[1].split(), "--help"], capture_output=True, text=True, timeout=20
        )
        assert known.returncode == 0, f"{page}: {command}: {known.stdout}{known.stderr}"
        for option in re.findall(r"--[a-z-]+", command):
            assert option in known.stdout, f"{page}: {command}: {option} is not in its --help"


def test_every_verb_of_dev_that_is_named_exists():
    known = subprocess.run([ROOT / "dev", "help"], capture_output=True, text=True, timeout=20).stdout
    for page in docs.PAGES:
        for verb in re.findall(r"\./dev (?!help)([a-z]+)", pathlib.Path(page).read_text()):
            assert f"./dev {verb}" in known, f"{page.name}: ./dev {verb}"


def test_as_many_test_programs_run_emulated_as_the_text_says():
    def count(*chosen):
        listed = subprocess.run(
            ["ctest", "--test-dir", BUILD, "--show-only", *chosen], capture_output=True, text=True, timeout=20
        ).stdout
        return int(re.search(r"^Total Tests: (\d+)$", listed, re.MULTILINE)[1])

    said = re.search(r"(\d+) of the (\d+) programs of unit tests", (ROOT / "docs/development.md").read_text())
    assert (int(said[1]), int(said[2])) == (count("-L", "emulated"), count())


def test_the_dashboards_picture_shows_the_panels_of_the_dashboard():
    picture = (ROOT / "docs/images/dashboard.svg").read_text()
    shown = re.findall(r'<text[^>]* class="(?:title|row)"[^>]*>(?:⌄ )?([^<]*)</text>', picture)
    assert [html.unescape(title) for title in shown] == [panel["title"] for panel in dashboard.panels()]


def test_what_the_dashboard_shows_as_a_number_has_a_colour_that_says_whether_it_is_well():
    numbers = [panel for panel in dashboard.panels() if panel["type"] in ("stat", "bargauge")]
    assert len(numbers) > 15
    values = (0, 1, 200)
    colours = {panel["title"]: [dashboard.colour(panel, each, 0) for each in values] for panel in numbers}
    assert colours["Devices that have failed"] == ["green", "red", "red"]
    assert colours["Replicas that act (one is right)"] == ["red", "green", "red"]
    assert colours["Volumes that are attached"] == ["text", "text", "text"]


def test_the_values_that_helm_is_asked_for_are_yaml():
    """Otherwise helm writes a heading, which the chart refuses as a setting that it does not know."""
    asked = {
        command: page.name
        for page in (ROOT / "docs").glob("*.md")
        for command in re.findall(r"helm [^`\n]*get values[^`\n]*", page.read_text())
    }
    assert asked
    assert not [command for command in asked if "--output yaml" not in command], asked


def test_the_rows_of_a_table_have_as_many_cells_as_its_heading():
    for page in (ROOT / "docs").glob("*.md"):
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
            widths = {len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}
            assert len(widths) == 1, f"{page.name}:\n{table}"
