"""Predictions held against the measured ceiling: no change of the input gains more."""

from __future__ import annotations

from dataclasses import replace

from vanidl.model.ceiling import Ceiling
from vanidl.whatif.change import NO_GAIN, Predicted, WhatIf


def bounded(found: WhatIf | None, ceiling: Ceiling | None) -> WhatIf | None:
    """The predictions, those that go below the ceiling's step at that, or gone if it gains nothing.

    What was measured with batches from memory holds for the steps after the warm-up; the bound
    is the same share of the mean step here.
    """
    if found is None or ceiling is None or found.replayed_s is None:
        return found
    rows = [bounded_row(row, ceiling) for row in found.rows]
    beyond = tuple(row.name for row in rows if row.replayed_s is not None)
    return replace(
        found, rows=tuple(row for row in rows if row.gain_at_most_s > 0), beyond_ceiling=beyond
    )


def bounded_row(row: Predicted, ceiling: Ceiling | None) -> Predicted:
    """One prediction, at the ceiling where it is below; `replayed_s` then says what it was."""
    least = least_ratio(ceiling)
    if row.ratio >= least or row.ratio <= 0:
        return row
    now_s = row.step_s / row.ratio
    saved = 1 - least
    gain = row.gain_at_most_s * saved / (1 - row.ratio) if saved >= NO_GAIN else 0.0
    return replace(
        row, step_s=now_s * least, ratio=least, gain_at_most_s=gain, replayed_s=row.step_s
    )


def least_ratio(ceiling: Ceiling | None) -> float:
    """The smallest share of the mean step that a change of the input can leave of it."""
    return 0.0 if ceiling is None else min(1 - ceiling.high, 1.0)
