"""Did the change help? Sides of runs in, changes with intervals and plain verdicts out."""

from vanidl.compare.comparison import Change, Comparison, Pairing, compare
from vanidl.compare.metrics import METRICS, Metric
from vanidl.compare.sides import Sample, Side

__all__ = [
    "METRICS",
    "Change",
    "Comparison",
    "Metric",
    "Pairing",
    "Sample",
    "Side",
    "compare",
]
