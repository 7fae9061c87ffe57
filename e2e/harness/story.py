"""What the demos tell: lines with the time since the start, and how long each step took."""

import contextlib
import time
from collections.abc import Iterator

STARTED = time.monotonic()


def tell(text: str) -> None:
    print(f"{time.monotonic() - STARTED:6.1f} s  {text}", flush=True)


@contextlib.contextmanager
def step(text: str) -> Iterator[list[object]]:
    """Says what was done and how long it took, once it is done. What the block appends is filled in."""
    started = time.monotonic()
    said: list[object] = []
    yield said
    tell(f"{text.format(*said)}  ({(time.monotonic() - started) * 1000:.0f} ms)")


def check(good: object, complaint: str) -> None:
    if not good:
        raise SystemExit(f"demo: FAILED: {complaint}")
