"""A cut or damaged container raises; nothing wrong is decoded, nothing is read out of bounds."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("numba", reason="numba is not installed")
pytest.importorskip("h5py", reason="h5py is not installed")

from hypothesis import given
from hypothesis import strategies as st

from vanidl_loaders.decoders import (
    CosmoFlow,
    DeepCam,
    Lossless,
    decode,
    encode_sample,
    kernels,
    open_sample,
)
from vanidl_loaders.decoders.coding import decode_batch
from vanidl_loaders.decoders.container import describe, pack, unpack
from vanidl_loaders.errors import InputError


@pytest.fixture(scope="module")
def whole():
    """A container of all codecs; where none was compiled before, that takes seconds."""
    random = np.random.default_rng(3)
    walk = np.cumsum(random.normal(size=(2, 3, 60)), -1).astype(np.float32)
    walk[1] = 4
    arrays = {
        "counts": random.poisson(1, (5, 6, 7, 4)).astype(np.int16),
        "fields": walk,
        "labels": random.integers(0, 3, (6, 7)),
    }
    codecs = {"counts": CosmoFlow(), "fields": DeepCam(channels="first"), "labels": Lossless()}
    return encode_sample(arrays, codecs)


def test_a_whole_container_is_opened(whole):
    assert list(open_sample(whole)) == ["counts", "fields", "labels"]
    assert [each["name"] for each in describe(whole)["arrays"]] == ["counts", "fields", "labels"]
    assert list(open_sample(memoryview(bytearray(whole)))) == ["counts", "fields", "labels"]


def test_a_cut_at_every_byte_raises(whole):
    for length in range(len(whole)):
        with pytest.raises(InputError, match="in the container"):
            open_sample(whole[:length])


def test_bytes_behind_the_end_raise(whole):
    with pytest.raises(InputError, match="bytes"):
        open_sample(whole + b"\0")


def test_a_flipped_bit_in_every_byte_raises(whole):
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(InputError, match="in the container"):
            open_sample(damaged)


@given(data=st.data())
def test_random_damage_raises(whole, data):
    damaged = bytearray(whole)
    begin = data.draw(st.integers(0, len(whole) - 1))
    new = data.draw(st.binary(min_size=1, max_size=40))
    damaged[begin : begin + len(new)] = new
    if bytes(damaged) == whole:
        return
    with pytest.raises(InputError, match="in the container"):
        open_sample(damaged)


@given(st.binary(max_size=200))
def test_foreign_bytes_raise(content):
    with pytest.raises(InputError, match="in the container"):
        open_sample(content)


def test_another_version_and_an_unknown_codec_are_named(whole):
    import struct
    from zlib import crc32

    other = bytearray(whole)
    other[4:6] = struct.pack("<H", 9)
    other[28:32] = struct.pack("<I", crc32(bytes(other[:28])))
    with pytest.raises(InputError, match="version 1"):
        open_sample(other)
    arrays = unpack(whole)
    with pytest.raises(InputError, match="codec among"):
        open_sample(pack({"counts": replace(arrays["counts"], codec="other")}))


@pytest.mark.parametrize(
    "text",
    [
        b"not json",
        b"[]",
        b'{"arrays": 3}',
        b'{"arrays": [3]}',
        b'{"arrays": [{"name": "a"}]}',
        b'{"arrays": [{"name":"a","codec":"lossless","source":[[1],"O"],"decoded":[[1],"O"],'
        b'"parameters":{},"sections":[]}]}',
        b'{"arrays": [{"name":"a","codec":"lossless","source":[[-1],"u1"],"decoded":[[1],"u1"],'
        b'"parameters":{},"sections":[]}]}',
        b'{"arrays": [{"name":"a","codec":"lossless","source":[[9],"u1"],"decoded":[[9],"u1"],'
        b'"parameters":{"key_bits":0},"sections":[["raw","|u1",[9],64]]}]}',
    ],
)
def test_a_description_that_is_no_description_raises_whatever_its_crc(text):
    import struct
    from zlib import crc32

    head = struct.pack("<4sHHIIQI", b"VDL\x1a", 1, 0, len(text), crc32(text), 0, crc32(b""))
    content = head + struct.pack("<I", crc32(head)) + text
    with pytest.raises(InputError, match="in the container"):
        open_sample(content)


def keys_behind_the_table():
    encoded = CosmoFlow().encode(np.arange(40, dtype=np.int16).reshape(10, 4))
    keys = encoded.sections["keys"].copy()
    keys[3] = 200
    return replace(encoded, sections=encoded.sections | {"keys": keys})


def more_heads_than_segments():
    walk = np.cumsum(np.random.default_rng(1).normal(size=(2, 2, 90)), -1).astype(np.float32) + 50
    encoded = DeepCam(channels="first").encode(walk)
    codes = encoded.sections["codes"].copy()
    assert len(codes)
    codes[0, 50] = 0x80
    return replace(encoded, sections=encoded.sections | {"codes": codes})


def no_head():
    encoded = more_heads_than_segments()
    codes = encoded.sections["codes"].copy()
    codes[0, 50], codes[0, 0] = 1, 1
    return replace(encoded, sections=encoded.sections | {"codes": codes})


def keys_behind_the_values():
    encoded = Lossless().encode(np.array([0, 1, 2, 1], np.int32))
    return replace(encoded, sections=encoded.sections | {"keys": np.array([255], np.uint8)})


BROKEN = [keys_behind_the_table, more_heads_than_segments, no_head, keys_behind_the_values]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_container_that_lies_under_a_right_crc_raises(broken):
    with pytest.raises(InputError, match="in the container"):
        decode(pack({"array": broken()}), device="cpu")


@pytest.mark.parametrize("broken", BROKEN)
def test_kernels_flag_it_and_stay_in_bounds(broken, device):
    """In the interpreter an address behind the buffer ends the process: masks must hold."""
    pytest.importorskip("triton", reason="triton is not installed")
    encoded = broken()
    kind = decode_batch([{"a": Lossless().encode(np.zeros(1, encoded.decoded.dtype))}])["a"].dtype
    out = torch.zeros((1, *encoded.decoded.shape), dtype=kind, device=device)
    with pytest.raises(InputError, match="samples \\[0\\] of batch"):
        kernels.decode([encoded], out)


def claimed(codec, shape, dtype="<f2", sections=(), **parameters):
    from vanidl_loaders.decoders.container import Encoded, Spec

    spec = Spec(shape, dtype)
    return Encoded(codec, spec, spec, parameters, dict(sections))


def lines_of_nothing():
    numbers = {"const_lines": "<u4", "raw_lines": "<u4", "delta_lines": "<u4", "firsts": "<u4"}
    empty = {name: np.zeros(int(name == "firsts"), kind) for name, kind in numbers.items()} | {
        "const_values": np.empty(0, "<u2"), "raw": np.empty((0, 1), "<u2"),
        "codes": np.empty((0, 1), "|u1"), "segments": np.empty(0, "<i8"),
    }  # fmt: skip
    return claimed("deepcam", (1 << 15, 1 << 10, 1), sections=empty)


def one_line_of_half_a_tebibyte():
    held = lines_of_nothing().sections | {
        "const_lines": np.zeros(1, "<u4"), "const_values": np.zeros(1, "<u2"),
        "raw": np.empty((0, 1 << 39), "<u2"), "codes": np.empty((0, 1 << 39), "|u1"),
    }  # fmt: skip
    return claimed("deepcam", (1, 1 << 39), sections=held)


def voxels_without_keys():
    held = {"tables": np.array([[0, 1, 1]], "<i8"), "keys": np.zeros(1, "|u1")}
    held["entries"] = np.zeros(1, "<u8")
    return claimed("cosmoflow", (4, 1 << 26), sections=held, tile=4096)


def nothing_of_a_long_axis():
    return claimed("lossless", (0, 1 << 60), "<i8", {"raw": np.empty(0, "<u8")}, key_bits=0)


@pytest.mark.parametrize(
    "hostile",
    [lines_of_nothing, one_line_of_half_a_tebibyte, voxels_without_keys, nothing_of_a_long_axis],
)
def test_a_small_container_that_claims_much_takes_no_memory(hostile):
    import tracemalloc

    content = pack({"array": hostile()})
    assert len(content) < 2048
    tracemalloc.start()
    with pytest.raises(InputError, match="in the container"):
        decode(content, device="cpu")
    peak_nbytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_nbytes < 1 << 20


def test_a_description_nested_without_end_is_refused():
    from isal.isal_zlib import crc32

    content = bytearray(pack({"array": Lossless().encode(np.zeros(3))}))
    text = b"[" * 200_000
    text += bytes(-(len(text) + 32) % 64)
    content[8:16] = struct.pack("<II", len(text), crc32(text))
    content[28:32] = struct.pack("<I", crc32(bytes(content[:28])))
    body_nbytes = int.from_bytes(content[16:24], "little")
    whole = bytes(content[:32]) + text + bytes(content[len(content) - body_nbytes :])
    with pytest.raises(InputError, match="JSON"):
        decode(whole, device="cpu")
