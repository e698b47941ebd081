"""Sources of facts about data files, opened only when asked: they may be remote and huge.

Each reader takes a path and returns `FileFacts`; it raises InputError for a file that is not
what its name says, and UsageError where the library for its format is not installed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vanidl.dataset import hdf5, npy, parquet, tfrecord
from vanidl.errors import InputError
from vanidl.model.run_facts import FileFacts

FORMATS: dict[str, Callable[[Path], FileFacts]] = {
    ".h5": hdf5.read_facts,
    ".hdf5": hdf5.read_facts,
    ".he5": hdf5.read_facts,
    ".nc": hdf5.read_facts,
    ".tfrecord": tfrecord.read_facts,
    ".tfrecords": tfrecord.read_facts,
    ".npy": npy.read_npy_facts,
    ".npz": npy.read_npz_facts,
    ".parquet": parquet.read_facts,
}
"""Ending of a name, in lower case -> reader."""


_DAMAGE = (RuntimeError, KeyError, ValueError, TypeError)
"""What h5py and pyarrow raise on damaged files, beside OSError."""


def inspect_file(path: Path) -> FileFacts | None:
    """The facts of one file; None where no reader knows the ending of its name.

    Raises:
        InputError: the file cannot be read, or is not what its name says.
        UsageError: its format needs a library that is not installed.
    """
    reader = FORMATS.get(path.suffix.lower())
    if reader is None and "tfrecord" in path.name.lower():
        reader = tfrecord.read_facts
    if reader is None:
        return None
    try:
        return reader(path)
    except (OSError, *_DAMAGE) as error:
        raise InputError(
            f"{path}: expected a data file that can be opened, found: {error}. "
            "Leave --inspect out to do without."
        ) from error
