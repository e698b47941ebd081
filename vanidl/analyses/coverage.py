from __future__ import annotations
from dataclasses import dataclass
from vanidl.trace import Notice


@dataclass(frozen=True, slots=True)
class LayerCoverage:
    """How much of one layer was traced operation by operation."""

    layer: str
    counted_ops: int | None  # READS + WRITES of the counters
    traced_ops: int
    traced_fraction: float | None
    partial: bool
    last_traced_s: float | None  # since the start of the job


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the numbers rest on, and what they miss."""

    complete: bool
    layers: tuple[LayerCoverage, ...]
    warnings: tuple[Notice, ...]
