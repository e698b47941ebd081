"""Lines as byte differences: the arithmetic of the DeepCAM codec, compiled.

See `vanidl_loaders.decoders.deepcam` for the format. All of it is in one module, because the
compiler's cache notices a change of the caller's file only.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .staging import compile_function

CONST, DELTA, RAW = 0, 1, 2  # how a line is stored: one value, byte differences, float16
HEAD = 0x80
LARGEST = 31 << 7
"""Largest difference, in units."""
SEGMENT_NBYTES = 8  # its head, exponent and sum in one int64
RUN = 8
"""Equal values in a row that begin a segment of their own: exact, whatever came before."""
EXPONENT_LEAST = -26
"""Of a unit: 2^-26 is a quarter of float16's smallest step."""
SUM_MOST = 1 << 22
"""A segment ends before its sum leaves the integers that float32 holds exactly (2^24)."""
OVER_MOST = 0.03  # of a line's values may be more than a tenth off: the paper's figure (V.A)
NEAR_ZERO = 8.5
"""Units by which a small difference is missed at most: half of the smallest, 17."""
ROOM = 33 / 32 / LARGEST
"""Unit that the largest difference needs, relative to it, with room for the last error."""

# The normal numbers of float16.
_NORMAL_LEAST, _HALF_MOST = np.float32(2.0**-14), np.float32(65504.0)

Floats = NDArray[np.float32]
Bits = NDArray[np.uint16]
Bytes = NDArray[np.uint8]


def _make_units() -> NDArray[np.int32]:
    """(256,) difference of each byte, in units."""
    byte = np.arange(256)
    size = (16 + (byte & 15)) << ((byte >> 4) & 7)
    size[[0, HEAD]] = 0
    return np.where(byte & 128, -size, size).astype(np.int32)


def _make_nearest_codes() -> Bytes:
    """(LARGEST + 1,) byte of the nearest difference to each integer, the smaller of two."""
    sizes = UNITS[:HEAD]
    distance = np.abs(np.arange(LARGEST + 1)[:, None] - sizes[None, :])
    return (distance + (sizes == 0) * 0.5 * (distance > 0)).argmin(1).astype(np.uint8)


UNITS = _make_units()
NEAREST = _make_nearest_codes()


@compile_function
def encode(  # compiled functions take arrays, not records
    lines: Floats,
    bits: Bits,
    rounded: Floats,
    floors: Floats,
    codes: NDArray[np.uint8],
    modes: NDArray[np.uint8],
    numbers: NDArray[np.int64],
    closed: bool,
    tolerance: np.float32,
) -> NDArray[np.int64]:
    """Encodes all lines; the segments of the DELTA lines one after another."""
    count, width = lines.shape
    # With more segments a line would be as long as it is raw.
    most = width // SEGMENT_NBYTES + 1
    segments, held = np.empty(max(64, 4 * count), np.int64), 0
    own = np.empty(most, np.int64)
    for line in range(count):
        mode, number = _encode_line(
            lines[line], bits[line], rounded[line], floors[line], codes[line], own, closed,
            tolerance,
        )  # fmt: skip
        modes[line] = mode
        if mode == DELTA:
            numbers[line] = number
            # Twice as much room, where a smooth image turns out rough.
            if held + number > len(segments):
                larger = np.empty(2 * (held + number), np.int64)
                larger[:held] = segments[:held]
                segments = larger
            segments[held : held + number] = own[:number]
            held += number
    return segments[:held]


@compile_function
def decode(
    codes: NDArray[np.uint8],
    firsts: NDArray[np.uint32],
    segments: NDArray[np.int64],
    lines: NDArray[np.uint32],
    out: Bits,
) -> bool:
    """Decodes lines; False where one contradicts its segments."""
    values = np.empty(codes.shape[1], np.float32)
    good = True
    for row in range(len(codes)):
        own = segments[firsts[row] : firsts[row + 1]]
        good &= _decode_line(codes[row], own, values, out[lines[row]])
    return good


@compile_function
def _encode_line(  # compiled functions take arrays, not records
    line: Floats,
    bits: Bits,
    rounded: Floats,
    floor: np.float32,
    codes: Bytes,
    segments: NDArray[np.int64],
    closed: bool,
    tolerance: np.float32,
) -> tuple[int, int]:
    """Mode and number of segments; fills `codes` and `segments` for DELTA.

    `bits` and `rounded` hold the line's float16, as bits and as float32; `floor` is the absolute
    and `tolerance` the relative tolerance; `codes` has room for a byte a value, `segments` for as
    many as a DELTA line may have; `closed` takes differences from decoded, not original, values.
    """
    width = len(line)
    # Lines that differences would not hold go as they are, or as one value.
    if not _is_plain(line):
        return RAW, 0
    if _is_constant(bits):
        return CONST, 0
    number, total, at, over = 0, 0, 0, 0
    # Segment by segment: its head as float16, then differences in one unit.
    while at < width:
        if number == len(segments):
            return RAW, 0
        if closed:
            end, largest = _find_closed_end(line, at, floor, tolerance)
        else:
            end, largest = _find_open_end(line, at)
        exponent = _choose_exponent(largest)
        # Head, exponent and the line's sum so far in one number: a segment is decoded alone.
        segments[number] = np.int64(bits[at]) | (exponent + 127) << 16 | total << 32
        codes[at] = HEAD
        at, total, missed = _encode_differences(
            line, codes, at, end, rounded[at], exponent, total, closed
        )
        number, over = number + 1, over + missed
    # Not worth it: no smaller than float16, or too many values more than a tenth off.
    if width + 8 * number >= 2 * width or (closed and over > OVER_MOST * width):
        return RAW, 0
    return DELTA, number


@compile_function
def _is_plain(line: Floats) -> bool:
    """Whether float16 holds every value as zero or as a finite normal number."""
    good = True
    for at in range(len(line)):
        # Without a branch: the compiler makes vector instructions of it.
        size = abs(line[at])
        good &= (size == 0) | ((size >= _NORMAL_LEAST) & (size <= _HALF_MOST))
    return good


@compile_function
def _is_constant(bits: Bits) -> bool:
    same = True
    for at in range(1, len(bits)):
        same &= bits[at] == bits[0]
    return same


@compile_function
def _find_closed_end(
    line: Floats, begin: int, floor: np.float32, tolerance: np.float32
) -> tuple[int, float]:
    """Where the segment from `begin` ends (exclusive), and its largest difference.

    It ends before a value whose difference needs a unit so large that some value of the segment
    would be missed by more than the tolerance, and before a run of equal values.
    """
    needed = 2 * NEAR_ZERO * ROOM  # a unit is up to twice what the largest difference needs
    largest, least, run = 0.0, max(float(floor), float(tolerance * abs(line[begin]))), 1
    for at in range(begin + 1, len(line)):
        difference = abs(float(line[at]) - float(line[at - 1]))
        run = run + 1 if difference == 0 else 1
        if run == RUN and at - RUN + 1 > begin:
            return at - RUN + 1, largest
        larger = max(largest, difference)
        smaller = min(least, max(float(floor), float(tolerance * abs(line[at]))))
        # A larger difference makes a larger unit, by which every value of the segment is missed
        # more.
        if larger * needed > smaller and larger > largest:
            return at, largest
        largest, least = larger, smaller
    return len(line), largest


@compile_function
def _find_open_end(line: Floats, begin: int) -> tuple[int, float]:
    """Where the segment from `begin` ends (exclusive), and its largest difference.

    It ends before a difference that leaves the eight exponents of the segment's group (what is
    below the group would be dropped, and here dropped differences add up), and before a run of
    equal values.
    """
    needed = 2 * (2 * NEAR_ZERO) * ROOM
    largest, least, run = 0.0, np.inf, 1
    # The paper's segment (V.A, Fig. 4): differences whose exponents fit eight values, three bits.
    for at in range(begin + 1, len(line)):
        difference = abs(float(line[at]) - float(line[at - 1]))
        run = run + 1 if difference == 0 else 1
        if run == RUN and at - RUN + 1 > begin:
            return at - RUN + 1, largest
        larger = max(largest, difference)
        smaller = min(least, difference) if difference > 0 else least
        if larger * needed > smaller:
            return at, largest
        largest, least = larger, smaller
    return len(line), largest


@compile_function
def _choose_exponent(largest: float) -> int:
    """Of the smallest power of two that is a large enough unit."""
    if largest == 0:
        return EXPONENT_LEAST
    # frexp has mantissas from 1/2 on: a power of two itself needs one less.
    mantissa, exponent = math.frexp(largest * ROOM)
    return max(EXPONENT_LEAST, exponent - 1 if mantissa == 0.5 else exponent)


@compile_function
def _encode_differences(  # compiled functions take arrays, not records
    line: Floats,
    codes: Bytes,
    begin: int,
    end: int,
    head: np.float32,
    exponent: int,
    total: int,
    closed: bool,
) -> tuple[int, int, int]:
    """Writes the bytes behind a head: where it stopped, the line's sum, values over 10 % off."""
    unit, wide = math.ldexp(1.0, exponent), np.float64(head)
    inverse, before, missed = 1.0 / unit, total, 0
    value = wide
    for at in range(begin + 1, end):
        # From what the decoder has by then, so that errors do not add up; or from the original.
        start = value if closed else np.float64(line[at - 1])
        wanted = (np.float64(line[at]) - start) * inverse
        size = min(int(abs(wanted) + 0.5), LARGEST)
        code = int(NEAREST[size])
        step = int(UNITS[code])
        negative = wanted < 0 and code != 0
        # Zero has no sign: its code with one is that of a head.
        step = -step if negative else step
        # Float32 would not hold the sum exactly: another segment begins.
        if abs(total + step - before) > SUM_MOST:
            return at, total, missed
        codes[at] = code | HEAD if negative else code
        total += step
        value = wide + (total - before) * unit
        missed += abs(value - line[at]) > 0.1 * abs(line[at])
    return end, total, missed


@compile_function
def _decode_line(codes: Bytes, segments: NDArray[np.int64], values: Floats, out: Bits) -> bool:
    """Writes the float16 bits of a line; `values` is scratch. False where heads do not match."""
    total, number = np.int32(0), 0
    head, unit, base = np.float32(0), np.float32(0), np.int32(0)
    for at in range(len(codes)):
        code = codes[at]
        # One sum runs through the line; a head has none to add, and a segment counts from its own.
        total = np.int32(total + UNITS[code])
        if code == HEAD:
            if number == len(segments):
                return False
            head, unit, base = _unpack_segment(segments[number])
            number += 1
        elif number == 0:
            return False
        values[at] = head + unit * np.float32(np.int32(total - base))
    to_half(values, out)
    return number == len(segments)


@compile_function
def _unpack_segment(segment: np.int64) -> tuple[np.float32, np.float32, np.int32]:
    """Head, unit and sum before the head."""
    return (
        HALVES[segment & 0xFFFF],
        UNIT_OF[(segment >> 16) & 0xFF],
        np.int32(segment >> 32),
    )


def _make_halves() -> Floats:
    """(65536,) every float16 as float32."""
    with np.errstate(invalid="ignore"):
        return np.arange(65_536, dtype=np.uint16).view(np.float16).astype(np.float32)


HALVES = _make_halves()
UNIT_OF = (np.arange(256, dtype=np.uint32) << 23).view(np.float32)
"""2^(i - 127) for i of 1 to 254; 0 and infinity at the ends."""


@compile_function
def to_half(values: Floats, out: Bits) -> None:
    """Writes the float16 bits of float32 values, rounded to nearest, ties to even.

    Without branches, so that the compiler makes vector instructions of it. IEEE 754: the float16
    exponent is the float32 exponent - 112. Adding 0.5 to a magnitude below 2^-14 leaves a float32
    whose last bit is worth 2^-24, float16's smallest step: the addition rounds.
    """
    words = values.view(np.uint32)
    lifted = (np.abs(values) + np.float32(0.5)).view(np.uint32)
    for at in range(len(values)):
        word = words[at]
        # Rounded to nearest even: half of the last place less one, plus the last place itself.
        size = word & np.uint32(0x7FFFFFFF)
        odd = (size >> np.uint32(13)) & np.uint32(1)
        normal = (size + np.uint32(0xC8000FFF) + odd) >> np.uint32(13)
        small = lifted[at] - np.uint32(0x3F000000)
        # Below 2^-14 subnormal, from 65,520 infinite, above infinity no number.
        half = normal if size >= np.uint32(0x38800000) else small
        half = np.uint32(0x7C00) if size >= np.uint32(0x477FF000) else half
        half = np.uint32(0x7E00) if size > np.uint32(0x7F800000) else half
        out[at] = np.uint16(half | ((word >> np.uint32(16)) & np.uint32(0x8000)))
