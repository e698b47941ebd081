"""What training takes with batches from memory, as `vanidl ceiling` measured it beside a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Steps of a run and the same steps of a run whose batches came from memory, in seconds.

    `steps` of each of `ranks` are compared: those whose batches came from memory, which are the
    ones after the warm-up, with those of equal number. Means are over steps and ranks, medians
    too. `copying_s` is what each of these steps took to copy its batches, a part of `free_s`.

    `cost` is the share of the steps' wall time that input costs, 1 - free_s / step_s. With
    98 % confidence, for this pair of runs, it is in [`low`, `high`]; `high` counts the copying
    as input, as far as it was not hidden it is. `pairs` is 1, or how many pairs of runs the
    interval is of.
    """

    ranks: int
    steps: int
    step_s: float
    free_s: float
    median_step_s: float
    median_free_s: float
    copying_s: float
    cost: float
    low: float
    high: float
    replayed: int  # loaders, over all ranks
    kept: int  # batches of these, over all ranks
    kept_nbytes: int
    pairs: int = 1
    remarks: tuple[str, ...] = ()  # loaders that stayed real, and why

    @property
    def shortest_s(self) -> float:
        """The mean step that no faster input goes below, as far as was measured."""
        return self.step_s * (1 - self.high)
