"""CRC-32 of the containers' bodies on a GPU: the same as zlib's.

Without its start value and final inversion a CRC is linear: the CRC of a message is the exclusive
or of what each word of 32 bits gives, its value times x^(bits behind it) modulo the polynomial. A
lane takes every LANES-th word of a chunk, from the front, multiplying by x^(32 LANES) between
two; then lanes, and chunks, are brought to their places by one multiplication each. Chunks are
counted from the end: zeros in front change nothing, so that the first may be incomplete.

Polynomials are reflected, as in zlib: bit 31 is x^0.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from ..staging import Column, Staged

POLYNOMIAL = 0xEDB88320  # of CRC-32 (IEEE 802.3), lowest power first
LANES = 512  # of a program, each with every 512th word
ROWS = 32  # words of a lane
CHUNK_NBYTES = 4 * LANES * ROWS
COLUMNS = 3
OPTIONS = {"num_warps": 4}


def columns(body: NDArray[np.uint8], crc: int) -> tuple[Column, ...]:
    """The body, its bytes (a multiple of 4), and what its CRC-32 must be."""
    return body, len(body), crc


def power(bits: int) -> int:
    """x^bits modulo the polynomial."""
    # Bit 31 stands for x^0, as in the reflected CRC-32.
    result, square = 1 << 31, 1 << 30
    while bits:
        if bits & 1:
            result = product(result, square)
        square, bits = product(square, square), bits >> 1
    return result


def product(a: int, b: int) -> int:
    """The product of two polynomials modulo the polynomial."""
    result = 0
    for bit in range(31, -1, -1):
        result ^= b if a >> bit & 1 else 0
        b = b >> 1 ^ (POLYNOMIAL if b & 1 else 0)
    return result


def _next(count: int, step: int, first: int) -> NDArray[np.int32]:
    """(count,) first * step^i."""
    values = np.empty(count, np.uint32)
    for at in range(count):
        values[at], first = first, product(first, step)
    return values.view(np.int32)


@cache
def _of_lanes(device: torch.device) -> torch.Tensor:
    """(LANES,) x^(32 * words of a row from this lane on)."""
    return torch.from_numpy(_next(LANES, power(32), power(32))[::-1].copy()).to(device)


@cache
def _of_chunks(chunks: int, device: torch.device) -> torch.Tensor:
    """(chunks,) x^(8 * bytes of the chunks behind), counted from the end."""
    return torch.from_numpy(_next(chunks, power(8 * CHUNK_NBYTES), 1 << 31)).to(device)


ROW_STEP: tl.constexpr = tl.constexpr(
    tuple(product(1 << (31 - bit), power(32 * LANES)) for bit in range(32))
)
"""x^bit times x^(32 LANES): what a state's bit (counted from bit 31) becomes from row to row."""


@triton.jit
def _times_row(state: tl.tensor, STEP: tl.constexpr) -> tl.tensor:
    """The state times x^(32 LANES)."""
    result = tl.zeros_like(state)
    for bit in tl.static_range(32):
        result ^= tl.where((state & (1 << (31 - bit))) != 0, STEP[bit], 0).to(tl.uint32)
    return result


@triton.jit
def _times(a: tl.tensor, b: tl.tensor) -> tl.tensor:
    """The product of two polynomials modulo the polynomial."""
    result = tl.zeros_like(a)
    for bit in tl.static_range(32):
        result ^= tl.where((a & (1 << (31 - bit))) != 0, b, 0).to(tl.uint32)
        b = (b >> 1) ^ tl.where((b & 1) != 0, 0xEDB88320, 0).to(tl.uint32)
    return result


@triton.jit
def _exclusive_or(a: tl.tensor, b: tl.tensor) -> tl.tensor:
    return a ^ b


@triton.jit
def _crc_kernel(  # what a kernel reads has no other way in
    numbers_ptr: tl.tensor,  # staged buffer as int32
    index_ptr: tl.tensor,  # (samples, COLUMNS) int64
    lanes_ptr: tl.tensor,  # (LANES,) int32
    chunks_ptr: tl.tensor,  # (chunks,) int32
    crcs_ptr: tl.tensor,  # (samples,) int32: the chunks' shares by exclusive or
    COLUMNS: tl.constexpr,
    LANES: tl.constexpr,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
) -> None:  # a program takes one chunk of one body
    sample = tl.program_id(1).to(tl.int64)
    chunk = tl.program_id(0).to(tl.int64)
    index = index_ptr + sample * COLUMNS
    words = tl.load(index + 1) // 4
    body = numbers_ptr + tl.multiple_of(tl.load(index) // 4, 16)
    lane = tl.arange(0, LANES)
    begin = words - (chunk + 1) * (LANES * ROWS)
    state = tl.zeros((LANES,), tl.uint32)
    if words > chunk * (LANES * ROWS):
        for row in range(tl.maximum(-begin, 0) // LANES, ROWS):  # rows before the front are zeros
            at = tl.multiple_of(begin + row * LANES, 16) + lane
            word = tl.load(body + at, mask=at >= 0, other=0).to(tl.uint32, bitcast=True)
            word ^= tl.where(at == 0, 0xFFFFFFFF, 0).to(tl.uint32)  # the CRC's start value
            state = _times_row(state, STEP) ^ word
        state = _times(state, tl.load(lanes_ptr + lane).to(tl.uint32, bitcast=True))
        of_chunk = tl.reduce(state, 0, _exclusive_or)
        of_chunk = _times(of_chunk, tl.load(chunks_ptr + chunk).to(tl.uint32, bitcast=True))
        tl.atomic_xor(crcs_ptr + sample, of_chunk.to(tl.int32, bitcast=True))


def launch(staged: Staged, status: torch.Tensor) -> None:
    """`status` (samples,) uint8 becomes 1 where a body is not of its CRC-32."""
    device = status.device
    checksums = torch.zeros(staged.samples, dtype=torch.int32, device=device)
    chunks = triton.cdiv(staged.most[1], CHUNK_NBYTES)
    if chunks:
        _crc_kernel[(chunks, staged.samples)](
            staged.buffer.view(torch.int32), staged.index, _of_lanes(device),
            _of_chunks(chunks, device), checksums,
            COLUMNS=COLUMNS, LANES=LANES, ROWS=ROWS, STEP=ROW_STEP.value, **OPTIONS,
        )  # fmt: skip

    # The final inversion, but for empty bodies; CRCs are compared as unsigned numbers.
    index = staged.index
    inverted = torch.where(index[:, 1] > 0, ~checksums, checksums).to(torch.int64) & 0xFFFFFFFF
    status |= inverted != index[:, 2]
