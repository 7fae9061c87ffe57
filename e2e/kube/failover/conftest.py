"""Marks these tests, and gives each a writer to watch."""

import functools

import pytest

from kube.failover import settings, watching


def pytest_collection_modifyitems(items):
    """So that a run can choose a few of these tests, or none."""
    for item in items:
        if __package__ in item.module.__name__:
            item.add_marker("failover")


@pytest.fixture
def place(failover, workloads):
    return functools.partial(watching.place, failover, workloads)


@pytest.fixture
def change_settings(failover):
    """Changes them until the test is over."""
    yield functools.partial(settings.change, failover)
    failover.end()  # each controller has to read them
    settings.change(failover)
