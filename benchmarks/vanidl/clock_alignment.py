"""How often the true offset of a clock lies inside the interval that vanidl gives.

    python -m benchmarks.vanidl.clock_alignment [DRAWS]

Synthetic training runs with known offsets (tests/makers/clock_cases.py), 1,000 a case. Counted are
the profiles that were aligned; those without usable evidence say so. Limits: the truth inside in 93
% of them, and the median half-width of the interval at most 5 times the median error.
"""

from __future__ import annotations

import sys

import numpy as np

from benchmarks.measure import processor_s
from tests.makers.clock_cases import CASES, outcomes

INSIDE, RATIO = 0.93, 5.0


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
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
