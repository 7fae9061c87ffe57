"""`./dev bench datapath|rpcs --against BINARY`: is this build as fast as another one?

Each round starts the old binary twice and the new one once, and measures each figure with all three, one
right after the other. So a machine that is slow for a minute is slow for all of them. The two old samples
differ by chance alone: their typical difference is the spread of a figure.

A figure passes when the new binary is worse than the old one by no more than the spread plus 3 %.
"""

import contextlib
import dataclasses
import pathlib
import statistics
from collections.abc import Callable, Sequence

ROUNDS = 10
MARGIN = 0.03
MOST_SPREAD = 0.1  # more than this: other work on the machine hides what a change costs


@dataclasses.dataclass(frozen=True)
class Figure:
    """One number that a benchmark measures."""

    name: str
    unit: str
    higher_is_better: bool


Sample = dict[Figure, float]
Step = Callable[[], Sample]  # measures some figures of one binary
# Starts a binary; gives its steps, which are the same for each binary.
Start = Callable[[pathlib.Path], contextlib.AbstractContextManager[Sequence[Step]]]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The samples of one figure: (first old, second old, new) of each round."""

    figure: Figure
    rounds: Sequence[tuple[float, float, float]]

    @property
    def old(self) -> float:
        """The median of all samples of the old binary."""
        return statistics.median(sample for first, second, _ in self.rounds for sample in (first, second))

    @property
    def new(self) -> float:
        """The median of the new binary's samples."""
        return statistics.median(new for _, _, new in self.rounds)

    @property
    def spread(self) -> float:
        """The median difference of the two old samples of a round, as a share of their mean: 0.05 for 5 %."""
        return statistics.median(
            2 * abs(second - first) / (second + first) for first, second, _ in self.rounds
        )

    @property
    def change(self) -> float:
        """The median of new / old - 1. Each round has its own old, the mean of its two samples."""
        return statistics.median(2 * new / (first + second) for first, second, new in self.rounds) - 1

    @property
    def passed(self) -> bool:
        """Whether the new binary is not worse by more than chance and the margin explain."""
        loss = -self.change if self.figure.higher_is_better else self.change
        return loss <= self.spread + MARGIN

    def text(self) -> str:
        """One line of the report."""
        limit = f"{(self.spread + MARGIN) * 100:.1f} %"
        return (
            f"{self.figure.name:<28} {self.old:>10.1f} {self.new:>10.1f} {self.figure.unit:<8}"
            f" {self.change * 100:>+7.1f} % {self.spread * 100:>7.1f} %   "
            + (
                f"within the spread plus 3 % ({limit})"
                if self.passed
                else f"WORSE than the spread plus 3 % ({limit})"
            )
        )


def turns(number: int) -> list[int]:
    """An order of the three: 0 and 1 are the old binary, 2 is the new one.

    Each is first in every third step.
    """
    return [(number + place) % 3 for place in range(3)]


def run_round(start: Start, old: pathlib.Path, new: pathlib.Path, number: int) -> list[Sample]:
    """The samples of one round, in the order old, old, new."""
    samples: list[Sample] = [{}, {}, {}]
    with contextlib.ExitStack() as stack:
        steps = [stack.enter_context(start(binary)) for binary in (old, old, new)]
        for step in range(len(steps[0])):
            for which in turns(number + step):
                samples[which] |= steps[which][step]()
    return samples


def compare(title: str, start: Start, old: pathlib.Path, new: pathlib.Path, rounds: int) -> bool:
    """Measures, prints the report, and returns whether every figure passed."""
    print(f"\n{title}: {rounds} rounds of old, old, new\n  old: {old}\n  new: {new}", flush=True)
    taken = []
    for number in range(rounds):
        taken.append(run_round(start, old, new, number))
        print(f"  round {number + 1} of {rounds} is done", flush=True)
    verdicts = [
        Verdict(figure, [(first[figure], second[figure], latest[figure]) for first, second, latest in taken])
        for figure in taken[0][0]
    ]
    print(f"\n{'medians':<28} {'old':>10} {'new':>10} {'':<8} {'new/old':>9} {'old/old':>9}")
    print(*(verdict.text() for verdict in verdicts), sep="\n", flush=True)
    if wide := [verdict.figure.name for verdict in verdicts if verdict.spread > MOST_SPREAD]:
        print(
            f"The spread of {len(wide)} figures is over {MOST_SPREAD:.0%}:"
            " repeat this when the machine has no other work."
        )
    return all(verdict.passed for verdict in verdicts)
