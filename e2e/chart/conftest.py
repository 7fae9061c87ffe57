"""Fixtures of the chart's tests."""

import pytest
import yaml

from cluster import programs


@pytest.fixture(scope="session", autouse=True)
def helm():
    programs.build_helm()


@pytest.fixture
def values(tmp_path):
    def write(content):
        path = tmp_path / "values.yaml"
        path.write_text(yaml.safe_dump(content))
        return path

    return write
