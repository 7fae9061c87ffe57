"""Undo steps, run in reverse order whatever happened in between, also after Ctrl-C or SIGTERM."""

import contextlib
import signal
import sys
import time
import traceback
import types
from collections.abc import Callable
from typing import Self, TypeVar

T = TypeVar("T")


class Closing:
    """What `with` closes at its end."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()


class Cleanup:
    """A stack of undo steps. When one fails it is printed, and the others still run."""

    def __init__(self) -> None:
        self._steps: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    def add(self, step: Callable[..., object], *args: object) -> None:
        self._steps.append((step, args))

    def run(self) -> None:
        while self._steps:
            step, args = self._steps.pop()
            try:
                step(*args)
            except Exception:  # every step gets its turn
                print(f"cleanup: {getattr(step, '__qualname__', step)}{args}", file=sys.stderr)
                traceback.print_exc()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            self.run()
        self.run()  # the steps that a second Ctrl-C skipped


def interrupt_on_sigterm() -> None:
    """SIGTERM becomes KeyboardInterrupt, so that fixtures are taken down."""

    def raise_it(signum: int, frame: types.FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, raise_it)


def wait_until(
    condition: Callable[[], T | None], seconds: float, what: str | Callable[[], object], pause: float = 0.02
) -> T:
    """Calls `condition` until it returns something true, and returns that.

    Fails after `seconds` with `what`: a text, or a function that makes one.
    """
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(pause)
