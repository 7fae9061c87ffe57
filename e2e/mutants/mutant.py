"""Deliberate mistakes in the program itself, each of one line, and the test that catches it.

`./dev sim --mutants` makes each of them in a copy of the tree, and expects its test to fail. The simulator
has more of them (`fencing/sim/mutants.h`), in its own world, which stands in for arrays and nodes.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Mutant:
    """In `file` the text `before`, which is there once, becomes `after`. `harm`: what it would do."""

    name: str
    harm: str
    file: str
    before: str
    after: str
    program: str  # below the folder of the build
    tests: str  # of the program, as Catch2 names them


COORDINATOR_TEST = "plugin/coordinator_test"  # of nodes and controllers together
