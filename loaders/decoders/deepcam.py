"""DeepCAM: lines along x as one value, as byte differences, or as they are.

Source: Ibrahim & Oliker, "Preprocessing Pipeline Optimization for Scientific Deep Learning
Workloads", section V.A. A line is one row of one channel, after the optional normalisation
(x - shift) * scale in float32. Without one, a channel whose largest value is beyond float16's
65,504 or below 2^-7 is brought within by an offset and a power of two of its own, kept beside the
lines: where there is such a channel, the decoder undoes them and what is decoded is float32. Each
line takes the smallest of

    CONST  one float16
    DELTA  a byte a value, and 8 bytes a segment
    RAW    a float16 a value: lines with many segments, or abrupt ones

A segment has a head (the float16 of its first value) and a unit u = 2^(emin - 4); a byte is a
difference in units, sign * (16 + m) * 2^e with sign bit 7, e bits 4-6 and m bits 0-3, at most
3,968. Two bytes mean something else: 0x00 no difference, 0x80 a head (instead of 16 and -16).
A value is head + u * (sum of the differences since the head), computed in float32 with one
rounding, then rounded to float16. The sum is of integers and so does not depend on the order of
its terms: a parallel scan gives the same bits as a serial loop. To save the scan from starting
anew at each head, a segment also holds the sum over the line before its head, which is
subtracted.

What the paper leaves open is decided here: `mode="closed"` takes differences from the decoded
value before, so that errors do not add up; `mode="open"` takes them from the original one, as
the paper describes. NaN, infinite values and values that float16 holds as denormals (or loses
to zero) send their line to RAW, which is bit-exact to float16. In closed mode a line with more
than 3 % of its values over 10 % off goes to RAW too.

How far a value may be off: RAW and CONST by a half of float16's last bit; DELTA in closed mode by
the larger of `tolerance` times the value and 1/512 of its channel's largest, or by 1/31 of the
difference from the value before. In a channel with an offset, read "value" as its distance from
the offset. `largest_errors` in the parameters is what the encoder found, channel by channel: no
finite value is farther off.

`DeepCam` is the codec, `Units` what float16 cannot hold, `LineSections` the checked sections; the
compiled arithmetic of a line is in `deltas`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from . import deltas
from .container import Encoded, Sections, Spec, describe_damage
from .deltas import CONST, DELTA, RAW
from .staging import spread

Floats = NDArray[np.float32]
Bits = NDArray[np.uint16]
Numbers = NDArray[np.uint32]
FORMAT = 2
"""Of the sections: 1 had no units, and took values that float16 does not hold for infinite."""
INFINITE = 0x7C00  # float16 bits without the sign
WIDTH_MOST = 500_000
"""Longest line: the sum over a line stays in 32 bits."""
MODES = ("closed", "open")
AXES = ("last", "first")
SPACING = 64
"""Lines that a thread normalises at a time."""
HALF_MOST = 65_504.0
"""Largest float16."""
LARGEST_LEAST = 2.0**-7
"""Of a channel's largest value: below, float16 would hold less than seven binary places of it as
normal numbers."""
FITTED_EXPONENT = 15
"""A channel with units of its own is brought to at most 2^15, so that values near its offset are
normal numbers, too."""
FACTOR_LEAST, FACTOR_MOST = 2.0**-100, 2.0**112
VALUES_MOST = 2.0**127  # twice as much overflows float32, in which units are applied


@dataclass(frozen=True)
class DeepCam:
    """Differential codec of smooth images.

    Attributes:
        mode: `closed` or `open`, see the module.
        channels: Which axis of the source they are, `last` or `first`; lines are along the last
            of the others. Channels come first in what is decoded.
        shift: Subtracted from each channel; empty: nothing.
        scale: Multiplies each channel after that; empty: nothing.
        tolerance: A segment's smallest differences are kept to this part of each value.
    """

    NAME: ClassVar[str] = "deepcam"
    mode: str = "closed"
    channels: str = "last"
    shift: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    tolerance: float = 0.05

    def __post_init__(self) -> None:
        if self.mode not in MODES or self.channels not in AXES:
            raise UsageError(
                f"expected a mode among {MODES} and channels among {AXES}, found {self.mode} and "
                f"{self.channels}: choose among them"
            )
        if not 0 < self.tolerance < 1:
            raise UsageError(f"expected a tolerance between 0 and 1, found {self.tolerance}")

    def encode(self, array: NDArray[Any], *, threads: int | None = None) -> Encoded:
        """The encoded sample.

        Raises:
            UsageError: No float array of channels and lines, or lines of over 500,000 values, or
                values that float16 does not hold after a given shift and scale.
        """
        # Channels first, and each within what float16 holds.
        planes = self._require_planes(array)
        units = None if self.shift or self.scale else choose_units(planes)
        if units is None:
            lines = normalize(planes, self.shift, self.scale, threads=threads)
            if self.shift or self.scale:
                self._require_held(planes, lines)
        else:
            lines = normalize(planes, units.offsets, np.reciprocal(units.factors), threads=threads)
        # Each line in its mode. Near zero the tolerance is 1/512 of its channel's largest value.
        floors = np.zeros(len(lines), np.float32)
        if lines.size:
            channels = len(planes)
            largest = [_find_largest_magnitude(part) for part in np.split(lines, channels)]
            floors = np.repeat(np.array(largest, np.float32) / 512, len(lines) // channels)
        sections = encode_lines(
            lines,
            floors,
            closed=self.mode == "closed",
            tolerance=self.tolerance,
            threads=threads,
        )
        if units is not None:
            sections |= {"offsets": units.offsets, "factors": units.factors}
        parameters = {
            "format": FORMAT,
            "mode": self.mode,
            "channels": self.channels,
            "shift": list(self.shift),
            "scale": list(self.scale),
            "tolerance": self.tolerance,
        }
        decoded = Spec(planes.shape, "<f2" if units is None else "<f4")
        encoded = Encoded(
            self.NAME, Spec(array.shape, array.dtype.str), decoded, parameters, sections
        )
        # Decoded once, to say how far off it is.
        originals = lines.reshape(planes.shape) if units is None else planes
        restored = np.empty(decoded.shape, decoded.dtype)
        self.decode(encoded, restored, threads=threads)
        parameters["largest_errors"] = [
            _measure_largest_error(*pair) for pair in zip(originals, restored, strict=True)
        ]
        return encoded

    @staticmethod
    def check(encoded: Encoded) -> None:
        """Nothing; raises InputError where the sections contradict the shape or each other."""
        LineSections.of(encoded)

    @staticmethod
    def decode(encoded: Encoded, out: NDArray[Any], *, threads: int | None = None) -> None:
        """Fills `out`, C-contiguous float16 of the decoded shape.

        Raises:
            InputError: Bytes and segments contradict each other; `out` is then half filled.
        """
        held = LineSections.of(encoded)
        # Without units straight into `out`; with them halves first, and then floats from these.
        units = held.units
        halves = out if units is None else np.empty(encoded.decoded.shape, np.float16)
        bits = halves.view(np.uint16).reshape(held.lines, held.width)
        _decode_halves(held, bits, threads)
        if units is None:
            return
        rows, lines = bits.view(np.float16), out.reshape(held.lines, held.width)
        channel = np.arange(held.lines) // max(held.lines // max(len(units.factors), 1), 1)

        def restore(begin: int, end: int) -> None:
            units.restore(rows[begin:end], channel[begin:end], lines[begin:end])

        spread(restore, held.lines, threads)

    def _require_planes(self, array: NDArray[Any]) -> NDArray[Any]:
        if array.ndim < 2 or array.dtype.kind != "f":
            raise UsageError(
                f"expected floats with channels and lines, found {array.dtype} of shape "
                f"{array.shape}: use another codec"
            )
        # Channels first, as lines of a channel lie together.
        planes = np.moveaxis(array, -1, 0) if self.channels == "last" else array
        if planes.shape[-1] > WIDTH_MOST:
            raise UsageError(f"expected lines up to {WIDTH_MOST}, found {planes.shape[-1]}")
        for name, values in (("shift", self.shift), ("scale", self.scale)):
            if values and len(values) != len(planes):
                raise UsageError(
                    f"expected a {name} for each of {len(planes)} channels, found {len(values)}"
                )
        return planes

    @staticmethod
    def _require_held(planes: NDArray[Any], lines: Floats) -> None:
        """Raises UsageError where what is finite is not, as float16, once it is normalised."""
        for number, (plane, values) in enumerate(
            zip(planes, lines.reshape(planes.shape), strict=True)
        ):
            # Neither beyond float16, nor infinite only after it was normalised.
            largest = _find_largest_magnitude(values)
            lost = largest > HALF_MOST or np.isfinite(values).sum() != np.isfinite(plane).sum()
            if lost:
                raise UsageError(
                    f"expected values up to {HALF_MOST:g} after shift and scale, found up to "
                    f"{largest:g} or infinite ones in channel {number}: bring it near 1, or leave "
                    "shift and scale to the encoder"
                )


def choose_units(planes: NDArray[Any]) -> Units | None:
    """Units of channels (first axis) that bring all of them within float16.

    None where they are already: neither beyond its largest value nor all below `LARGEST_LEAST`.
    A channel that is far from zero, compared with its range, gets an offset; a power of two alone
    keeps zeros zero and relative errors as they are.

    Raises:
        UsageError: Values beyond 2^127.
    """
    offsets, factors = np.zeros(len(planes), np.float32), np.ones(len(planes), np.float32)
    for channel, plane in enumerate(planes):
        low, high = _find_finite_range(plane)
        largest = max(abs(low), abs(high))
        if largest > VALUES_MOST:
            raise UsageError(
                f"expected values up to 2^127, found {largest:g} in channel {channel}: give shift "
                "and scale"
            )
        # Within float16 as it is.
        if largest == 0 or LARGEST_LEAST <= largest <= HALF_MOST:
            continue
        # Far from zero: without its middle the channel uses the bits for its range.
        middle = (low + high) / 2
        if abs(middle) > high - low:
            offsets[channel] = middle
        # A power of two brings what is left to at most 2^15.
        least = float(offsets[channel])
        exponent = math.frexp(max(abs(low - least), abs(high - least)))[1] - FITTED_EXPONENT
        factors[channel] = max(math.ldexp(1.0, exponent), FACTOR_LEAST)
    fits = (factors == 1).all() and not offsets.any()
    return None if fits else Units(offsets, factors)


def _find_finite_range(plane: NDArray[Any]) -> tuple[float, float]:
    """Least and largest finite value; 0 and 0 where there is none."""
    if not plane.size:
        return 0.0, 0.0
    with np.errstate(invalid="ignore"):
        low, high = float(plane.min()), float(plane.max())
    # Minimum and maximum tell whether anything is not finite: a copy is made only then.
    if math.isfinite(low) and math.isfinite(high):
        return low, high
    finite = plane[np.isfinite(plane)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


def normalize(
    planes: NDArray[Any],
    shift: Sequence[float] | Floats = (),
    scale: Sequence[float] | Floats = (),
    *,
    threads: int | None = None,
) -> Floats:
    """(x - shift) * scale, channel by channel: flattened to (lines, width), float32."""
    channels, rows, width = len(planes), math.prod(planes.shape[1:-1]), planes.shape[-1]
    wide = np.empty((channels, rows, width), np.float32)
    # Rows of the source hold all channels of a point: copied in rows, each read once.
    flat = np.moveaxis(planes, 0, -2).reshape(rows, channels, width)
    target = np.moveaxis(wide, 0, 1)
    less, times = (np.array(values, np.float32)[:, None] for values in (shift, scale))

    def copy(begin: int, end: int) -> None:
        with np.errstate(over="ignore", invalid="ignore"):  # in each thread: it is its own
            for first in range(begin, end, SPACING):
                part = target[first : min(first + SPACING, end)]
                part[...] = flat[first : first + len(part)]
                if len(less):
                    part -= less
                if len(times):
                    part *= times

    spread(copy, len(flat), threads)
    return wide.reshape(channels * rows, width)


def _find_largest_magnitude(values: Floats) -> float:
    """Largest finite magnitude; 0 where there is none."""
    if not values.size:
        return 0.0
    # Mostly all is finite: then no copy of the values is made.
    with np.errstate(invalid="ignore"):
        largest = max(abs(float(values.max())), abs(float(values.min())))
    if math.isfinite(largest):
        return largest
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max()) if finite.size else 0.0


def _measure_largest_error(original: NDArray[Any], restored: NDArray[Any]) -> float:
    """Largest |restored - original| of a channel, over what is finite in `original`."""
    finite = np.isfinite(original)
    if not finite.any():
        return 0.0
    with np.errstate(invalid="ignore"):
        errors = restored.astype(np.float64) - original
    return float(np.abs(errors if finite.all() else errors[finite]).max())


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
        # Halves have no units, floats have them for every channel.
        held = {"offsets", "factors"} & encoded.sections.keys()
        if encoded.decoded.dtype == "<f2":
            if held:
                raise describe_damage(
                    "float32 of channels with offsets and factors", encoded.decoded
                )
            return None
        units = cls(encoded.section("offsets", "<f4"), encoded.section("factors", "<f4"))
        channels = encoded.decoded.shape[0]
        if not len(units.offsets) == len(units.factors) == channels:
            raise describe_damage(
                f"an offset and a factor for each of {channels} channels", "others"
            )
        # A power of two within the range: frexp gives it a mantissa of exactly one half.
        inside = (units.factors >= FACTOR_LEAST) & (units.factors <= FACTOR_MOST)
        powers = np.frexp(np.where(inside, units.factors, 0))[0] == 0.5
        if not (powers.all() and np.isfinite(units.offsets).all()):
            raise describe_damage("factors that are powers of two, and finite offsets", "others")
        return units

    def restore(self, halves: NDArray[np.float16], channels: NDArray[np.intp], out: Floats) -> None:
        """Fills `out` (lines, width) from the float16 of lines of these channels."""
        with np.errstate(invalid="ignore"):
            np.multiply(halves, self.factors[channels, None], out=out, dtype=np.float32)
            out += self.offsets[channels, None]
        # One NaN for all, so that every device gives the same bits.
        strange = np.isnan(out)
        if strange.any():
            out[strange] = np.nan


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
            raise describe_damage("float16 or float32 of channels and lines", encoded.decoded)
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
        # Nothing of the sections is used before they were seen to fit together.
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
            self._find_wanted(lines, wanted)
            for lines in (self.const_lines, self.raw_lines, self.delta_lines)
        )
        # Segments of the lines that are kept, and where those of each begin now.
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

    def _find_wanted(
        self, lines: Numbers, wanted: NDArray[np.intp]
    ) -> tuple[Numbers, NDArray[np.intp]]:
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
        # Each line is listed once.
        listed = (self.const_lines, self.raw_lines, self.delta_lines)
        if sum(map(len, listed)) != self.lines or self.width > WIDTH_MOST:
            raise describe_damage(
                f"each of {self.lines} lines once, up to {WIDTH_MOST} wide",
                f"{sum(map(len, listed))}, of width {self.width}",
            )
        seen = np.zeros(self.lines, bool)
        for lines in listed:
            if len(lines) and lines.max() >= self.lines:
                raise describe_damage(f"line numbers below {self.lines}", lines.max())
            seen[lines] = True
        if not seen.all():
            raise describe_damage(f"each of {self.lines} lines once", "one twice")
        # And has what its mode needs.
        shapes = (self.const_values.shape, self.raw.shape, self.codes.shape)
        const, raw, delta = map(len, listed)
        if shapes != ((const,), (raw, self.width), (delta, self.width)):
            raise describe_damage("a value, a row or a row of codes for each line", shapes)
        edges = self.firsts.astype(np.int64)
        if len(edges) != delta + 1 or edges[0] or edges[-1] != len(self.segments):
            raise describe_damage(f"the segments of {delta} lines", edges[-1:])
        if (np.diff(edges) < 1).any():
            raise describe_damage("at least one segment a line", "none")


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

    # Threads choose the modes of their lines, and write the codes of those that are DELTA.
    def encode_part(begin: int, end: int) -> NDArray[np.int64]:
        part = slice(begin, end)
        return deltas.encode(
            lines[part], halves[part].view(np.uint16), halves[part].astype(np.float32),
            floors[part], codes[part], modes[part], numbers[part], closed, part_of_value,
        )  # fmt: skip

    segments = spread(encode_part, count, threads) if count else []
    # Lines by mode: what is no DELTA line needs no codes.
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


def _decode_halves(held: LineSections, bits: NDArray[np.uint16], threads: int | None) -> None:
    """Writes the float16 bits of all lines into `bits` (lines, width).

    Raises:
        InputError: Bytes and segments contradict each other.
    """
    # Lines of one value and raw ones are copied; the others are decoded by threads.
    bits[held.const_lines] = held.const_values[:, None]
    bits[held.raw_lines] = held.raw

    def decode_part(begin: int, end: int) -> bool:
        part = slice(begin, end)
        return deltas.decode(
            held.codes[part], held.firsts[begin : end + 1], held.segments,
            held.delta_lines[part], bits,
        )  # fmt: skip

    if not all(spread(decode_part, len(held.delta_lines), threads)):
        raise describe_damage("a segment for every head in the codes", "more or fewer")


def decode_lines(encoded: Encoded, lines: NDArray[np.intp] | list[int]) -> NDArray[Any]:
    """Some lines alone, (len(lines), width) of the decoded type: no other's bytes are looked at.

    Raises:
        InputError: See `DeepCam.decode`.
        IndexError: No such line.
    """
    whole, wanted = LineSections.of(encoded), np.asarray(lines, np.intp)
    held = whole.of_lines(wanted)
    bits = np.empty((held.lines, held.width), np.uint16)
    _decode_halves(held, bits, None)
    halves = bits.view(np.float16)
    if held.units is None:
        return halves
    out = np.empty(halves.shape, np.float32)
    # Lines of a channel lie together: the line's number gives its channel.
    held.units.restore(halves, wanted // (whole.lines // len(held.units.factors)), out)
    return out
