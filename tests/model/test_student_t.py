"""Student's t against SciPy, whole and broken degrees of freedom, near and far tails."""

from __future__ import annotations

import math

import pytest

from vanidl.model.student_t import t_above, t_tail

special = pytest.importorskip("scipy.special", reason="SciPy is the oracle")
FREEDOMS = (1, 1.3, 2, 2.71, 5, 9.99, 30, 200.5, 1e4, 1e6)


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_tails(freedom):
    for t in (-40.0, -3.0, -0.1, 0.0, 1e-6, 0.5, 1.0, 2.3, 7.0, 60.0, 1e4):
        assert t_tail(t, freedom) == pytest.approx(special.stdtr(freedom, -t), rel=1e-8, abs=1e-300)


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_the_value_above_which_a_tail_lies(freedom):
    for tail in (0.4999, 0.25, 0.05, 0.01, 0.005, 1e-4, 1e-9):
        expected = -special.stdtrit(freedom, tail)
        assert t_above(tail, freedom) == pytest.approx(expected, rel=1e-8)
        assert math.isclose(t_tail(t_above(tail, freedom), freedom), tail, rel_tol=1e-9)


def test_half_lies_above_zero():
    assert t_above(0.5, 3) == pytest.approx(0, abs=1e-12)
