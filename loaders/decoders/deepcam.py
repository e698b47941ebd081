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
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from .container import Encoded, Spec
from .lines import (
    FACTOR_LEAST,
    FORMAT,
    WIDTH_MOST,
    LineSections,
    Units,
    decode_delta,
    encode_lines,
)
from .threads import spread

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
VALUES_MOST = 2.0**127

Floats = NDArray[np.float32]


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
        planes = self._planes(array)
        units = None if self.shift or self.scale else fitted_units(planes)
        if units is None:
            lines = normalise(planes, self.shift, self.scale, threads=threads)
            if self.shift or self.scale:
                self._require_held(planes, lines)
        else:
            lines = normalise(planes, units.offsets, np.reciprocal(units.factors), threads=threads)
        sections = encode_lines(
            lines,
            self._floors(lines, len(planes)),
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
        wanted = lines.reshape(planes.shape) if units is None else planes
        found = np.empty(decoded.shape, decoded.dtype)
        self.decode(encoded, found, threads=threads)
        parameters["largest_errors"] = [
            _largest_error(*pair) for pair in zip(wanted, found, strict=True)
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

    def _planes(self, array: NDArray[Any]) -> NDArray[Any]:
        if array.ndim < 2 or array.dtype.kind != "f":
            raise UsageError(
                f"expected floats with channels and lines, found {array.dtype} of shape "
                f"{array.shape}: use another codec"
            )
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
            largest = _largest(values)
            lost = largest > HALF_MOST or np.isfinite(values).sum() != np.isfinite(plane).sum()
            if lost:
                raise UsageError(
                    f"expected values up to {HALF_MOST:g} after shift and scale, found up to "
                    f"{largest:g} or infinite ones in channel {number}: bring it near 1, or leave "
                    "shift and scale to the encoder"
                )

    @staticmethod
    def _floors(lines: Floats, channels: int) -> Floats:
        """Of each line, the absolute tolerance near zero: 1/512 of its channel's largest value."""
        if not lines.size:
            return np.zeros(len(lines), np.float32)
        largest = np.array([_largest(part) for part in np.split(lines, channels)], np.float32)
        return np.repeat(largest / 512, len(lines) // channels)


def fitted_units(planes: NDArray[Any]) -> Units | None:
    """Units of channels (first axis) that bring all of them within float16.

    None where they are already: neither beyond its largest value nor all below `LARGEST_LEAST`.
    A channel that is far from zero, compared with its range, gets an offset; a power of two alone
    keeps zeros zero and relative errors as they are.

    Raises:
        UsageError: Values beyond 2^127.
    """
    offsets, factors = np.zeros(len(planes), np.float32), np.ones(len(planes), np.float32)
    for channel, plane in enumerate(planes):
        low, high = _finite_range(plane)
        largest = max(abs(low), abs(high))
        if largest > VALUES_MOST:
            raise UsageError(
                f"expected values up to 2^127, found {largest:g} in channel {channel}: give shift "
                "and scale"
            )
        if largest == 0 or LARGEST_LEAST <= largest <= HALF_MOST:
            continue
        middle = (low + high) / 2
        if abs(middle) > high - low:
            offsets[channel] = middle
        least = float(offsets[channel])
        exponent = math.frexp(max(abs(low - least), abs(high - least)))[1] - FITTED_EXPONENT
        factors[channel] = max(math.ldexp(1.0, exponent), FACTOR_LEAST)
    fits = (factors == 1).all() and not offsets.any()
    return None if fits else Units(offsets, factors)


def normalise(
    planes: NDArray[Any],
    shift: Sequence[float] | Floats = (),
    scale: Sequence[float] | Floats = (),
    *,
    threads: int | None = None,
) -> Floats:
    """(x - shift) * scale, channel by channel: flattened to (lines, width), float32."""
    channels, rows, width = len(planes), math.prod(planes.shape[1:-1]), planes.shape[-1]
    wide = np.empty((channels, rows, width), np.float32)
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


def _finite_range(plane: NDArray[Any]) -> tuple[float, float]:
    """Least and largest finite value; 0 and 0 where there is none."""
    if not plane.size:
        return 0.0, 0.0
    with np.errstate(invalid="ignore"):
        low, high = float(plane.min()), float(plane.max())
    if math.isfinite(low) and math.isfinite(high):
        return low, high
    finite = plane[np.isfinite(plane)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


def _largest_error(wanted: NDArray[Any], found: NDArray[Any]) -> float:
    """Largest |found - wanted| of a channel, over what is finite in `wanted`."""
    kept = np.isfinite(wanted)
    if not kept.any():
        return 0.0
    with np.errstate(invalid="ignore"):
        missed = found.astype(np.float64) - wanted
    return float(np.abs(missed if kept.all() else missed[kept]).max())


def _decode_halves(held: LineSections, bits: NDArray[np.uint16], threads: int | None) -> None:
    """Writes the float16 bits of all lines.

    Raises:
        InputError: Bytes and segments contradict each other.
    """
    bits[held.const_lines] = held.const_values[:, None]
    bits[held.raw_lines] = held.raw
    decode_delta(held, bits, threads)


def _largest(values: Floats) -> float:
    """Largest finite magnitude; 0 where there is none."""
    if not values.size:
        return 0.0
    with np.errstate(invalid="ignore"):
        largest = max(abs(float(values.max())), abs(float(values.min())))
    if math.isfinite(largest):
        return largest
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max()) if finite.size else 0.0


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
    held.units.restore(halves, wanted // (whole.lines // len(held.units.factors)), out)
    return out
