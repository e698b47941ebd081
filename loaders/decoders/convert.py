"""Samples in files, by suffix: .npy, .h5 (.hdf5), .tfrecord (.tfrecord.gz).

A TFRecord file is a row of records {length uint64, masked CRC-32C of these 8 bytes, data, masked
CRC-32C of the data}, little-endian; masked: rotated right by 15 bits, plus 0xA282EAD8. A name
ending in .gz is the same inside gzip. Format: TensorFlow's documentation of TFRecord; CRC-32C: RFC
3720, B.4. A record is a tf.train.Example, read and written without protobuf:

    Example {1: Features {1: repeated {1: name, 2: Feature}}}
    Feature {1: BytesList {1: bytes} | 2: FloatList {1: float32} | 3: Int64List {1: int64}}

Lists of numbers are read packed or not, and written packed. An array is a feature of its name with
the raw bytes, little-endian, and beside it the features NAME/shape and NAME/dtype. Where those are
missing, as in CosmoFlow's own files, the caller says shape and type, or a feature of 2 * 4 * n^3
bytes is taken for int16 counts (n, n, n, 4). One-dimensional float32 and int64 arrays are lists of
numbers.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from ..data.pread import written_whole
from ..errors import InputError, UsageError
from .coding import ARRAY
from .container import Spec

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
    # The second is asked for, too: a file of several would lose all but one.
    only, another = next(samples, None), next(samples, None)
    if only is None or another is not None:
        raise InputError(
            f"expected one sample in {path}, found {'none' if only is None else 'several'}: "
            "name a folder as output for several"
        )
    return only


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
    # A compressed TFRecord has its own suffix in front of .gz.
    suffix = path.suffixes[-2] if path.suffix == ".gz" and path.suffixes[1:] else path.suffix
    if suffix not in FORMATS:
        suffixes = ", ".join(FORMATS)
        raise UsageError(f"expected a suffix among {suffixes}, found {path.name}: rename it")
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

    # Groups may lie within groups; texts and references are no arrays.
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
        # Shape and type that were written beside an array are no arrays themselves.
        notes = {f"{name}/{note}" for name in features for note in ("shape", "dtype")}
        yield {
            name: _restore_array(path, name, features, raw)
            for name in features
            if name not in notes
        }


def _write_tfrecord(path: Path, arrays: Arrays) -> None:
    features: dict[str, Feature] = {}
    for name, array in arrays.items():
        if array.ndim == 1 and array.dtype in (np.float32, np.int64):
            features[name] = array
            continue
        # TFRecord knows lists of float32 and int64 only: all else is bytes, with shape and type
        # beside.
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        features[name] = little.tobytes()
        features[f"{name}/shape"] = np.array(array.shape, np.int64)
        features[f"{name}/dtype"] = little.dtype.str.encode()
    write_records(path, [make_example(features)])


def _restore_array(
    path: Path, name: str, features: dict[str, Feature], raw: Spec | None
) -> NDArray[Any]:
    """The array that a feature and the notes beside it hold."""
    content = features[name]
    if not isinstance(content, bytes):
        return content
    # Bytes need a shape and a type: noted beside them, told by the caller, or guessed.
    shape, kind = features.get(f"{name}/shape"), features.get(f"{name}/dtype")
    if isinstance(shape, np.ndarray) and isinstance(kind, bytes):
        try:
            dtype = np.dtype(kind.decode())
        except (TypeError, UnicodeDecodeError) as error:
            raise InputError(f"expected a NumPy type in {path}, found {kind!r}") from error
        lengths = tuple(int(length) for length in shape)
        if dtype.kind not in "biuf" or min(lengths, default=0) < 0:
            raise InputError(f"expected a shape of numbers in {path}, found {lengths} of {dtype}")
        spec: Spec | None = Spec(lengths, dtype.str)
    elif raw is not None:
        spec = raw
    else:
        # CosmoFlow's own files: a cube of counts.
        side = round((len(content) / (2 * REDSHIFTS)) ** (1 / 3))
        spec = Spec((side, side, side, REDSHIFTS), "<i2") if content else None
    if spec is None or spec.nbytes != len(content):
        raise InputError(
            f"expected bytes of a known shape for {name} in {path}, found {len(content)} and "
            f"{spec}: give --shape and --dtype"
        )
    return np.frombuffer(content, spec.dtype).reshape(spec.shape)


FORMATS: dict[str, Format] = {
    ".npy": Format(_read_npy, _write_npy),
    ".h5": Format(_read_h5, _write_h5),
    ".hdf5": Format(_read_h5, _write_h5),
    ".tfrecord": Format(_read_tfrecord, _write_tfrecord),
}
"""Suffix -> how such files are read and written."""


Feature = bytes | NDArray[np.float32] | NDArray[np.int64]
"""One byte string, or a list of numbers."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def make_example(features: Mapping[str, Feature]) -> bytes:
    """The serialised Example."""
    # Example.features (1) is a map, feature (1): entries of key (1) and value (2), as in
    # example.proto.
    entries = (
        _pack_field(1, _pack_field(1, name.encode()) + _pack_field(2, _pack_feature(feature)))
        for name, feature in features.items()
    )
    return _pack_field(1, b"".join(entries))


def parse_example(data: bytes) -> dict[str, Feature]:
    """The features of a serialised Example; of several byte strings in one, the first.

    Raises:
        InputError: No Example.
    """
    parsed = {}
    # The map's entries: key (1) and value (2), either of which may be left out when it is empty.
    for features in _select_fields(data, 1):
        for entry in _select_fields(features, 1):
            (name, *_), (feature, *_) = (
                (*_select_fields(entry, 1), b""),
                (*_select_fields(entry, 2), b""),
            )
            try:
                parsed[name.decode()] = _parse_feature(feature)
            except UnicodeDecodeError as error:
                raise InputError(f"expected a feature's name in UTF-8, found {name!r}") from error
    return parsed


def _pack_feature(feature: Feature) -> bytes:
    # feature.proto: bytes_list = 1, float_list = 2, int64_list = 3, the values field 1 of each.
    if isinstance(feature, bytes):
        return _pack_field(1, _pack_field(1, feature))
    if feature.dtype.kind == "f":
        return _pack_field(2, _pack_field(1, feature.astype("<f4").tobytes()))
    return _pack_field(
        3, _pack_field(1, b"".join(_pack_varint(int(n) & (1 << 64) - 1) for n in feature))
    )


def _parse_feature(feature: bytes) -> Feature:
    # The number of the field tells the kind of values, see `_pack_feature`.
    for number, kind, value in _iterate_fields(feature):
        if kind == _BYTES and number == 1:
            return next(_select_fields(value, 1), b"")
        if kind == _BYTES and number == 2:
            # Packed and single floats, in order.
            floats = b"".join(content for n, _, content in _iterate_fields(value) if n == 1)
            if len(floats) % 4:
                raise InputError(
                    f"expected floats of 4 bytes, found {len(floats)} bytes: fetch it again"
                )
            return np.frombuffer(floats, "<f4")
        if kind == _BYTES and number == 3:
            return np.array(list(_iterate_integers(value)), np.uint64).astype(np.int64)
    return b""


def _iterate_integers(values: bytes) -> Iterator[int]:
    for number, kind, value in _iterate_fields(values):
        # A list of integers comes packed in one field, or each in a field of its own.
        at = 0
        while number == 1 and kind in (_BYTES, _VARINT) and at < len(value):
            integer, at = _read_varint(value, at)
            yield integer


def _select_fields(data: bytes, number: int) -> Iterator[bytes]:
    """The contents of the length-delimited fields of a number."""
    return (value for n, kind, value in _iterate_fields(data) if n == number and kind == _BYTES)


def _iterate_fields(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Number, wire type and bytes of each field of a message."""
    at = 0
    while at < len(data):
        # A tag has the field's number above three bits of wire type (protobuf, "Encoding").
        tag, at = _read_varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            end = _read_varint(data, at)[1]
        elif kind == _BYTES:
            length, at = _read_varint(data, at)
            end = at + length
        elif kind in (_FIXED32, _FIXED64):
            end = at + (4 if kind == _FIXED32 else 8)
        else:
            raise InputError(f"expected a tf.train.Example, found wire type {kind}: no TFRecord?")
        # A length is of no use before the message was seen to be that long.
        if end > len(data):
            raise InputError(f"expected {end} bytes of a message, found {len(data)}: it was cut")
        yield number, kind, data[at:end]
        at = end


def _pack_field(number: int, content: bytes) -> bytes:
    return _pack_varint(number << 3 | _BYTES) + _pack_varint(len(content)) + content


def _pack_varint(value: int) -> bytes:
    encoded = bytearray()
    # Seven bits a byte, the lowest first; the highest bit says that more follow.
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        # Seven bits a byte, the lowest first; the eighth says that more follow.
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value & (1 << 64) - 1, at
    raise InputError("expected an integer of up to 10 bytes, found more or none: no TFRecord?")


_LENGTH, _CRC = struct.Struct("<Q"), struct.Struct("<I")


def write_records(path: str | Path, records: Iterable[bytes]) -> None:
    """Writes the records, replacing the file."""
    with _open_records(Path(path), "wb") as file:
        for record in records:
            # A record: its length, the length's CRC, the bytes, their CRC (TensorFlow,
            # record_writer.cc).
            length = _LENGTH.pack(len(record))
            file.write(length + _CRC.pack(_mask_crc(length)))
            file.write(record)
            file.write(_CRC.pack(_mask_crc(record)))


def read_records(path: str | Path) -> Iterator[bytes]:
    """The records of a file, in order.

    Raises:
        InputError: The file is cut, or a CRC does not match.
    """
    path = Path(path)
    with _open_records(path, "rb") as file:
        while head := _read_bytes(path, file, _LENGTH.size + _CRC.size, may_end=True):
            # The length is checked before it is believed.
            length = head[: _LENGTH.size]
            _check_crc(path, length, head[_LENGTH.size :])
            record = _read_bytes(path, file, _LENGTH.unpack(length)[0])
            _check_crc(path, record, _read_bytes(path, file, _CRC.size))
            yield record


def _mask_crc(data: bytes) -> int:
    # Rotated and shifted, as TensorFlow masks a CRC that lies in what CRCs are made of (crc32c.h).
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _check_crc(path: Path, data: bytes, crc: bytes) -> None:
    if _CRC.unpack(crc)[0] != _mask_crc(data):
        raise InputError(f"expected a matching CRC-32C in {path}, found another: fetch it again")


def _read_bytes(path: Path, file: IO[bytes], nbytes: int, *, may_end: bool = False) -> bytes:
    try:
        data = file.read(nbytes)
    except (EOFError, OSError, OverflowError, zlib.error) as error:
        raise InputError(f"expected a whole {path}, found: {error}; fetch it again") from error
    if len(data) < nbytes and not (may_end and not data):
        raise InputError(f"expected {nbytes} bytes more in {path}, found {len(data)}: it was cut")
    return data


def _open_records(path: Path, mode: str) -> IO[bytes]:
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path, mode))
    return cast(IO[bytes], path.open(mode))
