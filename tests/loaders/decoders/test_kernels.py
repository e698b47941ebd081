"""Kernels beside the contract of test_codecs: odd shapes, several tables, and code for a GPU."""

from __future__ import annotations

import json
import zlib

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("numba", reason="numba is not installed")
pytest.importorskip("h5py", reason="h5py is not installed")


triton = pytest.importorskip("triton", reason="triton is not installed")

from tests import ROOT
from vanidl_loaders.decoders import CosmoFlow, DeepCam, decode_batch, encode, kernels, open_sample
from vanidl_loaders.decoders.cosmoflow import TILE
from vanidl_loaders.decoders.kernels import find_kernel
from vanidl_loaders.decoders.staging import HostBuffer, stage_rows
from vanidl_loaders.errors import MissingError


class Launches:
    """A kernel that does nothing."""

    def __getitem__(self, grid):
        return lambda *arguments, **options: None


def both(codec, arrays, device):
    """Decoded by the CPU and by the kernel, whose output is poisoned before."""
    samples = [open_sample(encode(array, codec))["array"] for array in arrays]
    wanted = decode_batch([{"a": each} for each in samples], device="cpu")["a"]
    out = torch.full_like(wanted, -7.0, device=device)
    kernels.decode(samples, out)
    return wanted.view(torch.int16), out.cpu().view(torch.int16)


@pytest.mark.parametrize("voxels", [0, 1, 1023, 1024, 1025, TILE - 1, TILE + 1])
@pytest.mark.parametrize("redshifts", [1, 3, 4])
def test_tables_of_any_number_of_voxels(voxels, redshifts, device):
    random = np.random.default_rng(voxels)
    arrays = [random.poisson(2, (voxels, redshifts)).astype(np.int16) for _ in range(3)]
    wanted, found = both(CosmoFlow(), arrays, device)
    assert torch.equal(wanted, found)


def test_samples_of_a_batch_may_have_tables_of_other_numbers_and_widths(device):
    random = np.random.default_rng(0)
    number = np.arange(70_000)
    many = np.stack([number % 40, number // 40 % 40, number // 1600, number * 0], -1)
    few = random.poisson(0.1, (70_000, 4))
    wanted, found = both(CosmoFlow(), [many.astype(np.int16), few.astype(np.int16)], device)
    assert torch.equal(wanted, found)


@pytest.mark.parametrize("width", [1, 2, 15, 16, 127, 128, 129, 272])
@pytest.mark.parametrize("mode", ["closed", "open"])
def test_lines_of_any_width(width, mode, device):
    random = np.random.default_rng(width)
    arrays = [np.cumsum(random.normal(size=(2, 9, width)), -1).astype(np.float32) + 90]
    arrays.append(random.normal(size=(2, 9, width)).astype(np.float32))
    arrays.append(np.ones((2, 9, width), np.float32))
    wanted, found = both(DeepCam(channels="first", mode=mode), arrays, device)
    assert torch.equal(wanted, found)


@pytest.mark.parametrize("every", [1, 2, 3, 7, 16, 17])
def test_heads_anywhere_in_a_group(every, device, monkeypatch):
    """A head each `every` values, and twice in a row: groups of 16 with up to 16 heads.

    Segments are given by hand, so that the bits follow from the format alone.
    """
    from vanidl_loaders.decoders.container import Encoded, Spec
    from vanidl_loaders.decoders.deltas import HEAD, UNITS
    from vanidl_loaders.decoders.kernels import deepcam

    monkeypatch.setattr(deepcam, "LINES", 4)  # as on a GPU
    random = np.random.default_rng(every)
    lines, width = 6, 160
    codes = random.integers(0, 256, (lines, width)).astype(np.uint8)
    codes[codes == HEAD] = 0
    codes[:, ::every] = codes[:, 1::5] = HEAD
    codes[2, 1:] = 3
    firsts = np.append(0, np.cumsum((codes == HEAD).sum(1))).astype(np.uint32)
    heads = random.normal(size=firsts[-1]).astype(np.float16)
    exponents = random.integers(-20, -8, len(heads))
    sums = UNITS[codes].cumsum(1, dtype=np.int64)
    row, column = np.nonzero(codes == HEAD)
    before = sums[row, column]
    segments = heads.view(np.uint16).astype(np.int64) | exponents + 127 << 16 | before << 32
    own = firsts[:-1, None] + (codes == HEAD).cumsum(1) - 1
    wanted = heads.astype(np.float64)[own] + np.exp2(exponents)[own] * (sums - before[own])
    empty = {"const_lines": "<u4", "const_values": "<u2", "raw_lines": "<u4"}
    spec = Spec((1, lines, width), "<f2")
    sections = {name: np.empty(0, kind) for name, kind in empty.items()} | {
        "raw": np.empty((0, width), "<u2"), "delta_lines": np.arange(lines, dtype="<u4"),
        "codes": codes, "firsts": firsts, "segments": segments,
    }  # fmt: skip
    out = torch.full((1, 1, lines, width), -7.0, dtype=torch.float16, device=device)
    kernels.decode([Encoded("deepcam", spec, spec, {}, sections)], out)
    # float32 before float16, as the format says: head + unit * sum is rounded twice.
    halves = wanted.astype(np.float32).astype(np.float16)
    assert np.array_equal(out.cpu().numpy()[0, 0].view("u2"), halves.view("u2"))


def test_a_missing_triton_says_what_to_do(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "vanidl_loaders.decoders.kernels.cosmoflow", raising=False)
    with pytest.raises(MissingError, match=r"pip install 'vanidl-io\[decoders\]'"):
        find_kernel("cosmoflow")


def test_kernels_compile_for_a_gpu(tmp_path, python, run_python):
    """Without a GPU: Triton brings its own assembler. 16 bytes a thread and access."""
    script = [python, "-m", "benchmarks.loaders.kernel_instructions"]
    done = run_python(
        [*script, "--json", "--target", 90],
        folder=ROOT, TRITON_INTERPRET="0", TRITON_CACHE_DIR=str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for name in ("gather", "delta", "copy"):
        assert found[name]["wide_loads"] >= 1
        assert found[name]["wide_stores"] >= 2
        assert found[name]["narrow_stores"] <= 1  # of the status
    assert found["look up"]["wide_stores"] >= 1
    delta = found["delta"]["per_value"]
    assert delta["every tile"] < 18  # 43.9 when lines were scanned value by value
    assert delta["every tile"] + delta["per head of a group"] < 22
    assert found["checksum"]["per_byte"] < 30


@pytest.mark.parametrize("nbytes", [0, 64, 65_536, 65_536 + 64])
def test_the_checksum_is_zlibs(nbytes, device):
    from vanidl_loaders.decoders.kernels import checksum

    random = np.random.default_rng(nbytes)
    bodies = [random.integers(0, 256, n, np.uint8) for n in (nbytes, nbytes, 128)]
    rows = [checksum.columns(body, zlib.crc32(body)) for body in bodies]
    bodies[1][nbytes // 2 : nbytes // 2 + 1] ^= 4
    staged = stage_rows(HostBuffer(), rows).to(device)
    status = torch.zeros(3, dtype=torch.uint8, device=device)
    checksum.launch(staged, status)
    assert status.tolist() == [0, int(nbytes > 0), 0]


def test_labels_of_a_batch_are_decoded_in_one_launch(device, monkeypatch):
    """The number of PyTorch's operators does not grow with the batch."""
    from torch.utils._python_dispatch import TorchDispatchMode

    from vanidl_loaders.decoders.kernels import lossless

    class Counting(TorchDispatchMode):
        called = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            Counting.called += 1
            return function(*args, **(kwargs or {}))

    monkeypatch.setattr(lossless, "_look_up_kernel", Launches())
    calls = []
    for samples in (1, 9):
        encoded = [lossless.Lossless().encode(np.arange(5) % 3)] * samples
        staged = stage_rows(HostBuffer(), [lossless.columns(each) for each in encoded]).to(device)
        out = torch.empty((samples, 5), dtype=torch.int64, device=device)
        Counting.called = 0
        with Counting():
            lossless.launch(staged, out, torch.zeros(samples, dtype=torch.uint8))
        calls.append(Counting.called)
    assert calls[0] == calls[1]
