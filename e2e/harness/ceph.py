"""A small Ceph of a test's own: a monitor, a manager and OSDs as plain processes, on loopback.

    with Ceph(folder) as ceph:          # up, with an empty pool
        ceph.rbd("ls", ceph.POOL)

All its data are in `folder`, and its processes end with the program that started it. What is stored has one
copy: this Ceph is to be driven and broken, not to keep anything.
"""

import json
import re
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.cleanup import Cleanup, Closing, wait_until
from harness.pool import run
from harness.processes import Daemon, free_port

CONF = """\
[global]
fsid = {fsid}
mon_host = [v2:{address}:{port}]
public_network = {address}/8
keyring = {folder}/$name.keyring
run_dir = {folder}
log_file = {folder}/$name.log
mon_data = {folder}/$name
mgr_data = {folder}/$name
osd_data = {folder}/$name
ms_mon_client_mode = crc
admin_socket =
rbd_cache = false
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_allow_pool_delete = true
mon_warn_on_pool_no_redundancy = false
mon_data_avail_warn = 0
mon_data_avail_crit = 0
osd_pool_default_pg_autoscale_mode = off
bluestore_block_size = {osd_bytes}
osd_memory_target = 1073741824
mgr_initial_modules =
"""
START_SECONDS = 60


class Ceph(Closing):
    POOL = "lk"
    OSD_BYTES = 8 << 30  # sparse

    def __init__(
        self,
        folder: Path,
        *,
        osds: int = 1,
        osd_options: Mapping[int, Sequence[str]] | None = None,
        address: str = "127.0.0.1",
        inside: Sequence[str] = (),
    ) -> None:
        """`inside`: the words before a command that has to run where `address` is; `osd_options`: by the
        number of the OSD, beside the conf.
        """
        self.folder = Path(folder)
        self.address, self.inside = address, list(inside)
        self.folder.mkdir(parents=True)
        self.conf = self.folder / "ceph.conf"
        self.cleanup = Cleanup()
        self.cleanup.add(shutil.rmtree, self.folder, True)
        self.fsid, self.port = str(uuid.uuid4()), free_port()
        self.mon = self._daemon("mon", "a")
        self.mgr = self._daemon("mgr", "x")
        self.osds = [
            self._daemon("osd", str(number), (osd_options or {}).get(number, ())) for number in range(osds)
        ]
        try:
            self._start()
        except BaseException as error:
            logs = "\n".join(daemon.tail() for daemon in self.daemons())
            self.close()
            raise RuntimeError(f"Ceph did not start; its logs:\n{logs}") from error

    def daemons(self) -> list[Daemon]:
        return [self.mon, self.mgr, *self.osds]

    def _daemon(self, kind: str, name: str, options: Sequence[str] = ()) -> Daemon:
        daemon = Daemon(
            f"ceph-{kind}.{name}",
            [*self.inside, f"ceph-{kind}", "--foreground", "--id", name, "--conf", self.conf, *options],
            log=self.folder / f"{kind}.{name}.out",
            dies_with_us=True,
        )
        self.cleanup.add(daemon.kill)
        return daemon

    def _start(self) -> None:
        self.conf.write_text(
            CONF.format(
                fsid=self.fsid,
                address=self.address,
                port=self.port,
                folder=self.folder,
                osd_bytes=self.OSD_BYTES,
            )
        )
        self._make_keys()
        self._make_monitor()
        (self.folder / "mgr.x").mkdir()
        self.mon.start()
        self.mgr.start()
        for number, osd in enumerate(self.osds):
            identity = str(uuid.uuid4())
            self.ceph("osd", "new", identity, number)
            (self.folder / f"osd.{number}").mkdir()
            made = ("--mkfs", "--osd-uuid", identity)
            run(*self.inside, "ceph-osd", "--conf", self.conf, "--id", number, *made)
            osd.start()
        self.make_pool(self.POOL)

    def _make_keys(self) -> None:
        rights = {
            "client.admin": {"mon": "allow *", "osd": "allow *", "mgr": "allow *"},
            "mon.": {"mon": "allow *"},
            "mgr.x": {"mon": "allow profile mgr", "osd": "allow *", "mds": "allow *"},
            **{
                f"osd.{number}": {"mon": "allow profile osd", "mgr": "allow profile osd", "osd": "allow *"}
                for number in range(len(self.osds))
            },
        }
        every = self.folder / "all.keyring"
        for number, (entity, caps) in enumerate(rights.items()):
            words = [word for kind, what in caps.items() for word in ("--cap", kind, what)]
            new = ["--create-keyring"] if number == 0 else []
            run("ceph-authtool", every, *new, "--gen-key", "--name", entity, *words)
        for entity in rights:  # each has all keys: these files are not what is tested
            name = "mon.a" if entity == "mon." else entity
            (self.folder / f"{name}.keyring").write_text(every.read_text())

    def _make_monitor(self) -> None:
        monmap = self.folder / "monmap"
        run(
            *("monmaptool", "--create", "--fsid", self.fsid, "--addv", "a"),
            *(f"[v2:{self.address}:{self.port}]", "--set-min-mon-release", "pacific", monmap),
        )
        run(
            *(*self.inside, "ceph-mon", "--conf", self.conf, "--id", "a", "--mkfs"),
            *("--monmap", monmap, "--keyring", self.folder / "all.keyring"),
        )

    def edited(self, name: str, pattern: str, replacement: str) -> Path:
        """Another conf of this cluster, in which `pattern` is replaced."""
        conf = self.folder / f"{name}.conf"
        text, count = re.subn(pattern, replacement, self.conf.read_text())
        assert count
        conf.write_text(text)
        return conf

    def ceph(self, *words: object) -> str:
        return run(*self.inside, "ceph", "--conf", self.conf, "--connect-timeout", START_SECONDS, *words)

    def ask(self, *words: object) -> Any:
        return json.loads(self.ceph(*words, "--format", "json"))

    def rbd(self, *words: object) -> str:
        return run(*self.inside, "rbd", "--conf", self.conf, *words)

    def objects(self) -> list[str]:
        """The names of every object in the pool."""
        return sorted(run(*self.inside, "rados", "--conf", self.conf, "-p", self.POOL, "ls").split())

    def make_pool(self, name: str) -> None:
        self.ceph("osd", "pool", "create", name, 8)
        self.ceph("osd", "pool", "application", "enable", name, "rbd")
        self.wait_until_clean()

    def wait_until_clean(self) -> None:
        wait_until(self._is_clean, START_SECONDS, "each placement group is clean", pause=0.3)

    def _is_clean(self) -> bool:
        groups = self.ask("pg", "stat")["pg_summary"]
        states = groups.get("num_pg_by_state", [])
        return bool(states) and all(state["name"] == "active+clean" for state in states)

    def make_client(self, name: str, *caps: object) -> Path:
        """A user with these rights; the conf that makes it the default."""
        key = self.folder / f"client.{name}.keyring"
        key.write_text(self.ceph("auth", "get-or-create", f"client.{name}", *caps))
        return key

    def close(self) -> None:
        self.cleanup.run()
