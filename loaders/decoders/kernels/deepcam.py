"""DeepCAM's lines on a GPU: lines of one mode together, differences summed by a parallel scan.

Bytes of a sample of 16 x 768 x 1152: 14.2 MB read where every line is DELTA, 28.3 MB written.
The scan is over integers, and head + unit * sum is rounded once: the bits are the CPU's.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from ..container import Encoded
from ..deltas import HEAD, UNITS
from ..lines import LineSections
from ..staging import Column, Staged, require_good
from ..staging import stage as stage_columns

LINES = 16
SPAN = 128
OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}
(DELTA_LINES, FIRSTS, CODES, SEGMENTS, RAW_LINES, RAW, CONST_LINES, CONST_VALUES) = range(8)
(DELTAS, SEGMENT_COUNT, RAWS, CONSTS) = range(8, 12)
COLUMNS = 12


def stage(samples: Sequence[Encoded], *, pin_memory: bool = False) -> Staged:
    """The samples in one buffer on the host: eight sections and four numbers each.

    Raises:
        InputError: Sections contradict the shape or each other.
    """
    return stage_columns([_columns(LineSections.of(s)) for s in samples], pin_memory=pin_memory)


def reference(staged: Staged, out: torch.Tensor) -> None:
    """Fills `out` (samples, ..., width) float16 with PyTorch's operators."""
    width = out.shape[-1]
    views = {n: staged.buffer.view(t) for n, t in _VIEWS.items()}
    units = torch.from_numpy(UNITS).to(out.device)
    index = views[8][: staged.samples * COLUMNS].view(-1, COLUMNS).tolist()
    for row, target in zip(index, out, strict=True):
        bits = target.view(torch.int16).view(-1, width)
        lines = views[4][row[DELTA_LINES] // 4 :][: row[DELTAS]].long()
        firsts = views[4][row[FIRSTS] // 4 :][: row[DELTAS], None].long()
        codes = staged.buffer[row[CODES] :][: row[DELTAS] * width].view(-1, width).long()
        total = units[codes].cumsum(1)  # a byte a value read
        number = firsts + (codes == HEAD).cumsum(1) - 1
        word = views[8][row[SEGMENTS] // 8 + number]
        head = (word & 0xFFFF).to(torch.int16).view(torch.float16).float()
        unit = ((word >> 16 & 0xFF) << 23).to(torch.int32).view(torch.float32)
        value = head + unit * (total - (word >> 32)).float()
        bits[lines] = value.half().view(torch.int16)  # 2 bytes a value written
        lines = views[4][row[RAW_LINES] // 4 :][: row[RAWS]].long()
        bits[lines] = views[2][row[RAW] // 2 :][: row[RAWS] * width].view(-1, width)
        lines = views[4][row[CONST_LINES] // 4 :][: row[CONSTS]].long()
        bits[lines] = views[2][row[CONST_VALUES] // 2 :][: row[CONSTS], None]


@triton.jit
def _units(code: tl.tensor) -> tl.tensor:  # difference in units of its segment, 0 for a head
    size = (16 + (code & 15)) << ((code >> 4) & 7)
    size = tl.where((code & 127) == 0, 0, size)
    return tl.where(code > 128, -size, size)


@triton.jit
def _half_bits(word: tl.tensor, run: tl.tensor) -> tl.tensor:  # float16 of segment and running sum
    start = (word & 0xFFFF).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    unit = (((word >> 16) & 0xFF).to(tl.int32) << 23).to(tl.float32, bitcast=True)
    value = start + unit * (run - (word >> 32).to(tl.int32)).to(tl.float32)
    return value.to(tl.float16).to(tl.int16, bitcast=True)


@triton.jit
def _listed_lines(
    numbers_ptr: tl.tensor, index: tl.tensor, row: tl.tensor, lines: int
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """Of rows in the table of lines: listed?, line, first segment, end, and fit to be decoded?"""
    listed = row < tl.load(index + 8)
    line = tl.load(numbers_ptr + tl.load(index) // 4 + row, mask=listed, other=0).to(tl.int64)
    firsts = numbers_ptr + tl.load(index + 1) // 4 + row
    first = tl.load(firsts, mask=listed, other=0)
    end = tl.minimum(tl.load(firsts + 1, mask=listed, other=0), tl.load(index + 9).to(tl.int32))
    good = listed & (line >= 0) & (line < lines) & (first >= 0)
    return listed, line, first, end, good


@triton.jit
def _delta_kernel(  # noqa: PLR0913 - what a kernel reads has no other way in
    bytes_ptr: tl.tensor,  # staged buffer as uint8
    numbers_ptr: tl.tensor,  # the same as int32
    words_ptr: tl.tensor,  # the same as int64
    out_ptr: tl.tensor,  # (samples, lines, width) int16
    status_ptr: tl.tensor,  # (samples,) int32
    lines: int,
    width: int,
    COLUMNS: tl.constexpr,
    LINES: tl.constexpr,
    SPAN: tl.constexpr,
) -> None:  # a program decodes LINES lines of one sample, SPAN values at a time
    sample = tl.program_id(1).to(tl.int64)
    index = words_ptr + sample * COLUMNS
    row = tl.program_id(0).to(tl.int64) * LINES + tl.arange(0, LINES)
    listed, line, first, end, good = _listed_lines(numbers_ptr, index, row, lines)
    codes = bytes_ptr + tl.multiple_of(tl.load(index + 2), 16) + row[:, None] * width
    segments = words_ptr + tl.load(index + 3) // 8
    target = out_ptr + (sample * lines + line[:, None]) * width
    total = tl.zeros((LINES,), tl.int32)
    number = first - 1
    strange = tl.zeros((LINES,), tl.int32)
    for begin in range(0, width, SPAN):
        column = begin + tl.arange(0, SPAN)[None, :]
        inside = good[:, None] & (column < width)
        code = tl.load(codes + column, mask=inside, other=0).to(tl.int32)
        step = _units(code)
        head = (code == 128).to(tl.int32)
        run = tl.cumsum(step, 1) + total[:, None]
        own = tl.cumsum(head, 1) + number[:, None]
        total += tl.sum(step, 1)
        number += tl.sum(head, 1)
        known = inside & (own >= first[:, None]) & (own < end[:, None])
        word = tl.load(segments + own, mask=known, other=0)
        tl.store(target + column, _half_bits(word, run), mask=inside)
        outside = (own < first[:, None]) | (own >= end[:, None])
        strange += tl.sum((inside & outside).to(tl.int32), 1)
    strange += (listed & ((line < 0) | (line >= lines) | (number + 1 != end))).to(tl.int32)
    tl.store(status_ptr + sample, 1, mask=tl.sum(strange, 0) > 0)


@triton.jit
def _copy_kernel(  # noqa: PLR0913 - what a kernel reads has no other way in
    halves_ptr: tl.tensor,  # staged buffer as int16
    numbers_ptr: tl.tensor,  # the same as int32
    words_ptr: tl.tensor,  # the same as int64
    out_ptr: tl.tensor,  # (samples, lines, width) int16
    lines: int,
    width: int,
    COLUMNS: tl.constexpr,
    FIRST: tl.constexpr,  # columns of the line numbers and, after it, of the values
    COUNT: tl.constexpr,  # column of how many
    STEP: tl.constexpr,  # 1: a value a point, 0: a value a line
    LINES: tl.constexpr,
    SPAN: tl.constexpr,
) -> None:  # a program copies SPAN values of LINES lines of one sample
    sample = tl.program_id(2).to(tl.int64)
    index = words_ptr + sample * COLUMNS
    row = tl.program_id(1).to(tl.int64) * LINES + tl.arange(0, LINES)
    listed = row < tl.load(index + COUNT)
    line = tl.load(numbers_ptr + tl.load(index + FIRST) // 4 + row, mask=listed, other=0)
    line = line.to(tl.int64)
    good = listed & (line >= 0) & (line < lines)
    column = tl.program_id(0).to(tl.int64) * SPAN + tl.arange(0, SPAN)[None, :]
    inside = good[:, None] & (column < width)
    values = halves_ptr + tl.multiple_of(tl.load(index + FIRST + 1) // 2, 16)
    if STEP == 1:
        bits = tl.load(values + row[:, None] * width + column, mask=inside, other=0)
    else:
        bits = tl.load(values + row, mask=listed, other=0)[:, None] + tl.zeros_like(column).to(
            tl.int16
        )
    tl.store(out_ptr + (sample * lines + line[:, None]) * width + column, bits, mask=inside)


def launch(staged: Staged, out: torch.Tensor) -> torch.Tensor:
    """Begins to fill `out` (samples, ..., width) float16 on its device.

    Returns:
        (samples,) int32 on the device: 1 where codes and segments of a line contradict each
        other; values without a segment are 0.
    """
    width = out.shape[-1]
    lines = out[0].numel() // width if width else 0
    views = {n: staged.buffer.view(t) for n, t in _VIEWS.items()}
    bits = out.view(torch.int16)
    status = torch.zeros(staged.samples, dtype=torch.int32, device=out.device)
    shape = {"COLUMNS": COLUMNS, "LINES": LINES, "SPAN": SPAN} | OPTIONS
    if width and staged.most[DELTAS]:
        _delta_kernel[(triton.cdiv(staged.most[DELTAS], LINES), staged.samples)](
            staged.buffer, views[4], views[8], bits, status, lines, width, **shape
        )
    for first, count, step in ((RAW_LINES, RAWS, 1), (CONST_LINES, CONSTS, 0)):
        if width and staged.most[count]:
            tiles = triton.cdiv(staged.most[count], LINES)
            _copy_kernel[(triton.cdiv(width, SPAN), tiles, staged.samples)](
                views[2], views[4], views[8], bits, lines, width,
                FIRST=first, COUNT=count, STEP=step, **shape,
            )  # fmt: skip
    return status


def decode(samples: Sequence[Encoded], out: torch.Tensor) -> None:
    """Fills `out` (samples, ..., width) float16 on its device, and waits for it.

    Raises:
        InputError: Sections, codes and segments contradict each other.
    """
    staged = stage(samples, pin_memory=out.is_cuda)
    require_good(launch(staged.to(out.device), out))


_VIEWS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def _columns(held: LineSections) -> tuple[Column, ...]:
    return (
        held.delta_lines, held.firsts, held.codes, held.segments,
        held.raw_lines, held.raw, held.const_lines, held.const_values,
        len(held.delta_lines), len(held.segments), len(held.raw_lines), len(held.const_lines),
    )  # fmt: skip
