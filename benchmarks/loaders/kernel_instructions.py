"""Instructions of the decoders' kernels, counted in what is compiled for a GPU. None is needed.

    python -m benchmarks.loaders.kernel_instructions [--target 90] [--json]

Compiled, not run: nothing here is a time. Triton brings the assembler and disassembler. Of each
kernel: loads and stores of 16 bytes in PTX, and the instructions of its loops in machine code,
per value. Required of `delta`, which decodes DeepCAM's lines: below 20 per value, since at 3 TB/s
an H100 takes 14 us for the bytes of a sample and 0.48 us for each instruction per value of it.
Its loop over heads runs, in a tile of 4 lines x 128 values, as often as the group of 16 values
with most heads has heads: in 2.3 % of the tiles of a synthetic sample.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "0"  # read when the kernels are imported
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from vanidl_loaders.decoders.cosmoflow import TILE
from vanidl_loaders.decoders.kernels import checksum, cosmoflow, deepcam, lossless

TYPES = {
    "bytes_ptr": "*u8", "halves_ptr": "*i16", "numbers_ptr": "*i32", "words_ptr": "*i64",
    "index_ptr": "*i64", "values_ptr": "*i64", "lanes_ptr": "*i32", "chunks_ptr": "*i32",
    "crcs_ptr": "*i32", "labels_ptr": "*i64", "out_ptr": "*i16", "status_ptr": "*u8",
    "voxels": "i32", "lines": "i32", "width": "i32", "count": "i32",
}  # fmt: skip
DELTA_MOST = 20.0
DELTA_VALUES = deepcam.LINES * deepcam.SPAN / 32 / deepcam.OPTIONS["num_warps"]
"""Values that a thread decodes each time through the loop."""
CHECKSUM_NBYTES = 4 * checksum.LANES / 32 / checksum.OPTIONS["num_warps"]

Kernel = Any
"""A compiled kernel, or one to be compiled: Triton has no types for them."""


def kernels() -> dict[str, tuple[Kernel, dict[str, Any], dict[str, Any]]]:
    """Each kernel, its constants, its options."""
    delta = {"COLUMNS": deepcam.COLUMNS, "LINES": deepcam.LINES, "SPAN": deepcam.SPAN}
    copy = delta | {"LINES": deepcam.COPY_LINES, "FIRST": deepcam.RAW_LINES}
    gather = {"REDSHIFTS": 4, "TILE": TILE, "BLOCK": cosmoflow.BLOCK, "COLUMNS": cosmoflow.COLUMNS}
    label = {"COLUMNS": lossless.COLUMNS, "NBYTES": 8, "BLOCK": lossless.BLOCK}
    crc = {"COLUMNS": checksum.COLUMNS, "LANES": checksum.LANES, "ROWS": checksum.ROWS}
    return {
        "gather": (cosmoflow._gather_kernel, gather, {"num_warps": cosmoflow.WARPS}),
        "delta": (deepcam._delta_kernel, delta | {"WHOLE": True}, deepcam.OPTIONS),
        "copy": (deepcam._copy_kernel, copy | {"COUNT": deepcam.RAWS, "STEP": 1},
                 deepcam.COPY_OPTIONS),
        "look up": (lossless._look_up_kernel, label, lossless.OPTIONS),
        "checksum": (checksum._crc_kernel, crc | {"STEP": checksum.ROW_STEP.value},
                     checksum.OPTIONS),
    }  # fmt: skip


def main() -> int:
    """Exit status 0 where the requirement is met."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--target", type=int, default=90, help="compute capability, 90 is sm_90")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = {name: counted(*each, options.target) for name, each in kernels().items()}
    outer = found["delta"]["loops"]
    inside = min(outer)
    found["delta"]["per_value"] = {
        "every tile": (max(outer) - inside) / DELTA_VALUES,
        "per head of a group": inside / DELTA_VALUES,
    }
    found["checksum"]["per_byte"] = max(found["checksum"]["loops"]) / CHECKSUM_NBYTES
    if options.json:
        print(json.dumps(found))
    else:
        report(found, options.target)
    return 0 if found["delta"]["per_value"]["every tile"] < DELTA_MOST else 1


def report(found: dict[str, dict[str, Any]], target: int) -> None:
    """Prints what was counted."""
    print(f"compiled for sm_{target} by Triton {triton.__version__}; nothing has run")
    for name, each in found.items():
        print(
            f"{name:<9} {each['instructions']:>5} instructions, loops of {each['loops']}; 16-byte "
            f"loads {each['wide_loads']}, stores {each['wide_stores']}"
        )
    delta = found["delta"]["per_value"]
    print(
        f"delta: {delta['every tile']:.1f} per value, required < {DELTA_MOST:.0f}, and "
        f"{delta['per head of a group']:.1f} more for each head in a group of its tile"
    )
    print(f"checksum: {found['checksum']['per_byte']:.1f} per byte")


def counted(
    kernel: Kernel, constants: dict[str, Any], options: dict[str, Any], target: int
) -> dict[str, Any]:
    """What is compiled of a kernel."""
    names = kernel.arg_names
    source = ASTSource(
        fn=kernel,
        signature={n: "constexpr" if n in constants else TYPES[n] for n in names},
        constexprs={(names.index(n),): value for n, value in constants.items()},
        attrs={(at,): [["tt.divisibility", 16]] for at, n in enumerate(names) if n in TYPES},
    )
    made = triton.compile(
        source,
        target=GPUTarget("cuda", target, 32),
        options={"enable_fp_fusion": False} | options,
    )
    ptx = made.asm["ptx"]
    code = instructions(made.asm["cubin"])
    return {
        "instructions": len(code),
        "loops": loops(code),
        "wide_loads": len(re.findall(r"ld\.global[.\w]*v(4\.b32|2\.b64)", ptx)),
        "wide_stores": len(re.findall(r"st\.global[.\w]*v(4\.b32|2\.b64)", ptx)),
        "narrow_stores": len(re.findall(r"st\.global\.b(8|16)", ptx)),
    }


def instructions(cubin: bytes) -> list[tuple[int, str]]:
    """Address and text of each instruction."""
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run(
            [tools / "cuobjdump", "-sass", file.name], capture_output=True, text=True, check=True,
            env=os.environ | {"PATH": f"{tools}:{os.environ['PATH']}"},
        )  # fmt: skip
    lines = re.findall(r"^\s+/\*([0-9a-f]{4,})\*/\s+(\S.*?);", done.stdout, re.MULTILINE)
    return [(int(address, 16), text) for address, text in lines]


def loops(code: list[tuple[int, str]]) -> list[int]:
    """Instructions from each backward branch's target to the branch; an endless one is the end."""
    found = []
    for address, text in code:
        branch = re.search(r"\bBRA\b.*?0x([0-9a-f]+)", text)
        if branch and int(branch[1], 16) < address:
            found.append(sum(int(branch[1], 16) <= at <= address for at, _ in code))
    return found


if __name__ == "__main__":
    sys.exit(main())
