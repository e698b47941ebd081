"""Loaders of this package under the DLIO benchmark, the engine of MLPerf Storage.

    benchmark    DLIO's base class and its spans; what stands in where DLIO is not installed
    samples      DLIO's files as samples: what lies where
    files        reading a sample that is a file: HDF5, NPY, NPZ, JPEG, PNG
    descriptors  files that tracers tell apart
    options      the loader's own options, from the environment
    ending       a rank that fails ends all
    containers   encoded files, for `decoded`
    plugin       the classes that `reader.data_loader_classname` names
    own_files    the class that `reader.reader_classname` names: a real training's files

The classes can be imported without DLIO; making one then says what to install.
"""

from .own_files import OwnFilesReader
from .plugin import (
    DecodedDataLoader,
    PartialLocalDataLoader,
    ScheduledDataLoader,
    SpatialDataLoader,
)

__all__ = [
    "DecodedDataLoader",
    "OwnFilesReader",
    "PartialLocalDataLoader",
    "ScheduledDataLoader",
    "SpatialDataLoader",
]
