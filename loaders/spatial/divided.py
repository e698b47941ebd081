"""Which arrays of a sample a grid divides, and along which of their axes."""

from __future__ import annotations

from functools import partial

from ..data.samples import Field, Place, SampleSet
from ..errors import UsageError
from .grid import Division
from .reading import Array


def arrays_of(
    samples: SampleSet, division: Division, divide: tuple[str, ...] | None = None
) -> list[Array]:
    """The arrays of a set of samples, with how each is divided.

    Args:
        samples: In HDF5 files.
        division: Of the largest field.
        divide: Names of the fields to divide; None: the largest, and those of its shape. One
            with fewer axes (labels of a volume without its channels) is divided along those that
            it shares with the largest field.

    Raises:
        UsageError: Samples are images, no such field, or a field that the grid cannot divide.
    """
    if samples.layout == "images":
        raise UsageError("expected samples in HDF5 files, found images: choose another loader")
    largest = max(samples.fields, key=lambda each: each.nbytes)
    names = divide or [each.name for each in samples.fields if each.shape == largest.shape]
    unknown = set(names) - {each.name for each in samples.fields}
    if unknown:
        known = ", ".join(each.name for each in samples.fields)
        raise UsageError(f"expected fields among {known}, found {', '.join(sorted(unknown))}")
    found = []
    for field in samples.fields:
        own = _division(field, largest, division) if field.name in names else None
        found.append(Array(field, own, partial(_place, samples, field)))
        found[-1].window(0)  # raises where the grid does not fit
    return found


def _place(samples: SampleSet, field: Field, sample: int) -> Place:
    return samples.place(sample, field)


def _division(field: Field, largest: Field, division: Division) -> Division:
    """The division of a field whose axes are some consecutive axes of the largest one."""
    if field.shape == largest.shape:
        return division
    axes, wanted = len(field.shape), len(largest.shape)
    fitting = [
        first
        for first in range(wanted - axes + 1)
        if largest.shape[first : first + axes] == field.shape
        and all(n == 1 for n in (*division.grid[:first], *division.grid[first + axes :]))
    ]
    if len(fitting) != 1:
        raise UsageError(
            f"expected a field with the divided axes of {largest.name} {largest.shape} under the "
            f"grid {division.grid}, found {field.name} {field.shape}: leave it whole"
        )
    kept = slice(fitting[0], fitting[0] + axes)
    return Division(division.grid[kept], division.widths[kept], division.edges)
