"""Fixtures of the end-to-end tests. They need root and the built programs (see harness/places.py)."""

import os
import pathlib
import re
import shutil
import tempfile

import pytest

from harness import places, pool, store
from harness.cleanup import Cleanup, interrupt_on_sigterm
from harness.rig import Rig


# The report of a sanitizer. The exit code does not show it when a test kills the process.
SANITIZER_REPORT = re.compile(r"(WARNING|ERROR): \w+Sanitizer|runtime error:")


def pytest_configure(config):
    interrupt_on_sigterm()


def pytest_collection_modifyitems(config, items):
    if items and not places.LUNKEEPER.exists():
        pytest.exit(f"{places.LUNKEEPER} is not built: ./dev build, or set LUNKEEPER", 2)
    left_out = [item for item in items if store.ON_CEPH and item.get_closest_marker("files")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
    items.sort(key=place_in_run)  # keeps the order of equals


def place_in_run(item):
    """The markers `first` and `last` move a test to an end of the run."""
    if item.get_closest_marker("first"):
        return -1
    return 1 if item.get_closest_marker("last") else 0


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Adds the rigs' logs to a failure."""
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        for value in getattr(item, "funcargs", {}).values():
            if isinstance(value, Rig):
                report.sections.append(("logs", value.logs()))


@pytest.fixture(scope="module")
def module_cleanup():
    with Cleanup() as cleanup:
        yield cleanup


@pytest.fixture(scope="module")
def folder(module_cleanup):
    """A folder of a test file, removed afterwards.

    Its path is short, since paths of unix sockets are limited.
    """
    path = pathlib.Path(tempfile.mkdtemp(prefix="lk-"))
    module_cleanup.add(shutil.rmtree, path, True)
    if os.environ.get("LUNKEEPER_KEEP_LOGS"):
        module_cleanup.add(keep_logs, path)
    yield path
    reports = [
        f"{log.name}: {line.strip()}"
        for log in path.rglob("*.log")
        for line in log.read_text(errors="replace").split("\n")
        if SANITIZER_REPORT.search(line)
    ]
    assert not reports, "the sanitizers complain:\n" + "\n".join(reports[:20])


def keep_logs(folder):
    kept = places.LOGS / folder.name
    kept.mkdir(parents=True, exist_ok=True)
    for log in folder.rglob("*.log"):
        shutil.copy(log, kept / log.name)


@pytest.fixture(scope="module")
def xfs_pool(folder, module_cleanup):
    """A pool with reflinks."""
    return pool.xfs_pool(folder / "xfs", module_cleanup)


@pytest.fixture(scope="module")
def plain_pool(folder, module_cleanup):
    """A pool without reflinks: snapshots and clones are copies."""
    return pool.plain_pool(folder / "plain", module_cleanup)
