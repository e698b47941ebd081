"""Batches: samples stacked field by field, in page-locked memory where asked for."""

from __future__ import annotations

from typing import cast

import torch
from torch.utils.data import default_collate

from ..data.readers import Arrays
from .loader import Batch


def collate(samples: list[Arrays]) -> Batch:
    """Samples stacked field by field."""
    return cast(Batch, default_collate(samples))


def pinned(batch: Batch) -> Batch:
    """The batch in page-locked memory, where there is a GPU to copy it to."""
    if not torch.cuda.is_available():
        return batch
    return {name: tensor.pin_memory() for name, tensor in batch.items()}
