"""An array's catalogue, read while its agent runs.

The file belongs to the agent's process, so a copy is read: the file and its log of one moment.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

FILE = "catalogue.db"


def query(pool: Path, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a query. There are no tables in a pool without a catalogue: `exists` tells."""
    with tempfile.TemporaryDirectory() as folder:
        _copy(pool / FILE, Path(folder) / FILE)
        with contextlib.closing(sqlite3.connect(Path(folder) / FILE)) as database:
            return database.execute(sql).fetchall()


def exists(pool: Path) -> bool:
    return (pool / FILE).exists()


def _copy(live: Path, copy: Path) -> None:
    """SQLite writes to the file only when it moves the log there; otherwise the log only grows."""
    while True:
        before = live.stat().st_mtime_ns
        shutil.copyfile(live, copy)
        log = live.with_name(f"{FILE}-wal")
        if log.exists():
            shutil.copyfile(log, copy.with_name(log.name))
        if live.stat().st_mtime_ns == before:
            return
