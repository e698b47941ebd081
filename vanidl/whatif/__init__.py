"""What if: the run's own batches replayed with changed input."""

from vanidl.whatif.bounds import bounded, bounded_row, least_ratio
from vanidl.whatif.change import Change, Predicted, WhatIf
from vanidl.whatif.scenarios import predict, what_if

__all__ = [
    "Change",
    "Predicted",
    "WhatIf",
    "bounded",
    "bounded_row",
    "least_ratio",
    "predict",
    "what_if",
]
