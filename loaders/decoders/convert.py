"""Samples in files, by suffix: .npy, .h5 (.hdf5), .tfrecord (.tfrecord.gz).

An array of a TFRecord is a feature of its name with the raw bytes, little-endian, and beside it
the features NAME/shape and NAME/dtype. Where those are missing, as in CosmoFlow's own files, the
caller says shape and type, or a feature of 2 * 4 * n^3 bytes is taken for int16 counts
(n, n, n, 4). One-dimensional float32 and int64 arrays are lists of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.whole import written_whole
from ..errors import InputError, UsageError
from .coding import ARRAY
from .container import Spec
from .proto import Feature, example, parse_example
from .tfrecord import read_records, write_records

Arrays = dict[str, NDArray[Any]]
REDSHIFTS = 4


@dataclass(frozen=True)
class Format:
    """How the samples of a file are read and written.

    Attributes:
        read: The samples of a file; the Spec is for raw bytes that do not say what they are.
        write: Writes one sample.
    """

    read: Callable[[Path, Spec | None], Iterator[Arrays]]
    write: Callable[[Path, Arrays], None]


def read_samples(path: str | Path, raw: Spec | None = None) -> Iterator[Arrays]:
    """The samples of a file: one in .npy and .h5, one a record in .tfrecord.

    Args:
        path: The file.
        raw: Shape and type of byte features that do not say them.

    Raises:
        InputError: Not there, damaged, or bytes of unknown shape.
        UsageError: A suffix that is not known.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"expected a file {path}, found none: name one that is there")
    return find_format(path).read(path, raw)


def read_sample(path: str | Path, raw: Spec | None = None) -> Arrays:
    """The only sample of a file.

    Raises:
        InputError: No sample or several; and see `read_samples`.
    """
    samples = read_samples(path, raw)
    first, second = next(samples, None), next(samples, None)
    if first is None or second is not None:
        raise InputError(
            f"expected one sample in {path}, found {'none' if first is None else 'several'}: "
            "name a folder as output for several"
        )
    return first


def write_sample(path: str | Path, arrays: Arrays) -> None:
    """Writes one sample, whole or not at all.

    Raises:
        UsageError: A suffix that is not known, or several arrays for .npy.
    """
    path = Path(path)
    with written_whole(path) as part:
        find_format(path).write(part, arrays)


def find_format(path: Path) -> Format:
    """The format by the file's suffix; .gz behind it is looked through.

    Raises:
        UsageError: A suffix that is not known.
    """
    suffix = path.suffixes[-2] if path.suffix == ".gz" and path.suffixes[1:] else path.suffix
    if suffix not in FORMATS:
        known = ", ".join(FORMATS)
        raise UsageError(f"expected a suffix among {known}, found {path.name}: rename it")
    return FORMATS[suffix]


def _read_npy(path: Path, _raw: Spec | None) -> Iterator[Arrays]:
    try:
        yield {ARRAY: np.load(path, allow_pickle=False)}
    except (ValueError, EOFError, OSError) as error:
        raise InputError(f"expected an array in {path}, found: {error}") from error


def _write_npy(path: Path, arrays: Arrays) -> None:
    if len(arrays) != 1:
        raise UsageError(
            f"expected one array for .npy, found {', '.join(arrays) or 'none'}: choose one with "
            "--array, or another suffix"
        )
    with path.open("wb") as file:
        np.save(file, next(iter(arrays.values())))


def _read_h5(path: Path, _raw: Spec | None) -> Iterator[Arrays]:
    import h5py

    arrays: Arrays = {}

    def keep(name: str, item: h5py.HLObject) -> None:
        if isinstance(item, h5py.Dataset) and item.dtype.kind in "biuf":
            arrays[name] = item[()]

    try:
        with h5py.File(path, "r") as file:
            file.visititems(keep)
    except OSError as error:
        raise InputError(f"expected an HDF5 file {path}, found: {error}") from error
    if not arrays:
        raise InputError(f"expected datasets of numbers in {path}, found none")
    yield {name: np.asarray(array) for name, array in arrays.items()}


def _write_h5(path: Path, arrays: Arrays) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, track_times=False)


def _read_tfrecord(path: Path, raw: Spec | None) -> Iterator[Arrays]:
    for record in read_records(path):
        features = parse_example(record)
        notes = {f"{name}/{note}" for name in features for note in ("shape", "dtype")}
        yield {name: _array(path, name, features, raw) for name in features if name not in notes}


def _write_tfrecord(path: Path, arrays: Arrays) -> None:
    features: dict[str, Feature] = {}
    for name, array in arrays.items():
        if array.ndim == 1 and array.dtype in (np.float32, np.int64):
            features[name] = array
            continue
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        features[name] = little.tobytes()
        features[f"{name}/shape"] = np.array(array.shape, np.int64)
        features[f"{name}/dtype"] = little.dtype.str.encode()
    write_records(path, [example(features)])


def _array(path: Path, name: str, features: dict[str, Feature], raw: Spec | None) -> NDArray[Any]:
    content = features[name]
    if not isinstance(content, bytes):
        return content
    shape, kind = features.get(f"{name}/shape"), features.get(f"{name}/dtype")
    if isinstance(shape, np.ndarray) and isinstance(kind, bytes):
        spec: Spec | None = _noted(path, shape, kind)
    else:
        spec = raw or _cube(len(content))
    if spec is None or spec.nbytes != len(content):
        raise InputError(
            f"expected bytes of a known shape for {name} in {path}, found {len(content)} and "
            f"{spec}: give --shape and --dtype"
        )
    return np.frombuffer(content, spec.dtype).reshape(spec.shape)


def _noted(path: Path, shape: NDArray[Any], kind: bytes) -> Spec:
    try:
        dtype = np.dtype(kind.decode())
    except (TypeError, UnicodeDecodeError) as error:
        raise InputError(f"expected a NumPy type in {path}, found {kind!r}") from error
    lengths = tuple(int(length) for length in shape)
    if dtype.kind not in "biuf" or min(lengths, default=0) < 0:
        raise InputError(f"expected a shape of numbers in {path}, found {lengths} of {dtype}")
    return Spec(lengths, dtype.str)


def _cube(nbytes: int) -> Spec | None:
    side = round((nbytes / (2 * REDSHIFTS)) ** (1 / 3))
    spec = Spec((side, side, side, REDSHIFTS), "<i2")
    return spec if nbytes and spec.nbytes == nbytes else None


FORMATS: dict[str, Format] = {
    ".npy": Format(_read_npy, _write_npy),
    ".h5": Format(_read_h5, _write_h5),
    ".hdf5": Format(_read_h5, _write_h5),
    ".tfrecord": Format(_read_tfrecord, _write_tfrecord),
}
"""Suffix -> how such files are read and written."""
