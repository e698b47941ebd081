"""DeepCAM: lines along x as one value, as byte differences, or as they are.

Source: Ibrahim & Oliker, "Preprocessing Pipeline Optimization for Scientific Deep Learning
Workloads", section V.A. A line is one row of one channel, after the optional normalisation
(x - shift) * scale in float32. Each takes the smallest of

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
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from .container import Encoded, Spec
from .lines import WIDTH_MOST, LineSections, decode_delta, encode_lines
from .threads import spread

MODES = ("closed", "open")
AXES = ("last", "first")
SPACING = 64
"""Lines that a thread normalises at a time."""

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
            UsageError: No float array of channels and lines, or lines of over 500,000 values.
        """
        planes = self._planes(array)
        lines = self.normalise(planes, threads=threads)
        sections = encode_lines(
            lines,
            self._floors(lines, len(planes)),
            closed=self.mode == "closed",
            tolerance=self.tolerance,
            threads=threads,
        )
        return Encoded(
            codec=self.NAME,
            source=Spec(array.shape, array.dtype.str),
            decoded=Spec(planes.shape, "<f2"),
            parameters={
                "mode": self.mode,
                "channels": self.channels,
                "shift": list(self.shift),
                "scale": list(self.scale),
                "tolerance": self.tolerance,
            },
            sections=sections,
        )

    def normalise(self, planes: NDArray[Any], *, threads: int | None = None) -> Floats:
        """What is encoded: channels first and flattened to (lines, width), float32."""
        channels, rows, width = len(planes), math.prod(planes.shape[1:-1]), planes.shape[-1]
        wide = np.empty((channels, rows, width), np.float32)
        flat = np.moveaxis(planes, 0, -2).reshape(rows, channels, width)
        target = np.moveaxis(wide, 0, 1)

        shift, scale = (
            np.array(values, np.float32)[:, None] for values in (self.shift, self.scale)
        )

        def copy(begin: int, end: int) -> None:
            with np.errstate(over="ignore", invalid="ignore"):  # in each thread: it is its own
                for first in range(begin, end, SPACING):
                    part = target[first : min(first + SPACING, end)]
                    part[...] = flat[first : first + len(part)]
                    if len(shift):
                        part -= shift
                    if len(scale):
                        part *= scale

        spread(copy, len(flat), threads)
        return wide.reshape(channels * rows, width)

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
        bits = out.view(np.uint16).reshape(held.lines, held.width)
        bits[held.const_lines] = held.const_values[:, None]
        bits[held.raw_lines] = held.raw
        decode_delta(held, bits, threads)

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
    def _floors(lines: Floats, channels: int) -> Floats:
        """Of each line, the absolute tolerance near zero: 1/512 of its channel's largest value."""
        if not lines.size:
            return np.zeros(len(lines), np.float32)
        largest = np.array([_largest(part) for part in np.split(lines, channels)], np.float32)
        return np.repeat(largest / 512, len(lines) // channels)


def _largest(values: Floats) -> float:
    """Largest finite magnitude; 0 where there is none."""
    with np.errstate(invalid="ignore"):
        largest = max(abs(float(values.max())), abs(float(values.min())))
    if math.isfinite(largest):
        return largest
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max()) if finite.size else 0.0


def decode_lines(encoded: Encoded, lines: NDArray[np.intp] | list[int]) -> NDArray[np.float16]:
    """Some lines alone, (len(lines), width) float16: no other line's bytes are looked at.

    Raises:
        InputError: See `DeepCam.decode`.
        IndexError: No such line.
    """
    held = LineSections.of(encoded).of_lines(np.asarray(lines, np.intp))
    bits = np.empty((held.lines, held.width), np.uint16)
    bits[held.const_lines] = held.const_values[:, None]
    bits[held.raw_lines] = held.raw
    decode_delta(held, bits, None)
    return bits.view(np.float16)
