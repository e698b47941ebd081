"""Labels and anything else that must come back as it was: keys of 1 to 8 bits, or raw.

Where at most 256 distinct values occur (a mask, a few classes), a value is stored as a key of
1, 2, 4 or 8 bits, the first in the lowest bits of a byte; else the values themselves. Values are
told apart by their bits, so -0.0 and every NaN survive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from .container import Encoded, Spec, describe_damage

KEY_BITS = (1, 2, 4, 8)  # divide a byte, so that no key crosses one


@dataclass(frozen=True)
class Lossless:
    """Codec of labels: the decoded array is the source, bit for bit."""

    NAME: ClassVar[str] = "lossless"

    def encode(self, array: NDArray[Any]) -> Encoded:
        """The encoded array.

        Raises:
            UsageError: Neither numbers nor booleans of 1, 2, 4 or 8 bytes.
        """
        if array.dtype.kind not in "biuf" or array.dtype.itemsize not in (1, 2, 4, 8):
            raise UsageError(f"expected numbers or booleans, found {array.dtype}: convert them")
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        bits = little.view(f"u{little.dtype.itemsize}").reshape(-1)
        # Bits, not numbers: -0.0 and every NaN come back as they were.
        values, keys = np.unique(bits, return_inverse=True)
        # Keys of the fewest bits that name all values; with more than 256 values keys are not worth
        # it.
        width = next((width for width in KEY_BITS if len(values) <= 1 << width), None)
        spec = Spec(array.shape, little.dtype.str)
        if width is None:
            return Encoded(self.NAME, spec, spec, {"key_bits": 0}, {"raw": bits})
        sections = {"values": values, "keys": _compress(keys.astype(np.uint8), width)}
        return Encoded(self.NAME, spec, spec, {"key_bits": width}, sections)

    @staticmethod
    def check(encoded: Encoded) -> None:
        """Nothing; raises InputError where the sections contradict the shape or each other."""
        kind = f"<u{np.dtype(encoded.decoded.dtype).itemsize}" if _is_plain(encoded) else ""
        width, count = encoded.parameters.get("key_bits"), _count(encoded)
        if not kind or width not in (0, *KEY_BITS):
            raise describe_damage(
                f"key bits among {KEY_BITS} of a plain type", f"{width}, {encoded}"
            )
        kind = np.dtype(kind).str
        # Raw values, or keys of some bits and the values they stand for.
        if width == 0:
            if len(encoded.section("raw", kind)) != count:
                raise describe_damage(f"{count} values", len(encoded.sections["raw"]))
            return
        if len(encoded.section("keys", "|u1")) != -(-count * width // 8):
            raise describe_damage(f"{count} keys of {width} bits", len(encoded.sections["keys"]))
        if len(encoded.section("values", kind)) > 1 << width or (
            count and not len(encoded.sections["values"])
        ):
            raise describe_damage(f"1 to {1 << width} values", len(encoded.sections["values"]))

    @staticmethod
    def decode(encoded: Encoded, out: NDArray[Any], *, threads: int | None = None) -> None:  # noqa: ARG004
        """Fills `out`, C-contiguous, of the source's shape and type.

        Raises:
            InputError: A key points behind the values.
        """
        Lossless.check(encoded)
        width, count = encoded.parameters["key_bits"], _count(encoded)
        flat = out.reshape(-1).view(f"u{out.dtype.itemsize}")
        # Without keys the values lie there as they are.
        if width == 0:
            flat[...] = encoded.sections["raw"]
            return
        keys = _decompress(encoded.sections["keys"], width)[:count]
        values = encoded.sections["values"]
        # Keys of a damaged container may point behind the values.
        if count and keys.max() >= len(values):
            raise describe_damage(f"keys below {len(values)}", keys.max())
        np.take(values, keys, out=flat)


def _is_plain(encoded: Encoded) -> bool:
    kind = np.dtype(encoded.decoded.dtype)
    return (
        encoded.decoded == encoded.source and kind.kind in "biuf" and kind.itemsize in (1, 2, 4, 8)
    )


def _count(encoded: Encoded) -> int:
    return encoded.decoded.nbytes // np.dtype(encoded.decoded.dtype).itemsize


def _compress(keys: NDArray[np.uint8], width: int) -> NDArray[np.uint8]:
    # The first key in the lowest bits of a byte; the last byte is filled up with zeros.
    each = 8 // width
    rows = np.concatenate([keys, np.zeros(-len(keys) % each, np.uint8)]).reshape(-1, each)
    packed: NDArray[np.uint8] = np.bitwise_or.reduce(
        rows << (np.arange(each, dtype=np.uint8) * np.uint8(width)), axis=1
    )
    return packed


def _decompress(packed: NDArray[np.uint8], width: int) -> NDArray[np.uint8]:
    shifts = np.arange(8 // width, dtype=np.uint8) * np.uint8(width)
    spread: NDArray[np.uint8] = (packed[:, None] >> shifts) & np.uint8((1 << width) - 1)
    return spread.reshape(-1)
