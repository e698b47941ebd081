"""DeepCAM's lines on a GPU: lines of one mode together, differences summed by a parallel scan.

Bytes of a sample of 16 x 768 x 1152: 14.2 MB read where every line is DELTA, 28.3 MB written.
The bits are the CPU's: sums are of integers (eighths of them, as float32, within a group), and
head + unit * sum is rounded once.

What a value costs decides here, not only bytes: a thread holds a group of 16 values in four
words of 32 bits. Of a byte, `s eee mmmm`, the float32 with sign s, exponent 128 + e and mantissa m
is (16 + m) * 2^e / 8; bit 30 is left out where the byte is 0 or a head, which makes it 0. All
16 values are decoded with the segment in which their group begins; a second pass, over tiles in
which a head occurs, decodes again what is behind it. `benchmarks/loaders/kernel_instructions.py`
counts the compiled instructions.
"""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl

from ..container import Encoded
from ..deepcam import LineSections, Units
from ..deltas import HEAD, UNITS
from ..staging import Column, Staged

LINES = 64 if triton.knobs.runtime.interpret else 4
"""Of a program. In the interpreter an operation costs the same, however large its tensors are."""
SPAN = 128  # values of a line at a time
OPTIONS = {"num_warps": 1, "enable_fp_fusion": False}
COPY_LINES = 16  # of a program that only copies
COPY_OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}
(DELTA_LINES, FIRSTS, CODES, SEGMENTS, RAW_LINES, RAW, CONST_LINES, CONST_VALUES) = range(8)
(DELTAS, SEGMENT_COUNT, RAWS, CONSTS) = range(8, 12)
(OFFSETS, FACTORS, CHANNELS) = range(12, 15)
COLUMNS = 15


def columns(encoded: Encoded) -> tuple[Column, ...]:
    """Eight sections and four numbers; offsets, factors and the number of channels that have them.

    Raises:
        InputError: Sections contradict the shape or each other.
    """
    held = LineSections.of(encoded)
    units = held.units or Units(np.empty(0, np.float32), np.empty(0, np.float32))
    return (
        held.delta_lines, held.firsts, held.codes, held.segments,
        held.raw_lines, held.raw, held.const_lines, held.const_values,
        len(held.delta_lines), len(held.segments), len(held.raw_lines), len(held.const_lines),
        units.offsets, units.factors, len(units.factors),
    )  # fmt: skip


def reference(staged: Staged, out: torch.Tensor) -> None:
    """Fills `out` (samples, ..., width) float16 or float32 with PyTorch's operators."""
    # As float32: decoded to float16, then out of the units of each channel.
    if out.dtype == torch.float32:
        halves = torch.empty(out.shape, dtype=torch.float16, device=out.device)
        reference(staged, halves)
        floats = staged.buffer.view(torch.float32)
        for row, half, target in zip(staged.index.tolist(), halves, out, strict=True):
            target.copy_(half)
            if row[CHANNELS]:
                per_channel = (-1, *(1,) * (target.ndim - 1))
                target *= floats[row[FACTORS] // 4 :][: row[CHANNELS]].view(per_channel)
                target += floats[row[OFFSETS] // 4 :][: row[CHANNELS]].view(per_channel)
            target[target.isnan()] = torch.nan
        return
    width = out.shape[-1]
    views = {n: staged.buffer.view(t) for n, t in _VIEWS.items()}
    units = torch.from_numpy(UNITS).to(out.device)
    for row, target in zip(staged.index.tolist(), out, strict=True):
        bits = target.view(torch.int16).view(-1, width)
        # Lines of deltas: from the head of each segment on, sums of units.
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
        # Lines that are stored as they are, and those of one value.
        lines = views[4][row[RAW_LINES] // 4 :][: row[RAWS]].long()
        bits[lines] = views[2][row[RAW] // 2 :][: row[RAWS] * width].view(-1, width)
        lines = views[4][row[CONST_LINES] // 4 :][: row[CONSTS]].long()
        bits[lines] = views[2][row[CONST_VALUES] // 2 :][: row[CONSTS], None]


@triton.jit
def _signs(word: tl.tensor) -> tl.tensor:
    """Per byte: bit 7 its sign, bit 6 whether it stands for a difference other than 0."""
    sized = (word & 0x7F7F7F7F) + 0x7F7F7F7F
    return (word & 0x80808080) | ((sized >> 1) & 0x40404040)


@triton.jit
def _step(word: tl.tensor, signs: tl.tensor, UP: tl.constexpr) -> tl.tensor:
    """An eighth of the difference of the byte that is shifted UP to the top; 0 for a head."""
    bits = (((word << UP) >> 5) & 0x03F80000) | ((signs << UP) & 0xC0000000)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _sums(word: tl.tensor, before: tl.tensor) -> tuple[tl.tuple, tl.tensor]:
    """The running sums of the four bytes of a word, and per byte a 1 where it is a head."""
    # Each byte's step on top of the one before.
    signs = _signs(word)
    first = before + _step(word, signs, 24)
    second = first + _step(word, signs, 16)
    third = second + _step(word, signs, 8)
    heads = (signs >> 7) & ~(signs >> 6) & 0x01010101
    return (first, second, third, third + _step(word, signs, 0)), heads


@triton.jit
def _counted(heads: tl.tensor, before: tl.tensor) -> tl.tensor:
    """Per byte the heads up to it: of the word before, and of this one."""
    return heads * 0x01010101 + (before >> 24) * 0x01010101


@triton.jit
def _segment(
    segments: tl.tensor, number: tl.tensor, inside: tl.tensor, total: tl.tensor
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Head, eight units, and eighths of the sum from the head to where the line's is `total`."""
    word = tl.load(segments + number, mask=inside, other=0)
    low = word.to(tl.int32)
    head = low.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    units = (((low << 7) & 0x7F800000) + (3 << 23)).to(tl.float32, bitcast=True)
    return head, units, (total - (word >> 32).to(tl.int32)).to(tl.float32) * 0.125


@triton.jit
def _values(sums: tl.tuple, head: tl.tensor, units: tl.tensor, since: tl.tensor) -> tl.tuple:
    """The product is exact (a power of two): one rounding, as on the CPU."""
    return (
        tl.fma(units, since + sums[0], head),
        tl.fma(units, since + sums[1], head),
        tl.fma(units, since + sums[2], head),
        tl.fma(units, since + sums[3], head),
    )


@triton.jit
def _behind(
    values: tl.tuple,
    sums: tl.tuple,
    reached: tl.tensor,  # per byte, bit 7: a value of this segment, or of one behind it
    head: tl.tensor,
    units: tl.tensor,
    since: tl.tensor,
) -> tl.tuple:
    anew = _values(sums, head, units, since)
    return (
        tl.where((reached & 0x80) != 0, anew[0], values[0]),
        tl.where((reached & 0x8000) != 0, anew[1], values[1]),
        tl.where((reached & 0x800000) != 0, anew[2], values[2]),
        tl.where((reached & 0x80000000) != 0, anew[3], values[3]),
    )


@triton.jit
def _halves(values: tl.tuple) -> tl.tensor:
    """The four values of each word as float16, (lines, groups, 4) in their order."""
    even = tl.join(values[0].to(tl.float16), values[2].to(tl.float16))
    odd = tl.join(values[1].to(tl.float16), values[3].to(tl.float16))
    both = tl.join(even, odd)
    return tl.reshape(both, (both.shape[0], both.shape[1], 4))


@triton.jit
def _in_order(a: tl.tensor, b: tl.tensor, c: tl.tensor, d: tl.tensor) -> tl.tensor:
    """The values of the four words of each group as int16, (lines, values) in their order."""
    lines: tl.constexpr = a.shape[0]
    values: tl.constexpr = a.shape[1] * 16
    words = tl.permute(tl.join(tl.join(a, c), tl.join(b, d)), (0, 1, 3, 4, 2))
    return tl.reshape(words, (lines, values)).to(tl.int16, bitcast=True)


@triton.jit
def _words(
    codes: tl.tensor, good: tl.tensor, left: tl.tensor, GROUPS: tl.constexpr, WHOLE: tl.constexpr
) -> tl.tensor:
    """(lines, GROUPS, 4) words of four codes each, 0 where `left` columns have ended.

    WHOLE: lines are whole groups, so that `codes` points to words and 16 bytes are loaded at once.
    """
    group = tl.arange(0, GROUPS)[None, :, None]
    word = group * 4 + tl.arange(0, 4)[None, None, :]
    if WHOLE:
        inside = good & (group * 16 < left)
        return tl.load(codes + word, mask=inside, other=0).to(tl.uint32, bitcast=True)
    # A width that is no multiple of 16: byte by byte, as words would not be aligned.
    found = tl.zeros_like(word + good.to(tl.int32)).to(tl.uint32)
    for byte in tl.static_range(4):
        at = word * 4 + byte
        code = tl.load(codes + at, mask=good & (at < left), other=0).to(tl.uint32)
        found |= code << (8 * byte)
    return found


@triton.jit
def _without_first(word: tl.tensor, good: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """The words of a line's begin, its head taken for no difference; and its first code."""
    group, quarter = tl.arange(0, word.shape[1]), tl.arange(0, 4)
    begins = good & (group[None, :, None] == 0) & (quarter[None, None, :] == 0)
    first = tl.sum(tl.sum(tl.where(begins, word & 0xFF, 0), 2), 1)
    return word ^ tl.where(begins, 0x80, 0).to(tl.uint32), first


@triton.jit
def _decoded(
    words: tl.tuple, segments: tl.tensor, number: tl.tensor, end: tl.tensor, carry: tl.tensor
) -> tuple[tl.tensor, tl.tensor]:
    """Values of a span (lines, values), and a group's sum of differences * 256 + its heads.

    `number` is the segment and `carry` the sum with which each line's span begins.
    """
    # Sums and heads within a group, word by word.
    a, heads_a = _sums(words[0], tl.zeros_like(words[0]).to(tl.float32))
    b, heads_b = _sums(words[1], a[3])
    c, heads_c = _sums(words[2], b[3])
    d, heads_d = _sums(words[3], c[3])
    count_a = heads_a * 0x01010101
    count_b = _counted(heads_b, count_a)
    count_c = _counted(heads_c, count_b)
    count_d = _counted(heads_d, count_c)
    heads = (count_d >> 24).to(tl.int32)
    # One scan for both: the sum times 256 is below 2^28, the heads of a span are at most 128.
    both = (d[3] * 2048).to(tl.int32) + heads
    through = tl.cumsum(both, 1) - both
    total = carry[:, None] + (through >> 8)
    segment = number[:, None] + (through & 0xFF)
    # Values of the segment in which a group begins; those of further heads replace them below.
    head, units, since = _segment(segments, segment, segment < end[:, None], total)
    values_a = _values(a, head, units, since)
    values_b = _values(b, head, units, since)
    values_c = _values(c, head, units, since)
    values_d = _values(d, head, units, since)
    # Bit 7 of a byte: as many heads up to it as in this pass of the loop, or more.
    reached = 0x7F7F7F7F
    for _ in range(tl.max(heads)):
        segment += 1
        head, units, since = _segment(segments, segment, segment < end[:, None], total)
        values_a = _behind(values_a, a, count_a + reached, head, units, since)
        values_b = _behind(values_b, b, count_b + reached, head, units, since)
        values_c = _behind(values_c, c, count_c + reached, head, units, since)
        values_d = _behind(values_d, d, count_d + reached, head, units, since)
        reached -= 0x01010101
    return _in_order(
        _halves(values_a), _halves(values_b), _halves(values_c), _halves(values_d)
    ), both


@triton.jit
def _listed_lines(
    numbers_ptr: tl.tensor, index: tl.tensor, row: tl.tensor, lines: int
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """Of rows in the table of lines: listed?, line, first segment, end, and fit to be decoded?"""
    # The buffer may be damaged: what is read of it is bounded, or marked as not good.
    listed = row < tl.load(index + 8)
    line = tl.load(numbers_ptr + tl.load(index) // 4 + row, mask=listed, other=0).to(tl.int64)
    firsts = numbers_ptr + tl.load(index + 1) // 4 + row
    first = tl.load(firsts, mask=listed, other=0)
    end = tl.minimum(tl.load(firsts + 1, mask=listed, other=0), tl.load(index + 9).to(tl.int32))
    good = listed & (line >= 0) & (line < lines) & (first >= 0) & (first < end)
    return listed, line, first, end, good


@triton.jit
def _delta_kernel(  # what a kernel reads has no other way in
    bytes_ptr: tl.tensor,  # staged buffer as uint8
    numbers_ptr: tl.tensor,  # the same as int32
    words_ptr: tl.tensor,  # the same as int64
    index_ptr: tl.tensor,  # (samples, COLUMNS) int64
    out_ptr: tl.tensor,  # (samples, lines, width) int16
    status_ptr: tl.tensor,  # (samples,) uint8
    lines: int,
    width: int,
    COLUMNS: tl.constexpr,
    LINES: tl.constexpr,
    SPAN: tl.constexpr,
    WHOLE: tl.constexpr,
) -> None:  # a program decodes LINES lines of one sample, SPAN values at a time
    sample = tl.program_id(1).to(tl.int64)
    index = index_ptr + sample * COLUMNS
    row = tl.program_id(0).to(tl.int64) * LINES + tl.arange(0, LINES)
    # Which lines, and which segments each has; a line whose numbers make no sense is left out.
    listed, line, first, end, good = _listed_lines(numbers_ptr, index, row, lines)
    at = tl.multiple_of(tl.load(index + 2), 16)
    NBYTES: tl.constexpr = 4 if WHOLE else 1  # of what `codes` points to
    if WHOLE:
        words = tl.multiple_of(width // 4, 4)
        codes = numbers_ptr + at // 4 + row[:, None, None] * words
    else:
        codes = bytes_ptr + at + row[:, None, None] * width
    segments = words_ptr + tl.load(index + 3) // 8
    target = out_ptr + (sample * lines + line[:, None]) * width
    GROUPS: tl.constexpr = SPAN // 16
    column = tl.arange(0, SPAN)[None, :]
    exists = good[:, None, None]
    word, own = _without_first(_words(codes, exists, width, GROUPS, WHOLE), exists)
    # A value is the sum of all differences before it. `carry` is that sum where a span begins, and
    # `number` the segment: so lines are decoded in spans, and a span in parallel.
    carry = tl.zeros((LINES,), tl.int32)
    number = first
    for begin in range(0, width, SPAN):
        low, high = tl.split(tl.reshape(word, (LINES, GROUPS, 2, 2)))
        word_a, word_c = tl.split(low)
        word_b, word_d = tl.split(high)
        # The bytes of the next span are asked for before this one is decoded.
        next_at = begin + SPAN
        word = _words(codes + next_at // NBYTES, exists, width - next_at, GROUPS, WHOLE)
        halves, both = _decoded((word_a, word_b, word_c, word_d), segments, number, end, carry)
        # The sum and how many heads there were lie in one number: one reduction for both.
        of_span = tl.sum(both, 1)
        carry += of_span >> 8
        number += of_span & 0xFF
        tl.store(target + begin + column, halves, mask=good[:, None] & (begin + column < width))
    # Damaged is a line with more or fewer heads than segments, or without one at its beginning.
    strange = (listed & ~good) | (good & ((number + 1 != end) | (own != 0x80)))
    tl.store(status_ptr + sample, 1, mask=tl.max(strange.to(tl.int32), 0) > 0)


@triton.jit
def _copy_kernel(  # what a kernel reads has no other way in
    halves_ptr: tl.tensor,  # staged buffer as int16
    numbers_ptr: tl.tensor,  # the same as int32
    index_ptr: tl.tensor,  # (samples, COLUMNS) int64
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
    index = index_ptr + sample * COLUMNS
    row = tl.program_id(1).to(tl.int64) * LINES + tl.arange(0, LINES)
    listed = row < tl.load(index + COUNT)
    # Lines are listed by number; one out of range is neither read nor written.
    line = tl.load(numbers_ptr + tl.load(index + FIRST) // 4 + row, mask=listed, other=0)
    line = line.to(tl.int64)
    good = listed & (line >= 0) & (line < lines)
    column = tl.program_id(0).to(tl.int64) * SPAN + tl.arange(0, SPAN)[None, :]
    inside = good[:, None] & (column < width)
    values = halves_ptr + tl.multiple_of(tl.load(index + FIRST + 1) // 2, 16)
    # Raw lines have a value for each point, constant ones a value for the line.
    if STEP == 1:
        bits = tl.load(values + row[:, None] * width + column, mask=inside, other=0)
    else:
        bits = tl.load(values + row, mask=listed, other=0)[:, None] + tl.zeros_like(column).to(
            tl.int16
        )
    tl.store(out_ptr + (sample * lines + line[:, None]) * width + column, bits, mask=inside)


@triton.jit
def _restore_kernel(  # what a kernel reads has no other way in
    halves_ptr: tl.tensor,  # (samples, lines, width) float16
    floats_ptr: tl.tensor,  # staged buffer as float32
    index_ptr: tl.tensor,  # (samples, COLUMNS) int64
    out_ptr: tl.tensor,  # (samples, lines, width) float32
    lines: int,
    width: int,
    rows: int,  # lines of a channel
    COLUMNS: tl.constexpr,
    OFFSETS: tl.constexpr,
    FACTORS: tl.constexpr,
    CHANNELS: tl.constexpr,
    LINES: tl.constexpr,
    SPAN: tl.constexpr,
) -> None:  # a program gives SPAN values of LINES lines of one sample their units
    sample = tl.program_id(2).to(tl.int64)
    index = index_ptr + sample * COLUMNS
    line = tl.program_id(1).to(tl.int64) * LINES + tl.arange(0, LINES)
    column = tl.program_id(0).to(tl.int64) * SPAN + tl.arange(0, SPAN)[None, :]
    inside = (line < lines)[:, None] & (column < width)
    channel = line // rows
    known = (line < lines) & (channel < tl.load(index + CHANNELS))
    offset = tl.load(floats_ptr + tl.load(index + OFFSETS) // 4 + channel, mask=known, other=0.0)
    factor = tl.load(floats_ptr + tl.load(index + FACTORS) // 4 + channel, mask=known, other=1.0)
    at = (sample * lines + line[:, None]) * width + column
    half = tl.load(halves_ptr + at, mask=inside, other=0.0).to(tl.float32)
    value = half * factor[:, None] + offset[:, None]  # the product is exact: one rounding
    value = tl.where(known[:, None], value, half)  # where nothing is added, -0 stays -0
    value = tl.where(value == value, value, float("nan"))
    tl.store(out_ptr + at, value, mask=inside)


def launch(staged: Staged, out: torch.Tensor, status: torch.Tensor) -> None:
    """Begins to fill `out` (samples, ..., width) float16 or float32 on its device.

    `status` (samples,) uint8 there becomes 1 where codes and segments of a line contradict each
    other; values without a segment are 0.
    """
    # float32 is the lines as float16, brought to the units of their channels.
    if out.dtype == torch.float32:
        halves = torch.empty(out.shape, dtype=torch.float16, device=out.device)
        launch(staged, halves, status)
        width, channels = out.shape[-1], out.shape[1]
        lines = out[0].numel() // width if width else 0
        if lines:
            tiles = (triton.cdiv(width, SPAN), triton.cdiv(lines, COPY_LINES), staged.samples)
            _restore_kernel[tiles](
                halves, staged.buffer.view(torch.float32), staged.index, out, lines, width,
                lines // channels, COLUMNS=COLUMNS, OFFSETS=OFFSETS, FACTORS=FACTORS,
                CHANNELS=CHANNELS, LINES=COPY_LINES, SPAN=SPAN, **COPY_OPTIONS,
            )  # fmt: skip
        return

    # Lines of differences; then raw ones and those of one value, which are only copied.
    width = out.shape[-1]
    lines = out[0].numel() // width if width else 0
    views = {n: staged.buffer.view(t) for n, t in _VIEWS.items()}
    bits = out.view(torch.int16)
    if width and staged.most[DELTAS]:
        _delta_kernel[(triton.cdiv(staged.most[DELTAS], LINES), staged.samples)](
            staged.buffer, views[4], views[8], staged.index, bits, status, lines, width,
            COLUMNS=COLUMNS, LINES=LINES, SPAN=SPAN, WHOLE=width % 16 == 0, **OPTIONS,
        )  # fmt: skip
    for first, count, step in ((RAW_LINES, RAWS, 1), (CONST_LINES, CONSTS, 0)):
        if width and staged.most[count]:
            tiles = triton.cdiv(staged.most[count], COPY_LINES)
            _copy_kernel[(triton.cdiv(width, SPAN), tiles, staged.samples)](
                views[2], views[4], staged.index, bits, lines, width,
                COLUMNS=COLUMNS, FIRST=first, COUNT=count, STEP=step,
                LINES=COPY_LINES, SPAN=SPAN, **COPY_OPTIONS,
            )  # fmt: skip


_VIEWS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
