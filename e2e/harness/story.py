"""What the demos tell: lines with the time since the start, and how long each step took."""

import contextlib
import time

STARTED = time.monotonic()


def tell(text):
    print(f"{time.monotonic() - STARTED:6.1f} s  {text}", flush=True)


@contextlib.contextmanager
def step(text):
    """Says what was done and how long it took, once it is done. What the block appends is filled in."""
    started, said = time.monotonic(), []
    yield said
    tell(f"{text.format(*said)}  ({(time.monotonic() - started) * 1000:.0f} ms)")


def check(good, complaint):
    if not good:
        raise SystemExit(f"demo: FAILED: {complaint}")
