from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("numba", reason="numba is not installed")
pytest.importorskip("h5py", reason="h5py is not installed")

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from vanidl_loaders.decoders import CosmoFlow, decode, encode, open_sample
from vanidl_loaders.decoders.cosmoflow import ENTRIES_MOST, TILE
from vanidl_loaders.errors import InputError, UsageError

COUNTS = st.integers(-32768, 32767) | st.sampled_from([-2, -1, 0, 1, 32767])


def wanted(array):
    """The baseline: log1p of every value, float16, channels first."""
    with np.errstate(all="ignore"):
        logs = np.log1p(np.asarray(array).astype(np.float32)).astype(np.float16)
    return torch.from_numpy(np.moveaxis(logs, -1, 0).copy())


def same(found, expected):
    return found.shape == expected.shape and torch.equal(
        found.view(torch.int16), expected.view(torch.int16)
    )


def tables(content):
    (encoded,) = open_sample(content).values()
    return encoded.sections["tables"].tolist()


@given(
    hnp.arrays(
        np.int16,
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9).map(lambda s: (*s, 4)),
        elements=COUNTS,
    )
)
def test_any_shape_and_any_count_is_bit_exact(array):
    assert same(decode(encode(array, CosmoFlow()), device="cpu"), wanted(array))


def test_every_int16_is_bit_exact():
    every = np.arange(-32768, 32768, dtype=np.int16).reshape(-1, 4)
    assert same(decode(encode(every), device="cpu"), wanted(every))


@pytest.mark.parametrize(
    "dtype", ["u1", "i1", "<u2", ">i2", "<i4", "<i8", "<f4", "<f2", "<f8", "?"]
)
@pytest.mark.parametrize("redshifts", [1, 2, 3, 4])
def test_other_types_and_fewer_redshifts(dtype, redshifts):
    array = np.random.default_rng(1).poisson(3, (7, 5, redshifts)).astype(dtype)
    assert same(decode(encode(array, CosmoFlow()), device="cpu"), wanted(array))


@pytest.mark.parametrize(("groups", "width"), [(1, 1), (255, 1), (256, 1), (257, 2), (2000, 2)])
def test_the_key_is_as_narrow_as_the_number_of_groups_allows(groups, width):
    """Counts up to 1,000 have distinct logarithms in float16 at this spacing."""
    base = np.arange(groups)
    array = np.stack([base % 50 * 3, base // 50 * 3, base * 0, base * 0], -1).astype(np.int16)
    array = np.concatenate([array, array[::-1]])
    content = encode(array)
    assert tables(content) == [[0, groups, width]]
    assert same(decode(content, device="cpu"), wanted(array))


def test_groups_are_told_apart_after_normalising():
    """float16(log1p) maps the 32,768 counts to 1,191 values: fewer groups, still exact."""
    array = np.zeros((32768, 4), np.int16)
    array[:, 0] = np.arange(32768)
    assert tables(encode(array))[0][1] == len(np.unique(wanted(array)[0])) == 1191


def distinct(voxels):
    """As many different groups, of counts whose logarithms differ in float16."""
    number = np.arange(voxels)
    columns = [number % 40, number // 40 % 40, number // 1600 % 40, number // 64000]
    return np.stack(columns, -1).astype(np.int16)


@pytest.mark.parametrize("extra", [0, 1, TILE - 1, TILE, TILE + 1, 70_000])
def test_a_new_table_begins_where_one_is_full(extra):
    voxels = ENTRIES_MOST + extra
    array = distinct(voxels)
    content = encode(array)
    held = tables(content)
    assert len(held) == -(-voxels // ENTRIES_MOST)
    assert sum(entries for _, entries, _ in held) == voxels
    assert max(entries for _, entries, _ in held) <= ENTRIES_MOST
    assert same(decode(content, device="cpu"), wanted(array))


def test_tables_of_both_widths_in_one_sample():
    array = distinct(ENTRIES_MOST)
    array = np.concatenate([array, np.full((5 * TILE + 17, 4), 300, np.int16)])
    content = encode(array)
    assert {width for *_, width in tables(content)} == {1, 2}
    assert same(decode(content, device="cpu"), wanted(array))


def test_the_mean_is_of_the_sample():
    array = np.random.default_rng(2).poisson(5, (6, 7, 8, 4)).astype(np.int16)
    mean = np.float32(array.mean(dtype=np.float64))
    expected = np.moveaxis((array.astype(np.float32) / mean).astype(np.float16), -1, 0)
    found = decode(encode(array, CosmoFlow(normalisation="mean")), device="cpu")
    assert same(found, torch.from_numpy(expected.copy()))
    with pytest.raises(InputError, match="mean"):
        encode(array * 0, CosmoFlow(normalisation="mean"))


def test_redshifts_may_come_first():
    array = np.random.default_rng(2).poisson(5, (4, 7, 8, 9)).astype(np.int16)
    found = decode(encode(array, CosmoFlow(redshifts="first")), device="cpu")
    assert same(found, wanted(np.moveaxis(array, 0, -1)))


@pytest.mark.parametrize("shape", [(), (3, 5), (4, 0)])
def test_shapes_without_redshifts_are_refused(shape):
    with pytest.raises(UsageError, match="redshifts"):
        encode(np.zeros(shape, np.int16), CosmoFlow())


@pytest.mark.parametrize("wrong", [{"normalisation": "max"}, {"redshifts": "middle"}])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(UsageError, match="expected"):
        CosmoFlow(**wrong)
    with pytest.raises(UsageError, match="numbers"):
        encode(np.zeros((3, 4), np.complex64), CosmoFlow())


def test_the_size_is_keys_and_table():
    """D.1 of the paper's arithmetic: 2 bytes a voxel and 8 a group."""
    array = np.random.default_rng(4).poisson(2, (32, 32, 32, 4)).astype(np.int16)
    groups = len(np.unique(array.reshape(-1, 4), axis=0))
    assert groups > 256
    (encoded,) = open_sample(encode(array)).values()
    assert encoded.nbytes == 2 * 32**3 + 8 * groups + 24
