"""`./dev bench datapath|rpcs --against BINARY`: is this build as fast as another one?

The binaries take turns, so that a machine that is slow for a minute is slow for both. Each round measures the
old binary twice and the new one once, always in fresh processes. The two old samples of a round differ by
chance alone. Their typical difference is the spread of a figure.

A figure passes when the new median is worse than the old one by no more than the spread plus 3 %.
"""

import dataclasses
import pathlib
import statistics
from collections.abc import Callable, Sequence

ROUNDS = 10
MARGIN = 0.03


@dataclasses.dataclass(frozen=True)
class Figure:
    """One number that a benchmark measures."""

    name: str
    unit: str
    higher_is_better: bool


Sample = dict[Figure, float]
Measure = Callable[[pathlib.Path], Sample]  # takes a binary, measures it once


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
        """How much higher the new median is, as a share; negative when it is lower."""
        return self.new / self.old - 1

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


def turns(number: int) -> tuple[int, int, int]:
    """The order of a round: 0 and 1 are the old binary, 2 is the new one.

    Each is first in every third round.
    """
    start = number % 3
    return (start, (start + 1) % 3, (start + 2) % 3)


def run_rounds(measure: Measure, old: pathlib.Path, new: pathlib.Path, rounds: int) -> list[Verdict]:
    """Measures both binaries in so many rounds."""
    binaries = (old, old, new)
    taken: list[list[Sample]] = []
    for number in range(rounds):
        samples: dict[int, Sample] = {which: measure(binaries[which]) for which in turns(number)}
        taken.append([samples[which] for which in range(3)])
        print(f"  round {number + 1} of {rounds} is done", flush=True)
    return [
        Verdict(figure, [(first[figure], second[figure], latest[figure]) for first, second, latest in taken])
        for figure in taken[0][0]
    ]


def compare(title: str, measure: Measure, old: pathlib.Path, new: pathlib.Path, rounds: int) -> bool:
    """Measures, prints the report, and tells whether every figure passed."""
    print(f"\n{title}: {rounds} rounds of old, old, new\n  old: {old}\n  new: {new}", flush=True)
    verdicts = run_rounds(measure, old, new, rounds)
    print(f"\n{'medians':<28} {'old':>10} {'new':>10} {'':<8} {'new/old':>9} {'old/old':>9}")
    print(*(verdict.text() for verdict in verdicts), sep="\n", flush=True)
    return all(verdict.passed for verdict in verdicts)
