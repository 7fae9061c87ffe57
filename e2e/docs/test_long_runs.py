"""What the long runs (e2e/long) name exists, and the document lists them all."""

import pytest

from harness.places import ROOT
from long.runs import RUNS, Run


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name.replace(" ", "-"))
def test_what_a_long_run_names_exists(run: Run) -> None:
    listed = [line for line in run.list_tests().splitlines() if line.strip()]
    # A Catch2 program lists names; pytest lists tests, and then counts them.
    assert listed and not listed[-1].startswith(("no tests", "No test")), listed


def test_the_document_has_every_long_run_with_its_length() -> None:
    text = (ROOT / "docs/development.md").read_text()
    for run in RUNS:
        assert f"| {run.length:,} {run.name} |" in text, run.name
