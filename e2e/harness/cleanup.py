"""Things to undo, in reverse, each by its own id, whatever happened in between; also after Ctrl-C or SIGTERM."""

import contextlib
import signal
import sys
import time
import traceback


class Cleanup:
    """A stack of undo steps. One that fails is told of and does not keep the others from running."""

    def __init__(self):
        self._steps = []

    def add(self, step, *args):
        self._steps.append((step, args))

    def run(self):
        while self._steps:
            step, args = self._steps.pop()
            try:
                step(*args)
            except Exception:  # noqa: every step gets its turn
                print(f"cleanup: {getattr(step, '__qualname__', step)}{args}", file=sys.stderr)
                traceback.print_exc()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        with contextlib.suppress(KeyboardInterrupt):
            self.run()
        self.run()  # what a second Ctrl-C has left


def interrupt_on_sigterm():
    """SIGTERM becomes KeyboardInterrupt, so that fixtures are taken down."""
    def raise_it(signum, frame):
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, raise_it)


def wait_until(condition, seconds, what, pause=0.02):
    """The first true answer of `condition`; fails after `seconds` with `what` (text, or a function that makes it)."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(pause)
