"""Which layer made an event: by its `type`, which newer traces have, else by its category.

A category is free text: a program may call its own regions "POSIX". Where there is a type it
decides, and such regions are kept apart.
"""

from __future__ import annotations

from vanidl.readers.dftracer.lines import ABSENT, Event, integer

MPI = "MPI"
MPI_IO = "MPI-IO"
HDF5 = "HDF5"
GPU = "GPU"

ABOVE = (MPI_IO, HDF5)
"""Layers whose bytes go through POSIX."""

_LIBC_IO = 3
_OF_TYPE = {4: GPU, 5: HDF5, 10: MPI, 11: GPU, 14: GPU}
_OF_CATEGORY = {"MPIIO": MPI_IO, "MPI": MPI, "HDF5": HDF5}
_RESERVED = frozenset({"POSIX", "STDIO", MPI, MPI_IO, HDF5, GPU, "MPIIO"})
_REGION = "region "


def category(event: Event) -> str:
    """POSIX, STDIO, a layer of this module, or the category that the program gave."""
    named = str(event.get("cat"))
    kind = integer(event.get("type"))
    if kind in _OF_TYPE:
        return MPI_IO if kind == 10 and named == "MPIIO" else _OF_TYPE[kind]
    if kind == ABSENT:
        return _OF_CATEGORY.get(named, named)
    return _REGION + named if kind != _LIBC_IO and named in _RESERVED else named
