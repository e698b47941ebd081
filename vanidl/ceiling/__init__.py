"""The ceiling of a run: what its steps take with batches from memory, against what they took."""

from vanidl.ceiling.measure import measure

__all__ = ["measure"]
