"""Labels on a GPU: a key of 1 to 8 bits looked up in the values, or the values themselves."""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl

from ..container import Encoded
from ..lossless import Lossless
from ..staging import Column, Staged

BLOCK = 1024  # values of a program
COLUMNS = 4
OPTIONS = {"num_warps": 4}
_KINDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def columns(encoded: Encoded) -> tuple[Column, ...]:
    """Keys or raw values, the values that keys point to, bits of a key (0: raw), values held.

    Raises:
        InputError: Sections contradict the shape or each other.
    """
    Lossless.check(encoded)
    width = encoded.parameters["key_bits"]
    empty = np.empty(0, np.uint8)
    first = encoded.sections["keys" if width else "raw"]
    values = encoded.sections["values"] if width else empty
    return first, values, width, len(values)


def reference(staged: Staged, out: torch.Tensor) -> None:
    """Fills `out` with PyTorch's operators, sample by sample."""
    flat = out.view(staged.samples, -1).view(torch.uint8)
    for number, (keys_at, values_at, width, held) in enumerate(staged.index.tolist()):
        target = flat[number]
        if not width or not out[number].numel():
            target.copy_(staged.buffer[keys_at:][: len(target)])
            continue
        count = out[number].numel()
        # Several keys of `width` bits in each byte, the first in the lowest bits.
        shifts = torch.arange(0, 8, width, dtype=torch.uint8, device=out.device)
        packed = staged.buffer[keys_at:][: -(-count * width // 8)]
        keys = (packed[:, None] >> shifts & ((1 << width) - 1)).view(-1)[:count].long()
        values = staged.buffer[values_at:][: held * out.itemsize].view(held, out.itemsize)
        target.copy_(values[keys.clamp(max=held - 1)].view(-1))


@triton.jit
def _look_up_kernel(  # what a kernel reads has no other way in
    bytes_ptr: tl.tensor,  # staged buffer as uint8
    values_ptr: tl.tensor,  # the same in the type of `out`
    index_ptr: tl.tensor,  # (samples, COLUMNS) int64
    labels_ptr: tl.tensor,  # (samples, count), integers of NBYTES
    status_ptr: tl.tensor,  # (samples,) uint8
    count: int,
    COLUMNS: tl.constexpr,
    NBYTES: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:  # a program decodes BLOCK values of one sample
    sample = tl.program_id(1).to(tl.int64)
    index = index_ptr + sample * COLUMNS
    width = tl.load(index + 2).to(tl.int32)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    target = labels_ptr + sample * count + at
    # Without keys: the values as they are.
    if width == 0:
        raw = values_ptr + tl.multiple_of(tl.load(index) // NBYTES, 8)
        tl.store(target, tl.load(raw + at, mask=inside, other=0), mask=inside)
    else:
        # Keys of 1 to 8 bits never cross a byte, as their widths divide eight.
        place = at * width
        key = tl.load(bytes_ptr + tl.load(index) + place // 8, mask=inside, other=0).to(tl.int32)
        key = (key >> (place % 8).to(tl.int32)) & ((1 << width) - 1)
        known = inside & (key < tl.load(index + 3))
        values = values_ptr + tl.load(index + 1) // NBYTES
        tl.store(target, tl.load(values + key, mask=known, other=0), mask=inside)
        strange = tl.max((inside & (key >= tl.load(index + 3))).to(tl.int32), 0)
        tl.store(status_ptr + sample, 1, mask=strange > 0)


def launch(staged: Staged, out: torch.Tensor, status: torch.Tensor) -> None:
    """Begins to fill `out` (samples, ...) on its device.

    `status` (samples,) uint8 there becomes 1 where a key points behind its values; that is 0.
    """
    count = out[0].numel()
    if count:
        kind = _KINDS[out.itemsize]
        _look_up_kernel[(triton.cdiv(count, BLOCK), staged.samples)](
            staged.buffer, staged.buffer.view(kind), staged.index, out.view(kind), status, count,
            COLUMNS=COLUMNS, NBYTES=out.itemsize, BLOCK=BLOCK, **OPTIONS,
        )  # fmt: skip
