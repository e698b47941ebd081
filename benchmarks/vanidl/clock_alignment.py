"""How often the true offset of a clock lies inside the interval that vanidl gives.

    python -m benchmarks.vanidl.clock_alignment [DRAWS]

Synthetic training runs with known offsets (tests/makers/clock_cases.py), 1,000 a case. Counted are
the profiles that were aligned; those without usable evidence say so. Limits: the truth inside in 93
% of them, and the median half-width of the interval at most 5 times the median error. The last
line is of workers' logs, each late by its own: the truth inside in 99 % of them, and the mean
error at most half of that of the times as logged.
"""

from __future__ import annotations

import sys

import numpy as np

from benchmarks.measure import processor_s
from tests.makers.clock_cases import CASES, log_outcomes, one, outcomes, with_workers

INSIDE, RATIO = 0.93, 5.0
LOGS_INSIDE = 0.99
LATE = one(with_workers, hidden=False)


def main(draws: int) -> int:
    """Prints a line a case; 1 where a limit is not kept."""
    failed = 0
    print(f"{'case':26} draws aligned inside  half-width   error  ratio  s")
    for case in CASES:
        before = processor_s()
        every = outcomes(case, draws)
        spent = processor_s() - before
        known = [o for o in every if o is not None]
        inside = sum(o.inside for o in known) / max(len(known), 1)
        half = float(np.median([o.half_ns for o in known])) / 1e6
        error = float(np.median([o.error_ns for o in known])) / 1e6
        print(
            f"{case:26} {len(every):5} {len(known):7} {inside:6.1%} {half:8.3f} ms "
            f"{error:6.3f} {half / error:6.2f} {spent:4.0f}"
        )
        failed |= inside < INSIDE or half > RATIO * error
    return int(failed or not _logs(draws))


def _logs(draws: int) -> bool:
    """Prints the line of the workers' logs; whether its limits are kept."""
    before, found, late = processor_s(), [], []
    for number in range(draws):
        draw = LATE(np.random.default_rng([0, number]))
        found += log_outcomes(draw)
        late += [
            abs(ns) for path, ns in draw.of_logs_ns.items() if ns and path != draw.logs[0].path
        ]
    inside = sum(o.inside for o in found) / len(found)
    error, as_logged = float(np.mean([o.error_ns for o in found])), float(np.mean(late))
    print(
        f"{'late logs of workers':26} {len(found):5} {len(found):7} {inside:6.1%} "
        f"{float(np.median([o.half_ns for o in found])) / 1e6:8.3f} ms {error / 1e6:6.3f} mean, "
        f"{as_logged / 1e6:.3f} as logged {processor_s() - before:4.0f}"
    )
    return inside >= LOGS_INSIDE and error <= 0.5 * as_logged


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
