"""All mutants of the program."""

from mutants.agent import AGENT
from mutants.coordinator import COORDINATOR
from mutants.core import CORE
from mutants.runner import RUNNER

MUTANTS = [*CORE, *RUNNER, *AGENT, *COORDINATOR]
