"""The words of a comparison and what each means."""

from __future__ import annotations

from vanidl.compare.comparison import MIN_CHANGE, MIN_RUNS
from vanidl.compare.statistics import ALPHA
from vanidl.formatting.units import percent
from vanidl.wording.glossary import TERMS as OF_A_RUN

TERMS: tuple[tuple[str, str], ...] = (
    (
        "Better, worse",
        "The metric changed in its good or bad direction, and by more than runs of the same "
        "thing differ. Bytes, requests and the like have no good direction: they are more or less.",
    ),
    (
        "No difference shown",
        "The runs differ by no more than repeats of the same thing do, or by less than "
        f"{percent(MIN_CHANGE)}. That does not prove that they are equal: the interval says how "
        "large a change may still hide.",
    ),
    (
        "No interval",
        "One run on each side gives no measure of how far the next run would be off. Repeat both, "
        "alternately: vanidl ab does it.",
    ),
    (
        "Not comparable",
        "Both sides recorded the quantity, but not alike; the notices under the headline say why.",
    ),
    (
        f"{percent(1 - ALPHA)} interval",
        "Of the ratio of B to A over repeats of the whole experiment, by Student's t on the "
        "logarithms of the pairs' ratios (Welch's t where runs are not paired). Steps of one run "
        "do not count as repeats.",
    ),
    (
        "Too few runs",
        f"With fewer than {MIN_RUNS} runs of each side even large changes mostly go unproved, so "
        "no verdict is given: what was seen is shown, with its interval.",
    ),
    (
        "Throughput",
        "Steps per second over the observed window: the question that is asked, where it was "
        "recorded; else the wall time of the command. The median step is beside it: few long waits "
        "leave the median alone.",
    ),
    (
        "Corrected",
        "The first metric is the question that was asked. All other verdicts are corrected for "
        "their number (Holm): together they call a difference that is not there in "
        f'{percent(ALPHA)} of comparisons. So "no difference shown" may stand beside an interval '
        "that excludes 0 %.",
    ),
    *OF_A_RUN,
)
