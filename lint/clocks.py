"""Clocks: nothing that the product waits for depends on the time of day, which people may set."""

import re

from lint.tree import Tree

STEADY = "base/steady_"  # the files that may name a time to wait until
# Abseil waits until a time of the wall clock, whether it is given a deadline or a length of time. What is
# waited until may be any clock's.
WAIT = re.compile(
    r"\b(?:(?:Await|LockWhen|ReaderLockWhen|Wait|WaitForNotification)With(?:Timeout|Deadline)"
    r"|wait_until|sleep_until)\s*\("
)

# A deadline that is compared with the time of day is the same: it moves when somebody sets the clock.
COMPARED = re.compile(r"absl::Now\(\)[^;{]* [<>]=? |[<>]=? *absl::Now\(\)")
# What is of a time of day by itself.
OF_DAY = {
    "fencing/coordinator/authenticator.cc": "a token says when it ends",
    "devices/array/tgt/heartbeat_lun_table.cc": "a file says when it was written to",
}


def check_steady_waits(tree: Tree) -> list[str]:
    """The product waits by the steady clock."""
    return [
        f"{name}:{number}: `{found[0]}`: who sets the clock ends or prolongs it: see {STEADY}mutex.h, "
        f"{STEADY}signal.h, {STEADY}deadline.h"
        for name in tree.cpp("product")
        if not name.startswith(STEADY)
        for number, line in enumerate(tree.lines(name), 1)
        for code in [line.partition("//")[0]]
        if (found := WAIT.search(code) or (name not in OF_DAY and COMPARED.search(code)))
    ]
