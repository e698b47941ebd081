"""Kernels beside the contract of test_codecs: odd shapes, several tables, and code for a GPU."""

from __future__ import annotations

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("numba", reason="numba is not installed")
pytest.importorskip("h5py", reason="h5py is not installed")


triton = pytest.importorskip("triton", reason="triton is not installed")

from vanidl_loaders.decoders import CosmoFlow, DeepCam, decode_batch, encode, open_sample
from vanidl_loaders.decoders.cosmoflow import TILE
from vanidl_loaders.decoders.kernels import find_kernel
from vanidl_loaders.errors import MissingError


def both(codec, arrays, device):
    """Decoded by the CPU and by the kernel, whose output is poisoned before."""
    samples = [open_sample(encode(array, codec))["array"] for array in arrays]
    wanted = decode_batch([{"a": each} for each in samples], device="cpu")["a"]
    out = torch.full_like(wanted, -7.0, device=device)
    find_kernel(codec.NAME).decode(samples, out)
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


@pytest.mark.parametrize("width", [1, 2, 127, 128, 129, 1152])
@pytest.mark.parametrize("mode", ["closed", "open"])
def test_lines_of_any_width(width, mode, device):
    random = np.random.default_rng(width)
    arrays = [np.cumsum(random.normal(size=(2, 9, width)), -1).astype(np.float32) + 90]
    arrays.append(random.normal(size=(2, 9, width)).astype(np.float32))
    arrays.append(np.ones((2, 9, width), np.float32))
    wanted, found = both(DeepCam(channels="first", mode=mode), arrays, device)
    assert torch.equal(wanted, found)


def test_a_missing_triton_says_what_to_do(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "vanidl_loaders.decoders.kernels.cosmoflow", raising=False)
    with pytest.raises(MissingError, match="pip install triton"):
        find_kernel("cosmoflow")


COMPILE = """
import json, re, sys
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from vanidl_loaders.decoders.cosmoflow import TILE
from vanidl_loaders.decoders.kernels import cosmoflow, deepcam

TYPES = {"bytes_ptr": "*u8", "halves_ptr": "*i16", "numbers_ptr": "*i32", "words_ptr": "*i64",
         "out_ptr": "*i16", "status_ptr": "*i32", "voxels": "i32", "lines": "i32", "width": "i32"}
LINES = {"COLUMNS": deepcam.COLUMNS, "LINES": deepcam.LINES, "SPAN": deepcam.SPAN}
COPY = LINES | {"FIRST": deepcam.RAW_LINES, "COUNT": deepcam.RAWS, "STEP": 1}
TABLES = {"REDSHIFTS": 4, "TILE": TILE, "BLOCK": cosmoflow.BLOCK, "COLUMNS": cosmoflow.COLUMNS}
found = {}
for name, kernel, values in (("gather", cosmoflow._gather_kernel, TABLES),
                             ("delta", deepcam._delta_kernel, LINES),
                             ("copy", deepcam._copy_kernel, COPY)):
    names = kernel.arg_names
    source = ASTSource(
        fn=kernel,
        signature={n: "constexpr" if n in values else TYPES[n] for n in names},
        constexprs={(names.index(n),): v for n, v in values.items()},
        attrs={(i,): [["tt.divisibility", 16]] for i, n in enumerate(names) if n in TYPES},
    )
    made = compile(source, target=GPUTarget("cuda", int(sys.argv[1]), 32),
                   options={"num_warps": 4, "enable_fp_fusion": False})
    ptx = made.asm["ptx"]
    found[name] = {"cubin": len(made.asm["cubin"]),
                   "wide_loads": len(re.findall(r"ld\\.global[.\\w]*v4\\.b32", ptx)),
                   "wide_stores": len(re.findall(r"st\\.global[.\\w]*v4\\.b32", ptx)),
                   "narrow_stores": len(re.findall(r"st\\.global\\.b(8|16)", ptx))}
print(json.dumps(found))
"""


@pytest.mark.parametrize("capability", [80, 90])
def test_kernels_compile_for_a_gpu_with_wide_loads_and_stores(
    capability, tmp_path, python, run_python
):
    """Without a GPU: Triton brings its own assembler. 16 bytes a thread and access."""
    done = run_python(
        [python, "-c", COMPILE, capability], TRITON_INTERPRET="0", TRITON_CACHE_DIR=str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    for kernel in json.loads(done.stdout).values():
        assert kernel["cubin"] > 0
        assert kernel["wide_loads"] >= 1
        assert kernel["wide_stores"] >= 2
        assert kernel["narrow_stores"] == 0
