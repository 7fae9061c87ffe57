"""Workers, targets, connections and hosts fail under running I/O of a writer that checks its data."""

import os
import random
import signal
import socket
import subprocess
import time

import pytest

from harness import slow
from harness.checker import IO_ERROR, BlockChecker
from harness.cleanup import wait_until
from harness.csi import code_of
from harness.places import LUNKEEPER
from harness.processes import children_of, kill_pid, listener_of
from harness.rig import Rig
from harness.storage_host import StorageHost
from harness.volume import MIB, Volume

KILLS = 20
OOM_KILLS = 10
AWAY_SECONDS = 10
PROBE_WAIT_SECONDS = 15  # after ten seconds Probe calls a plugin broken that cannot reach its data path
CUTS, VOLUMES = 200, 4
# Few blocks and many writers: each block is written again soon, so an older write has something to overtake.
HOT_BLOCKS = 64


@pytest.fixture(scope="module")
def rig(folder, xfs_pool):
    with slow.rig(folder, "data-path", xfs_pool) as rig:
        yield rig


@pytest.fixture
def volume(rig, request):
    """A raw block volume in use, deleted afterwards."""
    volume = Volume(
        rig, rig.nodes[0], request.node.name.replace("[", "-").replace("]", ""), block=True, size=16 * MIB
    ).up()
    yield volume
    volume.down().delete()


@pytest.mark.sanitizer
def test_a_worker_killed_again_and_again_is_not_noticed_by_a_file_system(rig):
    volume = Volume(rig, rig.nodes[0], "killed-workers").up()
    volume.make_file(8 * MIB)
    checker = BlockChecker(volume).start()
    for _ in range(KILLS):
        worker = wait_until(rig.nodes[0].datapath.worker, 10, "there is a worker")
        kill_pid(worker)
        checker.wait_for_writes(100)
    counters = checker.stop_good()
    print(f"longest stall {counters['longest_ms']} ms over {KILLS} kills")
    checker.verify()
    volume.down().delete()


@pytest.mark.sanitizer
def test_a_supervisor_killed_again_and_again_is_not_noticed(rig):
    """The plugin keeps duplicates of its descriptors for the next one."""
    volumes = [
        Volume(rig, rig.nodes[0], "killed-supervisors", fs="ext4", size=64 * MIB).up(),
        Volume(rig, rig.nodes[0], "killed-supervisors-raw", block=True, size=16 * MIB).up(),
    ]
    volumes[0].make_file(8 * MIB)
    checkers = [BlockChecker(volume).start() for volume in volumes]
    for round in range(KILLS):
        if round % 5 == 2:
            rig.controller.kill()
            rig.start()
        wait_until(rig.nodes[0].keeps_duplicates, 60, "the plugin has the duplicates")
        rig.nodes[0].datapath.kill()
        rig.start()
        for checker in checkers:
            checker.wait_for_writes(100)
    longest = [checker.stop_good()["longest_ms"] for checker in checkers]
    print(f"longest stalls {longest} ms over {KILLS} kills")
    for volume, checker in zip(volumes, checkers):
        checker.verify()
        volume.down().delete()


def test_a_supervisor_killed_together_with_the_plugin_costs_errors_until_its_volumes_are_staged_again(
    rig, volume
):
    checker = BlockChecker(volume).start()
    rig.controller.kill()
    rig.nodes[0].datapath.kill()
    wait_until(lambda: not checker.running(), 30, "the writer gets an error")
    assert checker.stop()[0] == IO_ERROR
    rig.start()
    down_after_loss(volume)
    volume.up()
    again = BlockChecker(volume).start()
    again.wait_for_writes(100)
    again.stop_good()


def test_what_a_raw_writer_closed_and_dead_processes_took_along_is_told_of_by_the_unstage(rig, volume):
    """The writer got no error, and nothing is left of its device."""
    with open(volume.path(), "wb", buffering=0) as device:
        device.write(b"x" * MIB)
    rig.controller.kill()
    rig.nodes[0].datapath.kill()
    rig.start()
    assert down_after_loss(volume) == ["DATA_LOSS", "DATA_LOSS", "OK"]
    volume.up()


@pytest.mark.sanitizer
def test_io_goes_on_while_the_plugin_is_killed_and_comes_back(rig, volume):
    checker = BlockChecker(volume).start()
    for _ in range(5):
        rig.controller.kill()
        checker.wait_for_writes(200)
        rig.start()
        checker.wait_for_writes(200)
    checker.stop_good()
    checker.verify()


def test_a_data_path_started_by_the_plugin_outlives_it(folder, xfs_pool):
    with Rig(folder / "started", xfs_pool, start=False, node_options=["--start-datapath"]) as rig:
        datapath = rig.nodes[0].datapath
        plugin = rig.controller.start()
        wait_until(plugin.ready, 30, "the plugin is ready")
        started = listener_of(datapath.socket, socket.SOCK_SEQPACKET)
        assert started not in (None, plugin.pid) and started not in children_of(plugin.pid)
        volume = Volume(rig, rig.nodes[0], "started", block=True, size=16 * MIB).up()
        checker = BlockChecker(volume).start()
        plugin.kill()
        checker.wait_for_writes(200)
        plugin.start()
        wait_until(plugin.ready, 30, "the plugin is ready again")
        assert listener_of(datapath.socket, socket.SOCK_SEQPACKET) == started, (
            "it found the one that was there"
        )
        checker.stop_good()
        checker.verify()
        volume.down().delete()


def test_a_data_path_started_by_the_plugin_is_followed_by_the_next_one_when_it_is_killed(folder, xfs_pool):
    with Rig(folder / "followed", xfs_pool, start=False, node_options=["--start-datapath"]) as rig:
        datapath = rig.nodes[0].datapath
        plugin = rig.controller.start()
        wait_until(plugin.ready, 30, "the plugin is ready")
        volume = Volume(rig, rig.nodes[0], "followed", block=True, size=16 * MIB).up()
        checker = BlockChecker(volume).start()
        checker.wait_for_writes(200)
        wait_until(rig.nodes[0].keeps_duplicates, 60, "the plugin has the duplicates")
        kill_pid(listener_of(datapath.socket, socket.SOCK_SEQPACKET))
        checker.wait_for_writes(200)
        checker.stop_good()
        checker.verify()
        volume.down().delete()
        # One that somebody stopped stays so: this may be an upgrade.
        subprocess.run([LUNKEEPER, "datapath", "stop", f"--socket={datapath.socket}"], check=True)
        time.sleep(3)
        assert listener_of(datapath.socket, socket.SOCK_SEQPACKET) is None


def test_probe_says_not_ready_while_volumes_wait_for_a_data_path(rig, volume):
    """FAILED_PRECONDITION would have the plugin restarted, and with it the duplicates would go."""
    checker = BlockChecker(volume).start()
    checker.wait_for_writes(100)
    wait_until(rig.nodes[0].keeps_duplicates, 60, "the plugin has the duplicates")
    rig.nodes[0].datapath.kill()
    end = time.monotonic() + PROBE_WAIT_SECONDS
    while time.monotonic() < end:
        assert not rig.controller.client.Probe().ready.value
        time.sleep(1)
    rig.start()
    wait_until(rig.controller.ready, 30, "the plugin is ready again")
    checker.wait_for_writes(100)
    checker.stop_good()
    checker.verify()


@pytest.mark.parametrize("how", ["gone", "hung"])
def test_a_target_away_for_ten_seconds_costs_no_error(rig, volume, how):
    checker = BlockChecker(volume).start()
    tgtd = rig.tgtd()
    if how == "gone":
        rig.controller.kill()  # or it would start tgtd again at once
        kill_pid(tgtd)
        time.sleep(AWAY_SECONDS)
        rig.start()
    else:
        os.kill(tgtd, signal.SIGSTOP)
        time.sleep(AWAY_SECONDS)
        os.kill(tgtd, signal.SIGCONT)
    checker.wait_for_writes(500)
    counters = checker.stop_good()
    assert counters["longest_ms"] >= AWAY_SECONDS * 900
    checker.verify()


def test_tgtd_killed_again_and_again_costs_no_error(rig, volume):
    checker = BlockChecker(volume).start()
    for _ in range(5):
        kill_pid(wait_until(rig.tgtd, 20, "tgtd is there"))
        checker.wait_for_writes(200)
    checker.stop_good()
    checker.verify()


@pytest.mark.files  # of which tgtd's writes are slowed
def test_a_slow_old_write_never_overtakes_a_newer_one(rig, folder):
    """The connection is reset while writes are slow in the target. They are repeated, and then are quick."""
    volumes = [
        Volume(rig, rig.nodes[0], f"cut-{number}", block=True, size=4 * MIB).up() for number in range(VOLUMES)
    ]
    checkers = [BlockChecker(volume, threads=16, blocks=HOT_BLOCKS, pause_ms=0).start() for volume in volumes]
    chance, cuts = random.Random(1), 0
    while cuts < CUTS:
        slow.set_delay(folder, chance.choice([50, 150, 300]))
        time.sleep(chance.uniform(0.02, 0.1))  # some of the writes now sleep in the target
        slow.set_delay(folder, 0)
        cuts += cut_connections(rig)
        for checker in checkers:
            checker.wait_for_writes(HOT_BLOCKS)
    totals = [checker.stop_good() for checker in checkers]
    print(f"{cuts} cuts, {sum(total['writes'] for total in totals)} writes, none overtaken")
    for checker, volume in zip(checkers, volumes):
        checker.verify()
        volume.down().delete()


def test_a_writer_and_the_data_path_in_one_small_memory_cgroup_do_not_deadlock(folder, xfs_pool):
    cgroup = slow.MemoryCgroup(f"lunkeeper-{os.getpid()}", 160 * MIB)
    try:
        with Rig(folder / "cgroup", xfs_pool, start=False) as rig:
            datapath = rig.nodes[0].datapath
            datapath.argv = cgroup.command(datapath.argv)
            rig.start()
            volume = Volume(rig, rig.nodes[0], "cgroup", size=768 * MIB).up()
            write = [
                "dd",
                "if=/dev/zero",
                f"of={volume.path()}",
                "bs=1M",
                "count=512",
                "conv=fsync",
                "status=none",
            ]
            worker = rig.nodes[0].datapath.worker()
            for _ in range(OOM_KILLS):  # the OOM killer may end the writer, but nothing hangs
                if (
                    subprocess.run(
                        cgroup.command(write, first_to_go=True), check=False, timeout=120
                    ).returncode
                    == 0
                ):
                    break
            assert volume.path().stat().st_size == 512 * MIB
            assert rig.nodes[0].datapath.worker() == worker
            volume.down().delete()
    finally:
        cgroup.remove()


class TestStorageHost:
    """The controller and its tgtd run under another boot id, as on a storage host of their own."""

    @pytest.fixture(scope="class")
    def host(self, folder, xfs_pool):
        with StorageHost(folder / "host", xfs_pool) as host:
            yield host

    @pytest.fixture
    def volume(self, host, request):
        volume = Volume(
            host.rig,
            host.rig.nodes[0],
            request.node.originalname,
            block=True,
            size=16 * MIB,
            parameters=getattr(request, "param", {}),
        ).up(with_controller=True)
        yield volume
        volume.down(with_controller=True).delete()

    @staticmethod
    def loses_nothing(volume, fault):
        """A writer goes on after the fault, and every write that was acknowledged is there."""
        checker = BlockChecker(volume, flush_every=0).start()
        checker.wait_for_writes(500)
        fault()
        checker.wait_for_writes(500)
        checker.stop_good()
        checker.verify()

    def test_tgtd_restarted_on_the_same_host_loses_nothing(self, host, volume):
        self.loses_nothing(volume, host.restart_tgtd)

    @pytest.mark.files  # elsewhere nothing is cached
    def test_a_host_restarted_with_unflushed_writes_fails_the_device_for_good(self, host, volume):
        checker = BlockChecker(volume, flush_every=0).start()
        checker.wait_for_writes(500)
        host.reboot()
        wait_until(lambda: not checker.running(), 30, "the writer gets an error")
        code, counters = checker.stop()
        assert code == IO_ERROR, counters
        assert fails_with_eio(volume.path())

    @pytest.mark.parametrize("volume", [{"durability": "sync"}], indirect=True)
    def test_a_host_restarted_under_a_synchronous_volume_loses_nothing(self, host, volume):
        self.loses_nothing(volume, host.reboot)

    def test_a_host_restarted_with_everything_flushed_goes_on(self, host, volume):
        checker = BlockChecker(volume, flush_every=0).start()
        checker.wait_for_writes(500)
        checker.stop_good()
        with open(volume.path(), "rb+") as device:
            os.fsync(device.fileno())
        host.reboot()
        checker.verify()
        checker.start()
        checker.wait_for_writes(500)
        checker.stop_good()

    def test_a_target_that_stays_away_fails_io_in_time_and_unstage_succeeds(self, host, volume):
        checker = BlockChecker(volume).start()
        host.go_away()
        started = time.monotonic()
        wait_until(lambda: not checker.running(), host.REPLACEMENT_SECONDS + 10, "the writer gets an error")
        took = time.monotonic() - started
        assert checker.stop()[0] == IO_ERROR
        assert host.REPLACEMENT_SECONDS - 1 <= took <= host.REPLACEMENT_SECONDS + 5
        volume.unpublish().unstage()
        host.come_back()


def cut_connections(rig):
    """Resets every connection of the rig's portal from the target's side; returns their number."""
    port = rig.portal.split(":")[1]
    done = subprocess.run(
        ["ss", "-K", "--no-header", "state", "established", "sport", "=", f":{port}"],
        check=False,
        capture_output=True,
        text=True,
    )
    return len(done.stdout.split("\n")) - 1


def down_after_loss(volume):
    """Repeats the unstage, as an orchestrator does; returns its answers."""
    wait_until(lambda: code_of(volume.unpublish)[0] == "OK", 30, "it is unpublished")
    answers = []
    while not answers or answers[-1] in ("ABORTED", "DATA_LOSS"):
        answers.append(code_of(volume.unstage)[0])
        time.sleep(0.05)
    assert answers[-1] == "OK", answers
    # The plugin may sweep up by itself, too, and then another call works on the volume.
    return [answer for answer in answers if answer != "ABORTED"]


def fails_with_eio(path):
    try:
        with open(path, "rb", buffering=0) as device:
            device.read(4096)
        return False
    except OSError as error:
        return error.errno in (5, 6)
