"""CosmoFlow: a key a voxel into a table of groups, one value a redshift. Lossless.

Source: Ibrahim & Oliker, "Preprocessing Pipeline Optimization for Scientific Deep Learning
Workloads", section V.B. A sample holds particle counts at up to four redshifts; few distinct
groups of counts occur, so a voxel is stored as a key of one or two bytes into a table whose
entries are the groups, 8 bytes each. The normalisation, log(1 + x) or x / mean, is applied to the
counts *before* groups are told apart, and the table holds float16: groups that become equal
share an entry, and decoding is one gather that writes each redshift to its own plane.

A table has at most 65,536 entries. Where one is not enough, a new one begins at the next tile of
4,096 voxels. Sections: `tables` (n, 3) int64, each {first tile, entries, bytes of a key};
`keys`, uint8 or little-endian uint16 as the table says, voxels in C order; `entries` uint64,
the float16 of redshift c in bits [16c, 16c + 16).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, UsageError
from .container import Encoded, Spec, describe_damage
from .staging import compile_function, spread

TILE = 4096  # voxels with keys into one table
ENTRIES_MOST = 65_536  # of a table: what keys of two bytes can name (the paper, V.B)
REDSHIFTS_MOST = 4  # 16 bits each in a word of 64
_SLOT_BITS = 18  # of the hash table: four slots for each entry, so that chains stay short
_SLOTS = 1 << _SLOT_BITS
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: Fibonacci hashing (Knuth 6.4)
_SHIFT = np.uint64(64 - _SLOT_BITS)
_SIXTEEN, _THIRTY_TWO, _FORTY_EIGHT = np.uint64(16), np.uint64(32), np.uint64(48)
_LOW = np.uint64(0xFFFF)

Bits = NDArray[np.uint16]
NORMALISATIONS = ("log", "mean")
AXES = ("last", "first")


@dataclass(frozen=True)
class CosmoFlow:
    """Table codec of particle counts.

    Attributes:
        normalisation: `log`: float16(log1p(float32(x))); `mean`: float16(float32(x) / mean),
            the mean taken over the sample in float64 and rounded to float32.
        redshifts: Which axis of the source they are: `last`, as in the TFRecords, or `first`.
            They come first in what is decoded.
    """

    NAME: ClassVar[str] = "cosmoflow"
    normalisation: str = "log"
    redshifts: str = "last"

    def __post_init__(self) -> None:
        if self.normalisation not in NORMALISATIONS or self.redshifts not in AXES:
            raise UsageError(
                f"expected a normalisation among {NORMALISATIONS} and redshifts among {AXES}, "
                f"found {self.normalisation} and {self.redshifts}: choose among them"
            )

    def encode(self, array: NDArray[Any]) -> Encoded:
        """The encoded sample.

        Raises:
            UsageError: No numbers, or not one to four redshifts.
            InputError: The mean to divide by is zero or not finite.
        """
        counts = np.moveaxis(array, 0, -1) if self.redshifts == "first" and array.ndim else array
        if not counts.ndim or not 1 <= counts.shape[-1] <= REDSHIFTS_MOST:
            raise UsageError(
                f"expected 1 to {REDSHIFTS_MOST} redshifts on the {self.redshifts} axis, found "
                f"shape {array.shape}: say which axis they are, or use another codec"
            )
        # Counts become places in a table of normalised values, and those become keys.
        mean = _compute_mean(counts) if self.normalisation == "mean" else None
        bits, table = _normalize_counts(counts.reshape(-1, counts.shape[-1]), mean)
        voxels = len(bits)
        keys = np.empty(voxels, np.uint16)
        room = max(1, min(voxels, ENTRIES_MOST + TILE))
        table_entries: list[NDArray[np.uint64]] = []
        rows: list[tuple[int, int, int]] = []
        parts: list[NDArray[np.uint8]] = []
        begin = 0
        # A table for as many tiles as its entries suffice, then the next one.
        while begin < voxels:
            # Few groups of counts occur in a sample (the paper, V.B), so keys of one or two bytes
            # suffice.
            entries = np.empty(room, np.uint64)
            count, end = _number_keys(bits, table, keys, entries, begin)
            width = 1 if count <= 256 else 2
            rows.append((begin // TILE, count, width))
            part = keys[begin:end]
            parts.append(part.astype(np.uint8) if width == 1 else part.view(np.uint8))
            table_entries.append(entries[:count])
            begin = end
        sections = {
            "tables": np.array(rows, "<i8").reshape(-1, 3),
            "keys": np.concatenate([np.empty(0, np.uint8), *parts]),
            "entries": np.concatenate([np.empty(0, np.uint64), *table_entries]),
        }
        return Encoded(
            codec=self.NAME,
            source=Spec(array.shape, array.dtype.str),
            decoded=Spec((counts.shape[-1], *counts.shape[:-1]), "<f2"),
            parameters={"normalisation": self.normalisation, "mean": mean, "tile": TILE},
            sections=sections,
        )

    @staticmethod
    def check(encoded: Encoded) -> None:
        """Nothing; raises InputError where the sections contradict the shape or each other."""
        Layout.of(encoded)

    @staticmethod
    def decode(encoded: Encoded, out: NDArray[Any], *, threads: int | None = None) -> None:
        """Fills `out`, C-contiguous float16 of the decoded shape.

        Raises:
            InputError: A key points behind its table; `out` is then half filled.
        """
        layout = Layout.of(encoded)
        keys = encoded.section("keys", "|u1")
        # Keys of one byte and of two are the same memory, looked at in either way.
        wide = keys[: len(keys) // 2 * 2].view("<u2")
        entries = encoded.section("entries", "<u8")
        planes = out.view(np.uint16).reshape(layout.redshifts, layout.voxels)
        good = spread(
            lambda begin, end: _gather(layout.tiles[begin:end], keys, wide, entries, planes, begin),
            len(layout.tiles),
            threads,
        )
        if not all(good):
            raise describe_damage("keys below the number of entries", "a key beyond")


@dataclass(frozen=True)
class Layout:
    """What decoding needs to know, checked.

    Attributes:
        redshifts: Planes of the output.
        voxels: Of each plane.
        tiles: (n, 4) int64 a tile: first byte of its keys, first entry and entries of its table,
            bytes of a key.
    """

    redshifts: int
    voxels: int
    tiles: NDArray[np.int64]

    @classmethod
    def of(cls, encoded: Encoded) -> Layout:
        """The layout of an encoded sample.

        Raises:
            InputError: Sections contradict the shape or each other.
        """
        shape = encoded.decoded.shape
        if encoded.decoded.dtype != "<f2" or not shape or not 1 <= shape[0] <= REDSHIFTS_MOST:
            raise describe_damage("float16 of one to four redshifts", encoded.decoded)
        voxels = math.prod(shape[1:])
        if voxels > len(encoded.section("keys", "|u1")):
            raise describe_damage(
                f"a key for each of {voxels} voxels", len(encoded.sections["keys"])
            )
        # Tiles have the length that this decoder cuts by, or keys would be looked up in other
        # tables.
        tiles = -(-voxels // TILE)
        tables = encoded.section("tables", "<i8", ndim=2)
        if encoded.parameters.get("tile") != TILE or tables.shape[1:] != (3,):
            raise describe_damage(
                f"tables of tiles of {TILE} voxels", encoded.parameters.get("tile")
            )
        if (len(tables) == 0) != (tiles == 0):
            raise describe_damage(f"tables for {tiles} tiles", len(tables))
        lengths = (len(encoded.section("keys", "|u1")), len(encoded.section("entries", "<u8")))
        # Tables follow each other tile by tile, without gaps, and are of sizes that keys can
        # point to.
        first, entries, width = tables.T
        edges = np.append(first, tiles)
        good = (
            (tiles == 0 or first[0] == 0)
            and bool((np.diff(edges) > 0).all())
            and bool(((entries >= 1) & (entries <= ENTRIES_MOST)).all())
            and bool(((width == 1) | (width == 2)).all())
        )
        if not good:
            raise describe_damage("ascending tables of 1 to 65,536 entries", tables.tolist())
        # Voxels of each table: whole tiles but for the last one.
        held = np.minimum(edges[1:] * TILE, voxels) - edges[:-1] * TILE
        key_ends, entry_ends = np.cumsum(held * width), np.cumsum(entries)
        found = (int(key_ends[-1]), int(entry_ends[-1])) if tiles else (0, 0)
        if found != lengths:
            raise describe_damage(f"keys and entries of lengths {found}", lengths)
        # A table serves all tiles up to the next one's first.
        of_tile = np.repeat(np.arange(len(tables)), np.diff(edges))
        within = np.arange(tiles) - first[of_tile]
        rows = np.empty((tiles, 4), np.int64)
        rows[:, 0] = (key_ends - held * width)[of_tile] + within * TILE * width[of_tile]
        rows[:, 1] = (entry_ends - entries)[of_tile]
        rows[:, 2], rows[:, 3] = entries[of_tile], width[of_tile]
        return cls(shape[0], voxels, rows)


def _compute_mean(counts: NDArray[Any]) -> float:
    mean = float(np.float32(counts.mean(dtype=np.float64))) if counts.size else 1.0
    if not math.isfinite(mean) or mean == 0:
        raise InputError(f"expected a finite mean other than 0, found {mean}: normalise by log")
    return mean


def _normalize_values(values: NDArray[Any], mean: float | None) -> Bits:
    """float16 bits of the normalised values."""
    with np.errstate(all="ignore"):  # counts below zero give NaN, as in the reference
        wide = values.astype(np.float32)
        result = np.log1p(wide) if mean is None else wide / np.float32(mean)
        return result.astype(np.float16).view(np.uint16)


def _normalize_counts(counts: NDArray[Any], mean: float | None) -> tuple[Bits, Bits]:
    """Indices (voxels, redshifts) and the 65,536 values they stand for, both uint16.

    Types of up to 16 bits have few values: each is normalised once. Others voxel by voxel.
    """
    kind = counts.dtype
    if kind.kind not in "iufb":
        raise UsageError(f"expected numbers, found {kind}: use another codec")
    if kind.kind == "f" or kind.itemsize > 2:
        return _normalize_values(counts, mean), np.arange(65_536, dtype=np.uint16)
    # A value's bits are its place in the table, whatever its sign.
    native = np.ascontiguousarray(counts, dtype=kind.newbyteorder("="))
    if kind.itemsize == 2:
        every = np.arange(65_536, dtype=np.uint16).view(native.dtype)
        return native.view(np.uint16), _normalize_values(every, mean)
    every = np.arange(256, dtype=np.uint8).view(native.dtype)
    table = np.zeros(65_536, np.uint16)
    table[:256] = _normalize_values(every, mean)
    return native.view(np.uint8).astype(np.uint16), table


@compile_function
def _number_keys(
    bits: Bits, table: Bits, keys: Bits, entries: NDArray[np.uint64], begin: int
) -> tuple[int, int]:
    """Numbers the groups of the voxels from `begin` on in order of appearance.

    Stops before the tile that would need more than 65,536 entries. (entries, end voxel).
    """
    voxels, redshifts = bits.shape
    numbers = np.full(_SLOTS, -1, np.int32)
    words = np.empty(_SLOTS, np.uint64)
    count, tile_begin = 0, begin
    while tile_begin < voxels:
        before, tile_end = count, min(tile_begin + TILE, voxels)
        for voxel in range(tile_begin, tile_end):
            # A voxel's redshifts side by side in 64 bits.
            word = np.uint64(0)
            for redshift in range(redshifts - 1, -1, -1):
                word = (word << _SIXTEEN) | np.uint64(table[bits[voxel, redshift]])
            # A hash table with open addresses: the group's own slot, or the next free one.
            slot = np.int64((word * _MULTIPLIER) >> _SHIFT)
            while numbers[slot] >= 0 and words[slot] != word:
                slot = (slot + 1) & (_SLOTS - 1)
            if numbers[slot] < 0:
                numbers[slot], words[slot], entries[count] = count, word, word
                count += 1
            keys[voxel] = numbers[slot]
        # The tile is numbered again in the next table: none is split.
        if count > ENTRIES_MOST:
            return before, tile_begin
        tile_begin = tile_end
    return count, voxels


@compile_function
def _gather(
    tiles: NDArray[np.int64],
    keys: NDArray[np.uint8],
    wide: Bits,
    entries: NDArray[np.uint64],
    planes: Bits,
    first: int,
) -> bool:
    """Writes the voxels of tiles [first, first + len(tiles)); False where a key was too large."""
    voxels = planes.shape[1]
    good = True
    for row in range(len(tiles)):
        key_at, base, count, width = tiles[row]
        begin = (first + row) * TILE
        end = min(begin + TILE, voxels)
        # Every tile has a table of its own or shares one with its neighbours.
        table = entries[base : base + count]
        if width == 2:
            good &= _look_up(wide[key_at // 2 : key_at // 2 + end - begin], table, planes, begin)
        else:
            good &= _look_up(keys[key_at : key_at + end - begin], table, planes, begin)
    return good


@compile_function
def _look_up(keys: NDArray[Any], table: NDArray[np.uint64], planes: Bits, begin: int) -> bool:
    """Writes one tile unless a key is too large. Keys are unsigned: no test for negative ones."""
    # One pass over the keys, then none of the look-ups needs a test.
    largest = 0
    for at in range(len(keys)):
        largest = max(largest, int(keys[at]))
    if largest >= len(table):
        return False
    if len(planes) == REDSHIFTS_MOST:  # written out: half the time of the loop below
        end = begin + len(keys)
        a, b = planes[0, begin:end], planes[1, begin:end]
        c, d = planes[2, begin:end], planes[3, begin:end]
        for at in range(len(keys)):
            word = table[keys[at]]
            a[at] = np.uint16(word & _LOW)
            b[at] = np.uint16((word >> _SIXTEEN) & _LOW)
            c[at] = np.uint16((word >> _THIRTY_TWO) & _LOW)
            d[at] = np.uint16(word >> _FORTY_EIGHT)
        return True
    for at in range(len(keys)):
        word = table[keys[at]]
        for redshift in range(len(planes)):
            planes[redshift, begin + at] = np.uint16(word & _LOW)
            word >>= _SIXTEEN
    return True
