"""What if: the run's own batches replayed with changed input."""

from vanidl.whatif.bounds import bounded, bounded_row, least_ratio
from vanidl.whatif.change import EVERY_WORKER, Change, Predicted, WhatIf
from vanidl.whatif.loader_calls import LoaderCall, loader_call
from vanidl.whatif.scenarios import predict, what_if

__all__ = [
    "EVERY_WORKER",
    "Change",
    "LoaderCall",
    "Predicted",
    "WhatIf",
    "bounded",
    "bounded_row",
    "least_ratio",
    "loader_call",
    "predict",
    "what_if",
]
