"""Readers of data files against files made by the formats' own libraries."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest

from vanidl.dataset import hdf5, tfrecord
from vanidl.dataset.registry import FORMATS, inspect_file
from vanidl.encoding.crc32c import masked_crc
from vanidl.errors import InputError


def tfrecord_bytes(payloads: list[bytes]) -> bytes:
    frames = []
    for data in payloads:
        length = struct.pack("<Q", len(data))
        head = length + struct.pack("<I", masked_crc(length))
        frames.append(head + data + struct.pack("<I", masked_crc(data)))
    return b"".join(frames)


def test_crc_is_castagnoli():
    crc = 0xE3069283  # of "123456789", RFC 3720 B.4
    assert masked_crc(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@pytest.mark.parametrize("lengths", [[], [0], [5, 0, 70_000], [100] * 300])
def test_tfrecord_counts_records(tmp_path, lengths):
    path = tmp_path / "part.tfrecord"
    path.write_bytes(tfrecord_bytes([b"x" * n for n in lengths]))
    facts = inspect_file(path)
    assert (facts.format, facts.samples, facts.complete) == ("TFRecord", len(lengths), True)
    assert facts.size == sum(lengths) + 16 * len(lengths)
    assert sum(b.count for b in facts.blocks) == len(lengths)


def test_counting_tfrecords_is_bounded(tmp_path, monkeypatch):
    path = tmp_path / "part.tfrecord"
    path.write_bytes(tfrecord_bytes([b"abc"] * 20))
    monkeypatch.setattr(tfrecord, "MOST_RECORDS", 7)
    facts = inspect_file(path)
    assert (facts.samples, facts.complete, facts.sample_bytes) == (None, False, 19)


@pytest.mark.parametrize("cut", [1, 8, 15, 20])
def test_a_cut_tfrecord_is_named(tmp_path, cut):
    path = tmp_path / "part.tfrecord"
    path.write_bytes(tfrecord_bytes([b"x" * 10])[:cut])
    with pytest.raises(InputError, match="TFRecord frame"):
        inspect_file(path)


def test_hdf5_chunks_shapes_and_filters(tmp_path):
    h5py = pytest.importorskip("h5py", reason="optional: the formats extra")
    path = tmp_path / "train.h5"
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        x = file.create_dataset("images/x", (64, 16, 16), "f4", chunks=(8, 16, 16),
                                compression="gzip")  # fmt: skip
        x[:] = rng.poisson(3, x.shape)
        file.create_dataset("y", data=rng.normal(size=(64, 4)), chunks=(1, 4))
        file.create_dataset("meta", data=np.arange(3))
    facts = inspect_file(path)
    arrays = {a.name: a for a in facts.arrays}
    assert arrays["/images/x"].shape == (64, 16, 16)
    assert arrays["/images/x"].chunk == (8, 16, 16)
    assert arrays["/images/x"].filters == ("deflate",)
    assert arrays["/meta"].chunk is None
    assert facts.samples == 64
    of_x = [b for b in facts.blocks if "/images/x" in b.what]
    assert sum(b.count for b in of_x) == 8
    assert sum(b.nbytes * b.count for b in of_x) == arrays["/images/x"].stored_bytes
    assert [(b.nbytes, b.count) for b in facts.blocks if "/y" in b.what] == [(32, 64)]


class ReadSizes(io.FileIO):
    """A file that notes how many bytes each read asks for."""

    def __init__(self, path):
        super().__init__(path)
        self.asked = set()

    def readinto(self, buffer):
        self.asked.add(len(buffer))
        return super().readinto(buffer)


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
def test_hdf5_reads_chunk_index_nodes_of_the_size_that_we_say(tmp_path, dimensions):
    h5py = pytest.importorskip("h5py", reason="optional: the formats extra")
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        rest = (4,) * (dimensions - 1)
        file.create_dataset("group/x", (64, *rest), "u1", chunks=(2, *rest))[:] = 1
    with ReadSizes(path) as raw, h5py.File(raw, "r") as file:
        assert file["group/x"][0].sum() == 4 ** (dimensions - 1)
    known = {n for n, what in hdf5.INDEX_NODES.items() if "chunk" in what}
    (size,) = raw.asked & known
    assert f"{dimensions}-dimensional" in hdf5.INDEX_NODES[size]
    assert {328, 544} <= raw.asked


def test_npy_and_npz(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((5, 7), np.float32))
    np.savez(tmp_path / "b.npz", x=np.zeros((6, 2)), y=np.zeros(6))
    np.savez_compressed(tmp_path / "c.npz", x=np.zeros((6, 2)), n=np.zeros(3))
    npy, npz, mixed = (inspect_file(tmp_path / n) for n in ("a.npy", "b.npz", "c.npz"))
    assert (npy.samples, npy.arrays[0].shape, npy.arrays[0].dtype) == (5, (5, 7), "float32")
    assert (npz.format, npz.samples, len(npz.arrays)) == ("NPZ", 6, 2)
    assert mixed.samples is None  # arrays of different lengths: what is a sample is unknown
    assert mixed.arrays[0].filters == ("deflate",)


def test_parquet_rows_and_column_chunks(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="optional: the formats extra")
    parquet = pytest.importorskip("pyarrow.parquet", reason="optional: the formats extra")
    path = tmp_path / "t.parquet"
    table = arrow.table({"a": list(range(100)), "b": ["text"] * 100})
    parquet.write_table(table, path, row_group_size=25)
    facts = inspect_file(path)
    assert facts.samples == 100
    assert [a.name for a in facts.arrays] == ["a", "b"]
    assert sum(b.count for b in facts.blocks) == 8


@pytest.mark.parametrize("ending", FORMATS)
def test_a_file_that_is_not_what_its_name_says(tmp_path, ending):
    for library in {".parquet": ["pyarrow"], ".npy": [], ".npz": []}.get(ending, ["h5py"]):
        pytest.importorskip(library, reason="optional: the formats extra")
    path = tmp_path / f"x{ending}"
    path.write_bytes(b"neither fish nor flesh" * 9)
    with pytest.raises(InputError, match="expected"):
        inspect_file(path)


def test_unknown_endings_are_left_alone(tmp_path):
    (tmp_path / "x.bin").write_bytes(b"1")
    assert inspect_file(tmp_path / "x.bin") is None


@pytest.mark.parametrize("ending", [".h5", ".parquet"])
def test_damage_is_an_error_with_the_name_and_nothing_else(tmp_path, ending):
    path = tmp_path / f"x{ending}"
    if ending == ".h5":
        h5py = pytest.importorskip("h5py", reason="optional: the formats extra")
        with h5py.File(path, "w") as file:
            file.create_dataset("g/x", data=np.arange(600).reshape(200, 3), chunks=(10, 3))
    else:
        arrow = pytest.importorskip("pyarrow", reason="optional: the formats extra")
        parquet = pytest.importorskip("pyarrow.parquet", reason="optional: the formats extra")
        parquet.write_table(arrow.table({"a": list(range(50))}), path)
    content, random = path.read_bytes(), np.random.default_rng(4)
    refused = 0
    for _ in range(150):
        damaged = bytearray(content)
        at = int(random.integers(0, min(len(damaged), 3000)))
        damaged[-at - 1 if ending == ".parquet" else at] ^= int(random.integers(1, 256))
        path.write_bytes(damaged)
        try:
            inspect_file(path)
        except InputError as error:
            refused += path.name in str(error)
    assert refused > 0
