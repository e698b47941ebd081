"""How often a comparison sees a change that is there, and one that is not, by number of pairs.

    python -m benchmarks.vanidl.ab_simulated [--trials 400]

Runs are simulated from recorded step times (`tests/makers/simulated_runs.py`). "Seen" means
that the interval of the primary metric leaves out 1 and the change is at least 1 %, whatever the
number of pairs; `vanidl compare` gives a verdict from 3 pairs on.
"""

from __future__ import annotations

import argparse

from tests.makers import simulated_runs
from vanidl.compare.comparison import MIN_CHANGE
from vanidl.compare.statistics import ALPHA

PAIRS = (3, 5, 10)
SLOWDOWNS = (1.0, 1.05, 1.1, 1.3)


def seen(name: str, length: int, slowdown: float, pairs: int, trials: int) -> float:
    """Share of experiments in which the change was seen."""
    found = 0
    for seed in range(trials):
        change = simulated_runs.change(name, length, slowdown, seed, pairs)
        assert change.p is not None
        assert change.ratio is not None
        found += change.p <= ALPHA and abs(change.ratio - 1) >= MIN_CHANGE
    return found / trials


def main() -> None:
    """Prints the table of docs/statistics.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=400)
    trials = parser.parse_args().trials
    print("| recorded run, steps per run | pairs | " + " | ".join(
        "none there" if s == 1 else f"{s - 1:.0%} slower" for s in SLOWDOWNS) + " |")  # fmt: skip
    print("|---|---|" + "---|" * len(SLOWDOWNS))
    for name, length in simulated_runs.CASES:
        for pairs in PAIRS:
            shares = [seen(name, length, s, pairs, trials) for s in SLOWDOWNS]
            cells = " | ".join(f"{share:.1%}" for share in shares)
            print(f"| {name}, {length} | {pairs} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
