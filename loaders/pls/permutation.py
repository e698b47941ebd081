"""Permutations of 0 .. n - 1 that are computed place by place: nobody draws or keeps all of one.

A Feistel network, as ciphers are made of, permutes the numbers of an even count of bits; what it
takes beyond n - 1 goes through it again until it is below (cycle walking), which permutes those.
Run backwards it says at which place a number is. A seed chooses a family of permutations; `which`
is the number of one of them, and like n it may differ from place to place.
Source: Black and Rogaway, Ciphers with Arbitrary Finite Domains, CT-RSA 2002.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]
UInt64Array = NDArray[np.uint64]

_ROUNDS = 8


def permuted(
    places: Int64Array, size: int | Int64Array, seed: tuple[int, ...], which: int | Int64Array = 0
) -> Int64Array:
    """What permutation `which` of 0 .. size - 1, chosen by the seed, has at some places."""
    return _Network.of(size, seed, which).walked(places, backwards=False)


def places_of(
    numbers: Int64Array, size: int | Int64Array, seed: tuple[int, ...], which: int | Int64Array = 0
) -> Int64Array:
    """Where that permutation has some numbers: the inverse of `permuted`."""
    return _Network.of(size, seed, which).walked(numbers, backwards=True)


@dataclass(frozen=True)
class _Network:
    """Permutations of numbers of 2 * `half` bits, for one or for each of several numbers.

    Attributes:
        size: (1 or n) numbers below it are walked to.
        half: (1 or n) half the bits of `size` - 1.
        keys: (rounds, 1 or n).
    """

    size: UInt64Array
    half: UInt64Array
    keys: UInt64Array

    @classmethod
    def of(cls, size: int | Int64Array, seed: tuple[int, ...], which: int | Int64Array) -> _Network:
        """That of `permuted`."""
        sizes, tweaks = np.atleast_1d(size), np.atleast_1d(which).astype(np.uint64)
        bits = np.frexp((sizes - 1).astype(np.float64))[1]  # exact below 2^53
        rounds = np.random.default_rng(seed).integers(1 << 63, size=(_ROUNDS, 1), dtype=np.uint64)
        half = np.maximum(1, -(-bits // 2)).astype(np.uint64)
        return cls(sizes.astype(np.uint64), half, _hashed(_hashed(tweaks) + rounds))

    def walked(self, values: Int64Array, *, backwards: bool) -> Int64Array:
        """Each value through the network until it is below its size."""
        found = self._mixed(values.astype(np.uint64), backwards)
        outside = np.flatnonzero(found >= self.size)
        while len(outside):
            again = self._at(outside)
            found[outside] = mixed = again._mixed(found[outside], backwards)
            outside = outside[mixed >= again.size]
        return found.astype(np.int64)

    def _at(self, index: Int64Array) -> _Network:
        """Of some of the numbers."""
        parts = (self.size, self.half, self.keys)
        return _Network(*(p if p.shape[-1] == 1 else p[..., index] for p in parts))

    def _mixed(self, values: UInt64Array, backwards: bool) -> UInt64Array:
        mask = (np.uint64(1) << self.half) - np.uint64(1)
        left, right = values >> self.half, values & mask
        keys: Iterable[UInt64Array] = self.keys
        if backwards:
            left, right, keys = right, left, self.keys[::-1]
        for key in keys:
            left, right = right, left ^ (_hashed(right + key) & mask)
        if backwards:
            left, right = right, left
        return (left << self.half) | right


def _hashed(values: UInt64Array) -> UInt64Array:
    """The finalizer of splitmix64: every bit of a value decides about half of the result's."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
