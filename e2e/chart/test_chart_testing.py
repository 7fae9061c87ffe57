"""`ct lint`: helm's lint once more, the fields of Chart.yaml, and how it and values.yaml are written."""

import shutil

import pytest

from chart.charts import CHART
from cluster import programs


@pytest.fixture(scope="module", autouse=True)
def chart_testing():
    programs.build_ct()


def test_chart_testing_finds_nothing():
    done = programs.lint_chart(CHART)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "name,line",
    [("Chart.yaml", "colour: red"), ("values.yaml", "more:  two spaces")],
    ids=["a field", "spaces"],
)
def test_chart_testing_finds_what_is_wrong(tmp_path, name, line):
    copy = shutil.copytree(CHART, tmp_path / "lunkeeper")
    with open(copy / name, "a") as file:
        file.write(f"{line}\n")
    done = programs.lint_chart(copy)
    assert done.returncode != 0 and name in done.stdout + done.stderr
