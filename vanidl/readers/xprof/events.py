"""Events of a TensorFlow or JAX profile as its readers hand them on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl.readers.xprof.span_kinds import Label

Int64Array = NDArray[np.int64]

NO_STEP = -1


@dataclass(frozen=True, slots=True)
class SessionEvents:
    """Events in any order: one entry per event in every array.

    `label` is an index into `labels`, `step` the number that an event carries, else NO_STEP.
    Times count from the start of the profile, or from the epoch.
    """

    start_ns: Int64Array
    end_ns: Int64Array
    label: Int64Array
    step: Int64Array
    labels: tuple[Label, ...]

    def pick(self, rows: NDArray[np.bool_]) -> SessionEvents:
        """The events that a mask picks."""
        columns = (self.start_ns[rows], self.end_ns[rows], self.label[rows], self.step[rows])
        return SessionEvents(*columns, self.labels)
