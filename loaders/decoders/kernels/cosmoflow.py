"""CosmoFlow's tables on a GPU: one gather of 8 bytes a voxel, written to its planes.

Bytes of a sample of 128^3 voxels and 4 redshifts: 4.19 MB of keys and 0.3 MB of table read,
16.78 MB written. The table stays in the L2 cache.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..container import Encoded
from ..cosmoflow import TILE, Layout
from ..staging import Column, Staged

BLOCK = 1024  # voxels of a program; divides a tile
WARPS = 4
COLUMNS = 3


def columns(encoded: Encoded) -> tuple[Column, ...]:
    """Rows of tiles, keys, entries.

    Raises:
        InputError: Sections contradict the shape or each other.
    """
    return Layout.of(encoded).tiles, encoded.sections["keys"], encoded.sections["entries"]


def reference(staged: Staged, out: torch.Tensor) -> None:
    """Fills `out` (samples, redshifts, ...) float16 with PyTorch's operators."""
    redshifts, voxels = out.shape[1], out[0, 0].numel()
    words = staged.buffer.view(torch.int64)
    shifts = 16 * torch.arange(redshifts, device=out.device)
    voxel = torch.arange(voxels, device=out.device)
    for (tiles_at, keys_at, entries_at), target in zip(staged.index.tolist(), out, strict=True):
        tiles = words[tiles_at // 8 :][: -(-voxels // TILE) * 4].view(-1, 4)
        first, base, _, width = tiles[voxel // TILE].unbind(1)
        at = keys_at + first + voxel % TILE * width
        low = staged.buffer[at].long()  # 1 or 2 bytes a voxel read
        high = torch.where(width == 2, staged.buffer[at + width - 1].long() << 8, 0)
        word = words[entries_at // 8 + base + low + high]  # 8 bytes a voxel read
        planes = (word[None, :] >> shifts[:, None]).to(torch.int16)
        target.view(torch.int16).copy_(planes.view(target.shape))  # 8 bytes a voxel written


@triton.jit
def _gather_kernel(  # what a kernel reads has no other way in
    bytes_ptr: tl.tensor,  # staged buffer as uint8
    halves_ptr: tl.tensor,  # the same as int16
    words_ptr: tl.tensor,  # the same as int64
    index_ptr: tl.tensor,  # (samples, COLUMNS) int64
    out_ptr: tl.tensor,  # (samples, REDSHIFTS, voxels) int16
    status_ptr: tl.tensor,  # (samples,) uint8
    voxels: int,
    REDSHIFTS: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:  # a program decodes BLOCK voxels of one sample, all in one tile
    sample = tl.program_id(1).to(tl.int64)
    begin = tl.program_id(0).to(tl.int64) * BLOCK
    index = index_ptr + sample * COLUMNS
    # Where the keys and the table of this tile lie: a row of `tables`.
    row = words_ptr + tl.load(index) // 8 + begin // TILE * 4
    keys_at = tl.load(index + 1) + tl.load(row)
    entries = words_ptr + tl.load(index + 2) // 8 + tl.load(row + 1)
    count = tl.load(row + 2)
    within = begin % TILE + tl.arange(0, BLOCK)
    voxel = begin + tl.arange(0, BLOCK)
    inside = voxel < voxels
    # Keys of two bytes or one; neighbours read neighbours.
    if tl.load(row + 3) == 2:
        halves_at = tl.multiple_of(keys_at // 2, 16)
        key = tl.load(halves_ptr + halves_at + within, mask=inside, other=0).to(tl.int32) & 0xFFFF
    else:
        bytes_at = tl.multiple_of(keys_at, 16)
        key = tl.load(bytes_ptr + bytes_at + within, mask=inside, other=0).to(tl.int32)
    # A word holds one voxel's values of all redshifts, 16 bits each.
    known = key < count
    word = tl.load(entries + key, mask=inside & known, other=0)
    plane = out_ptr + sample * REDSHIFTS * voxels
    for redshift in tl.static_range(REDSHIFTS):
        value = (word >> (16 * redshift)).to(tl.int16)
        tl.store(plane + redshift * voxels + voxel, value, mask=inside)
    # A key behind the table was masked above, and marks the sample as damaged.
    strange = tl.sum((inside & (key >= count)).to(tl.int32), 0)
    tl.store(status_ptr + sample, 1, mask=strange > 0)


def launch(staged: Staged, out: torch.Tensor, status: torch.Tensor) -> None:
    """Begins to fill `out` (samples, redshifts, ...) float16 on its device.

    `status` (samples,) uint8 there becomes 1 where a key points behind its table; that voxel is 0.
    """
    redshifts, voxels = out.shape[1], out[0, 0].numel()
    if voxels:
        buffer = staged.buffer
        _gather_kernel[(triton.cdiv(voxels, BLOCK), staged.samples)](
            buffer,
            buffer.view(torch.int16),
            buffer.view(torch.int64),
            staged.index,
            out.view(torch.int16),
            status,
            voxels,
            REDSHIFTS=redshifts,
            TILE=TILE,
            BLOCK=BLOCK,
            COLUMNS=COLUMNS,
            num_warps=WARPS,
            enable_fp_fusion=False,
        )
