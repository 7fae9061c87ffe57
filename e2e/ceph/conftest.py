"""One small Ceph for a file of tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.ceph import Ceph


@pytest.fixture(scope="module")
def ceph(folder: Path) -> Iterator[Ceph]:
    with Ceph(folder / "ceph") as ceph:
        yield ceph
