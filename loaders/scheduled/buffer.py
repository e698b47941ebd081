"""Samples in memory that is taken once and never grows."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.samples import SampleSet
from ..errors import UsageError

Memory = dict[str, NDArray[Any]]
"""Of each field, an array of (samples, *shape)."""


def require_memory(nbytes: int) -> None:
    """Raises UsageError where this host can never hold as much: it would end in mid-epoch."""
    held = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if nbytes > held:
        raise UsageError(
            f"expected buffers within the memory of this host, {held} bytes, found {nbytes} for "
            "a rank or node: lower --memory, --buffer, --buffer-fraction or --staging-bytes"
        )


def new_memory(samples: SampleSet, capacity: int) -> Memory:
    """Memory for so many samples.

    Raises:
        UsageError: This host has less.
    """
    require_memory(capacity * samples.sample_nbytes)
    return {each.name: np.empty((capacity, *each.shape), each.dtype) for each in samples.fields}


class Buffer:
    """At most `capacity` samples by id, each field's in one array of shape (capacity, *shape).

    The system hands out the pages of that memory when they are first written, so a buffer that
    stays empty costs nothing.

    Args:
        samples: What they are.
        capacity: Samples that fit.
        memory: For them; None: new.

    Attributes:
        capacity: Samples that fit.
        peak: Most samples held at once so far.
    """

    def __init__(self, samples: SampleSet, capacity: int, memory: Memory | None = None) -> None:
        self.capacity, self.peak = capacity, 0
        self._sample_nbytes = samples.sample_nbytes
        self._rows = memory or new_memory(samples, capacity)
        self._slots: dict[int, int] = {}
        self._free = list(range(capacity - 1, -1, -1))

    def __len__(self) -> int:
        """Samples held."""
        return len(self._slots)

    def __contains__(self, sample: int) -> bool:
        """True for an id that has a place here, filled or about to be."""
        return sample in self._slots

    @property
    def room(self) -> int:
        """Samples that still fit."""
        return len(self._free)

    @property
    def nbytes(self) -> int:
        """Bytes of the samples that fit."""
        return self.capacity * self._sample_nbytes

    def add(self, sample: int) -> None:
        """Gives a sample a place; `row` is where its arrays go. Room is the caller's business."""
        assert self._free, f"expected at most {self.capacity} samples, found one more"
        assert sample not in self._slots
        self._slots[sample] = self._free.pop()
        self.peak = max(self.peak, len(self._slots))
        self.check()

    def settle(self, samples: Iterable[int]) -> None:
        """They were read whole: nobody else has to know."""

    def discard(self, sample: int) -> None:
        """Takes the sample's place away, if it has one."""
        if sample in self._slots:
            self._free.append(self._slots.pop(sample))

    def clear(self) -> None:
        """Takes all places away."""
        for sample in list(self._slots):
            self.discard(sample)

    def row(self, name: str, sample: int) -> NDArray[Any]:
        """The array of one field of a sample, a view: written when read, valid till discarded."""
        view: NDArray[Any] = self._rows[name][self._slots[sample], ...]
        return view

    def absent(self, samples: Iterable[int]) -> list[int]:
        """Those that have no place here."""
        held = self._slots
        return [sample for sample in samples if sample not in held]

    def slots(self, samples: list[int]) -> list[int]:
        """The row of each; -1: it has no place here."""
        return list(map(self._slots.get, samples, repeat(-1)))

    def check(self) -> None:
        """Asserts the bound: called after every change and at every step."""
        assert len(self._slots) <= self.capacity
        assert len(self._slots) + len(self._free) == self.capacity
