from __future__ import annotations

import struct
from contextlib import suppress

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("numba", reason="numba is not installed")
pytest.importorskip("h5py", reason="h5py is not installed")

from hypothesis import given
from hypothesis import strategies as st

from tests.makers.event_files import crc32c
from vanidl_loaders.decoders.container import Spec
from vanidl_loaders.decoders.convert import (
    FORMATS,
    make_example,
    parse_example,
    read_records,
    read_sample,
    read_samples,
    write_records,
    write_sample,
)
from vanidl_loaders.errors import InputError, UsageError

ARRAYS = {
    "x": np.arange(2 * 3 * 4, dtype=np.int16).reshape(2, 3, 4),
    "y": np.array([1.5, -2.0, np.inf], np.float32),
    "ids": np.array([-(2**63), -1, 0, 2**63 - 1]),
    "mask": np.array([[True, False]]),
    "wide": np.array([[np.pi]]),
}


@given(st.lists(st.binary(max_size=50), max_size=4))
def test_records_come_back(tmp_path_factory, records):
    for name in ("r.tfrecord", "r.tfrecord.gz"):
        path = tmp_path_factory.getbasetemp() / name
        write_records(path, records)
        assert list(read_records(path)) == records


def test_a_record_is_framed_as_documented(tmp_path):
    write_records(tmp_path / "r.tfrecord", [b"abc"])
    content = (tmp_path / "r.tfrecord").read_bytes()
    length = struct.pack("<Q", 3)

    def masked(data):
        crc = crc32c(data)
        return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)

    assert content == length + masked(length) + b"abc" + masked(b"abc")


@pytest.mark.parametrize("suffix", ["tfrecord", "tfrecord.gz"])
def test_a_cut_or_damaged_record_raises(tmp_path, suffix):
    path = tmp_path / f"r.{suffix}"
    write_records(path, [b"abcdefgh" * 5])
    content = path.read_bytes()
    for length in range(1, len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(InputError, match="expected"):
            list(read_records(path))
    for at in range(len(content) if suffix == "tfrecord" else 0):
        damaged = bytearray(content)
        damaged[at] ^= 4
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="expected"):
            list(read_records(path))


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.binary(max_size=20)
        | st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4).map(np.array)
        | st.lists(st.floats(width=32), min_size=1, max_size=4).map(
            lambda values: np.array(values, np.float32)
        ),
        max_size=4,
    )
)
def test_an_example_comes_back(features):
    found = parse_example(make_example(features))
    assert list(found) == list(features)
    for name, feature in features.items():
        assert np.array_equal(
            np.asarray(found[name]), np.asarray(feature), equal_nan=not isinstance(feature, bytes)
        )


def test_examples_of_other_writers_are_read():
    """Unpacked lists, fields in another order, and fields that are not known."""
    floats = b"\x0d" + struct.pack("<f", 1.5) + b"\x0d" + struct.pack("<f", 2.0)
    ints = b"\x08\x05\x08" + b"\xff" * 9 + b"\x01"

    def field(number, content):
        return bytes([number << 3 | 2, len(content)]) + content

    y = field(1, field(2, field(2, floats)) + field(1, b"y"))
    n = field(1, field(1, b"n") + field(2, field(3, ints)))
    found = parse_example(b"\x20\x07" + field(1, y + n))
    assert found["y"].tolist() == [1.5, 2.0]
    assert found["n"].tolist() == [5, -1]


@given(st.binary(max_size=60))
def test_what_is_no_example_raises_or_is_empty(content):
    with suppress(InputError):
        assert isinstance(parse_example(content), dict)


@pytest.mark.parametrize("suffix", sorted(set(FORMATS) - {".npy"} | {".tfrecord.gz"}))
def test_samples_come_back(tmp_path, suffix):
    path = tmp_path / f"s{suffix}"
    write_sample(path, ARRAYS)
    found = read_sample(path)
    assert set(found) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_npy_holds_one_array(tmp_path):
    write_sample(tmp_path / "a.npy", {"x": ARRAYS["x"]})
    assert np.array_equal(read_sample(tmp_path / "a.npy")["array"], ARRAYS["x"])
    with pytest.raises(UsageError, match="one array"):
        write_sample(tmp_path / "b.npy", ARRAYS)


def test_cosmoflows_own_records_are_read(tmp_path):
    """Raw int16 without a shape, as in the public TFRecords."""
    counts = np.arange(4 * 4 * 4 * 4, dtype=np.int16).reshape(4, 4, 4, 4)
    features = {"x": counts.tobytes(), "y": np.array([1, 2, 3, 4], np.float32)}
    write_records(tmp_path / "c.tfrecord.gz", [make_example(features)])
    assert np.array_equal(read_sample(tmp_path / "c.tfrecord.gz")["x"], counts)
    flat = read_sample(tmp_path / "c.tfrecord.gz", Spec((256,), "<i2"))
    assert np.array_equal(flat["x"], counts.reshape(-1))
    with pytest.raises(InputError, match="--shape"):
        read_sample(tmp_path / "c.tfrecord.gz", Spec((255,), "<i2"))
    write_records(tmp_path / "d.tfrecord", [make_example({"x": b"abc"})])
    with pytest.raises(InputError, match="--shape"):
        read_sample(tmp_path / "d.tfrecord")


def test_several_records_are_several_samples(tmp_path):
    path = tmp_path / "m.tfrecord"
    write_records(path, [make_example({"y": np.array([n], np.float32)}) for n in range(3)])
    assert [s["y"].tolist() for s in read_samples(path)] == [[0], [1], [2]]
    with pytest.raises(InputError, match="several"):
        read_sample(path)
    write_records(path, [])
    with pytest.raises(InputError, match="none"):
        read_sample(path)


def test_bad_files_are_refused(tmp_path):
    with pytest.raises(InputError, match="found none"):
        read_sample(tmp_path / "none.npy")
    for name in ("a.npy", "a.h5"):
        (tmp_path / name).write_bytes(b"nothing of the kind")
        with pytest.raises(InputError, match="expected"):
            read_sample(tmp_path / name)
    (tmp_path / "a.txt").touch()
    with pytest.raises(UsageError, match="suffix"):
        read_sample(tmp_path / "a.txt")
    with pytest.raises(UsageError, match="suffix"):
        write_sample(tmp_path / "b.txt", ARRAYS)
    bad = {"x": b"ab", "x/shape": np.array([2]), "x/dtype": b"|O"}
    write_records(tmp_path / "b.tfrecord", [make_example(bad)])
    with pytest.raises(InputError, match="shape of numbers"):
        read_sample(tmp_path / "b.tfrecord")
