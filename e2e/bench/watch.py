"""The changes of Kubernetes objects, as `kubectl get --watch` reports them."""

import json
import queue
import subprocess
import threading
import time

SECONDS = 120


class Watch:
    """The changes of a namespace's pods or claims, each with the time of its arrival."""

    def __init__(self, workloads, kind):
        command = [
            *workloads.kubectl.command,
            "get",
            kind,
            *workloads.here,
            "--watch",
            "--output-watch-events",
            "-o",
            "json",
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.changes = queue.Queue()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            change = json.loads(line)
            self.changes.put((time.monotonic(), change["type"], change["object"]))

    def wait(self, wanted):
        """The time of the first change that `wanted(type, object)` takes; those before it are forgotten."""
        deadline = time.monotonic() + SECONDS
        while True:
            when, kind, thing = self.changes.get(timeout=deadline - time.monotonic())
            if wanted(kind, thing):
                return when

    def close(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
