"""The lines of a DeepCAM sample: choosing a mode for each, encoding and decoding them."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from . import deltas
from .container import Encoded, Sections, damaged
from .deltas import CONST, DELTA, RAW
from .threads import spread

FORMAT = 2
"""Of the sections: 1 had no units, and took values that float16 does not hold for infinite."""
INFINITE = 0x7C00
WIDTH_MOST = 500_000
"""Longest line: the sum over a line stays in 32 bits."""

Floats = NDArray[np.float32]
Bits = NDArray[np.uint16]
Numbers = NDArray[np.uint32]


@dataclass(frozen=True)
class Units:
    """What float16 cannot hold as it is: a value is its float16 times a factor, plus an offset.

    In float32, one rounding: the product is exact, as factors are powers of two from 2^-100 to
    2^112. A NaN comes back as 0x7FC00000, whatever its bits were.

    Attributes:
        offsets: (channels,) float32.
        factors: (channels,) float32.
    """

    offsets: Floats
    factors: Floats

    @classmethod
    def of(cls, encoded: Encoded) -> Units | None:
        """Those of an encoded sample; None where float16 holds all of it as it is.

        Raises:
            InputError: They contradict the shape, or are no factors.
        """
        held = {"offsets", "factors"} & encoded.sections.keys()
        if encoded.decoded.dtype == "<f2":
            if held:
                raise damaged("float32 of channels with offsets and factors", encoded.decoded)
            return None
        units = cls(encoded.section("offsets", "<f4"), encoded.section("factors", "<f4"))
        channels = encoded.decoded.shape[0]
        if not len(units.offsets) == len(units.factors) == channels:
            raise damaged(f"an offset and a factor for each of {channels} channels", "others")
        inside = (units.factors >= FACTOR_LEAST) & (units.factors <= FACTOR_MOST)
        powers = np.frexp(np.where(inside, units.factors, 0))[0] == 0.5
        if not (powers.all() and np.isfinite(units.offsets).all()):
            raise damaged("factors that are powers of two, and finite offsets", "others")
        return units

    def restore(self, halves: NDArray[np.float16], channels: NDArray[np.intp], out: Floats) -> None:
        """Fills `out` (lines, width) from the float16 of lines of these channels."""
        with np.errstate(invalid="ignore"):
            np.multiply(halves, self.factors[channels, None], out=out, dtype=np.float32)
            out += self.offsets[channels, None]
        strange = np.isnan(out)
        if strange.any():
            out[strange] = np.nan


FACTOR_LEAST, FACTOR_MOST = 2.0**-100, 2.0**112


@dataclass(frozen=True)
class LineSections:
    """The sections of an encoded sample, checked: every line is in exactly one of the lists.

    Attributes:
        lines: How many.
        width: Values of each.
        const_lines: (n,) uint32 numbers of the CONST lines, and `const_values`, (n,) uint16, the
            float16 bits of each.
        raw_lines: (n,) uint32, and `raw`, (n, width) uint16 float16 bits.
        delta_lines: (n,) uint32, and `codes`, (n, width) uint8.
        firsts: (n + 1,) uint32: segments of DELTA line i are [firsts[i], firsts[i + 1]).
        segments: int64 each: float16 bits of the head in bits 0-15, exponent of the unit + 127
            in bits 16-23, the line's sum of differences before the head in bits 32-63, signed.
        units: Of the channels, where the decoded array is float32.
    """

    lines: int
    width: int
    const_lines: Numbers
    const_values: Bits
    raw_lines: Numbers
    raw: Bits
    delta_lines: Numbers
    codes: NDArray[np.uint8]
    firsts: Numbers
    segments: NDArray[np.int64]
    units: Units | None

    @classmethod
    def of(cls, encoded: Encoded) -> LineSections:
        """The sections of an encoded sample.

        Raises:
            InputError: They contradict the shape or each other.
        """
        shape = encoded.decoded.shape
        if encoded.decoded.dtype not in ("<f2", "<f4") or len(shape) < 2:
            raise damaged("float16 or float32 of channels and lines", encoded.decoded)
        section = encoded.section
        held = cls(
            lines=math.prod(shape[:-1]),
            width=shape[-1],
            const_lines=section("const_lines", "<u4"),
            const_values=section("const_values", "<u2"),
            raw_lines=section("raw_lines", "<u4"),
            raw=section("raw", "<u2", ndim=2),
            delta_lines=section("delta_lines", "<u4"),
            codes=section("codes", "|u1", ndim=2),
            firsts=section("firsts", "<u4"),
            segments=section("segments", "<i8"),
            units=Units.of(encoded),
        )
        held._check()
        if encoded.parameters.get("format", 1) < FORMAT:
            held._warn_of_infinities()
        return held

    def of_lines(self, wanted: NDArray[np.intp]) -> LineSections:
        """Some lines, in the order asked for, as if they were all.

        Raises:
            IndexError: No such line.
        """
        if len(wanted) and (wanted.min() < 0 or wanted.max() >= self.lines):
            raise IndexError(f"expected lines in 0..{self.lines - 1}, found {wanted.tolist()}")
        const, raw, delta = (
            self._places(lines, wanted)
            for lines in (self.const_lines, self.raw_lines, self.delta_lines)
        )
        counts = np.diff(self.firsts.astype(np.int64))[delta[1]]
        chosen = [np.arange(self.firsts[i], self.firsts[i + 1]) for i in delta[1]]
        return replace(
            self,
            lines=len(wanted),
            const_lines=const[0],
            const_values=self.const_values[const[1]],
            raw_lines=raw[0],
            raw=self.raw[raw[1]],
            delta_lines=delta[0],
            codes=self.codes[delta[1]],
            firsts=np.append(0, np.cumsum(counts)).astype(np.uint32),
            segments=self.segments[np.concatenate([np.empty(0, np.intp), *chosen]).astype(np.intp)],
        )

    def _places(self, lines: Numbers, wanted: NDArray[np.intp]) -> tuple[Numbers, NDArray[np.intp]]:
        """Of the wanted lines in a list: their numbers among the wanted, their places in it."""
        place = np.full(self.lines, -1, np.intp)
        place[lines] = np.arange(len(lines))
        held = place[wanted]
        return np.flatnonzero(held >= 0).astype(np.uint32), held[held >= 0]

    def _warn_of_infinities(self) -> None:
        """Before format 2, what float16 does not hold became infinite without a word."""
        infinite = [(bits & 0x7FFF) == INFINITE for bits in (self.raw, self.const_values)]
        if any(each.any() for each in infinite):
            warnings.warn(
                "expected values as they were encoded, found infinite ones in a container of a "
                "former version, which took values beyond 65,504 for infinite: encode the data "
                "again unless it held them",
                stacklevel=2,
            )

    def _check(self) -> None:
        listed = (self.const_lines, self.raw_lines, self.delta_lines)
        if sum(map(len, listed)) != self.lines or self.width > WIDTH_MOST:
            found = f"{sum(map(len, listed))}, of width {self.width}"
            raise damaged(f"each of {self.lines} lines once, up to {WIDTH_MOST} wide", found)
        seen = np.zeros(self.lines, bool)
        for lines in listed:
            if len(lines) and lines.max() >= self.lines:
                raise damaged(f"line numbers below {self.lines}", lines.max())
            seen[lines] = True
        if not seen.all():
            raise damaged(f"each of {self.lines} lines once", "one twice")
        shapes = (self.const_values.shape, self.raw.shape, self.codes.shape)
        const, raw, delta = map(len, listed)
        if shapes != ((const,), (raw, self.width), (delta, self.width)):
            raise damaged("a value, a row or a row of codes for each line", shapes)
        edges = self.firsts.astype(np.int64)
        if len(edges) != delta + 1 or edges[0] or edges[-1] != len(self.segments):
            raise damaged(f"the segments of {delta} lines", edges[-1:])
        if (np.diff(edges) < 1).any():
            raise damaged("at least one segment a line", "none")


def encode_lines(
    lines: Floats, floors: Floats, *, closed: bool, tolerance: float, threads: int | None
) -> Sections:
    """The sections of lines (n, width); `floors` is the absolute tolerance of each."""
    count, width = lines.shape
    with np.errstate(over="ignore", invalid="ignore"):
        halves = lines.astype(np.float16)
    modes, codes = np.empty(count, np.uint8), np.empty((count, width), np.uint8)
    numbers = np.zeros(count, np.int64)
    part_of_value = np.float32(tolerance)

    def work(begin: int, end: int) -> NDArray[np.int64]:
        part = slice(begin, end)
        return deltas.encode(
            lines[part], halves[part].view(np.uint16), halves[part].astype(np.float32),
            floors[part], codes[part], modes[part], numbers[part], closed, part_of_value,
        )  # fmt: skip

    segments = spread(work, count, threads) if count else []
    const, delta, raw = (np.flatnonzero(modes == mode) for mode in (CONST, DELTA, RAW))
    bits = halves.view(np.uint16)
    return {
        "const_lines": const.astype("<u4"),
        "const_values": bits[const, 0] if width else np.zeros(len(const), "<u2"),
        "raw_lines": raw.astype("<u4"),
        "raw": bits[raw],
        "delta_lines": delta.astype("<u4"),
        "codes": codes[delta],
        "firsts": np.append(0, np.cumsum(numbers[delta])).astype("<u4"),
        "segments": np.concatenate([np.empty(0, np.int64), *segments]).astype("<i8"),
    }


def decode_delta(held: LineSections, out: Bits, threads: int | None) -> None:
    """Writes the DELTA lines into `out` (lines, width).

    Raises:
        InputError: A line's bytes and its segments contradict each other.
    """

    def work(begin: int, end: int) -> bool:
        part = slice(begin, end)
        return deltas.decode(
            held.codes[part], held.firsts[begin : end + 1], held.segments,
            held.delta_lines[part], out,
        )  # fmt: skip

    if not all(spread(work, len(held.delta_lines), threads)):
        raise damaged("a segment for every head in the codes", "more or fewer")
