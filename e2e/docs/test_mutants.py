"""What is known of the mutants without building any: `./dev sim --mutants` makes them."""

import subprocess

import pytest

from harness.places import BUILD, ROOT
from mutants.mutants import MUTANTS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_one_place_and_its_test_is_there(mutant):
    assert (ROOT / mutant.file).read_text().count(mutant.before) == 1
    assert mutant.before != mutant.after and len(mutant.before.splitlines()) <= 2
    listed = subprocess.run(
        [BUILD / mutant.program, mutant.tests, "--list-test-names-only"], capture_output=True, text=True
    )
    assert listed.stdout.strip(), f"{mutant.program} has no test {mutant.tests}"


def test_there_are_enough_of_the_core_and_of_the_runner_and_the_agent():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    core = [each for each in MUTANTS if each.file.startswith("fencing/core")]
    assert len(core) >= 30 and len(MUTANTS) - len(core) >= 20
