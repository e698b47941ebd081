"""What if: the run's own batches replayed with changed input."""

from vanidl.whatif.change import Change, Predicted, WhatIf
from vanidl.whatif.scenarios import predict, what_if

__all__ = ["Change", "Predicted", "WhatIf", "predict", "what_if"]
