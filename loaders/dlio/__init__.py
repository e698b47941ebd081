"""Loaders of this package under the DLIO benchmark, the engine of MLPerf Storage.

    benchmark    DLIO's base class and its spans; what stands in where DLIO is not installed
    samples      DLIO's files as samples: what lies where, and reading it
    plugin       the classes that `reader.data_loader_classname` and `reader.reader_classname` name

The classes can be imported without DLIO; making one then says what to install.
"""

from .plugin import (
    DecodedDataLoader,
    OwnFilesReader,
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
