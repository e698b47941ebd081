"""Over many synthetic runs the truth lies inside the interval; the full count is a benchmark."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings

from tests.makers.clock_cases import CASES, outcomes

DRAWS = 20 if settings.default.derandomize else 100  # the latter in `make fuzz`


@pytest.mark.parametrize("case", CASES)
def test_the_truth_lies_inside_and_the_interval_is_not_idle(case):
    every = outcomes(case, DRAWS, seed=1)
    known = [o for o in every if o is not None]
    assert len(known) >= 0.6 * len(every)
    assert sum(o.inside for o in known) >= 0.93 * len(known)
    assert all(o.error_ns <= o.uncertainty_ns for o in known if o.inside)
    half = np.median([o.half_ns for o in known])
    assert half <= 5 * np.median([o.error_ns for o in known])
