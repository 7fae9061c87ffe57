"""A time of day of their own for processes, ahead of the machine's, which is never set; see clock.c."""

import struct
from pathlib import Path

from harness.pool import run

SOURCE = Path(__file__).with_name("clock.c")


def build_clock(library: Path) -> None:
    run("cc", "-shared", "-fPIC", "-O2", "-o", library, SOURCE)


def set_clock(offset: Path, seconds: float) -> None:
    """All processes that go by this file see it at once."""
    with open(offset, "r+b" if offset.exists() else "wb") as file:  # in place: it is mapped
        file.write(struct.pack("q", int(seconds * 1e9)))


def clock_variables(library: Path | str, offset: Path | str) -> dict[str, str]:
    """The environment of a process that goes by it."""
    return {"LD_PRELOAD": str(library), "CLOCK_OFFSET": str(offset)}
