"""A permutation of 0 .. n - 1 that is computed place by place: nobody draws or keeps all of it.

A Feistel network, as ciphers are made of, permutes the numbers of an even count of bits; what it
takes beyond n - 1 goes through it again until it is below (cycle walking), which permutes those.
Source: Black and Rogaway, Ciphers with Arbitrary Finite Domains, CT-RSA 2002.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]
UInt64Array = NDArray[np.uint64]

_ROUNDS = 8


def permuted(places: Int64Array, size: int, seed: tuple[int, ...]) -> Int64Array:
    """What a permutation of 0 .. size - 1, chosen by the seed, has at some places."""
    keys = np.random.default_rng(seed).integers(1 << 63, size=_ROUNDS, dtype=np.uint64)
    half = np.uint64(max(1, -(-(size - 1).bit_length() // 2)))
    found = _mixed(places.astype(np.uint64), half, keys)
    outside = np.flatnonzero(found >= size)
    while len(outside):
        found[outside] = _mixed(found[outside], half, keys)
        outside = outside[found[outside] >= size]
    return found.astype(np.int64)


def _mixed(values: UInt64Array, half: np.uint64, keys: UInt64Array) -> UInt64Array:
    """A permutation of the numbers of 2 * half bits."""
    mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = values >> half, values & mask
    for key in keys:
        left, right = right, left ^ (_hashed(right + key) & mask)
    return (left << half) | right


def _hashed(values: UInt64Array) -> UInt64Array:
    """The finalizer of splitmix64: every bit of a value decides about half of the result's."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
