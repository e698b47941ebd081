"""The data store: blocks stay in the memory of the rank that read them, and are sent to others.

A sample is read from storage once. Later it may be dealt to another group of ranks: then each
part of the group that has it sends its block to the same part of the group that needs it. All
follows from the order of ids, which every rank knows: nobody has to ask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ranks.messages import Message, Transport
from .sharing import Sharing

Block = Mapping[str, NDArray[Any]]
"""The arrays of one part of one sample, by name of the field."""


@dataclass(frozen=True)
class Served:
    """What came from stores: blocks of this rank's own, and blocks and bytes of others'."""

    hits: int = 0
    received: int = 0
    received_nbytes: int = 0


class SlabStore:
    """Blocks of one rank, and which group has which sample."""

    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing
        self._slabs: dict[int, dict[str, NDArray[Any]]] = {}
        self._owner: dict[int, int] = {}

    @property
    def nbytes(self) -> int:
        """Bytes held by this rank."""
        return sum(array.nbytes for slab in self._slabs.values() for array in slab.values())

    def known(self) -> set[int]:
        """Samples that some group has."""
        return set(self._owner)

    def serve(
        self, dealt: Sequence[Sequence[int]], out: Mapping[int, Block], transport: Transport
    ) -> Served:
        """Fills what this rank needs and some rank has. Every rank calls it.

        Args:
            dealt: The ids of the step, of each group.
            out: Where the blocks of this rank's samples go.
            transport: Carries them.
        """
        own, hits = self._sharing.group, 0
        sends, receives = list[Message](), list[Message]()
        for group, ids in enumerate(dealt):
            for sample in self._in_store(ids):
                owner = self._owner[sample]
                if owner == own == group:
                    hits += 1
                    for name, array in self._slabs[sample].items():
                        out[sample][name][...] = array
                elif owner == own:
                    sends += self._messages(group, self._slabs[sample])
                elif group == own:
                    receives += self._messages(owner, out[sample])
        transport.start(sends, receives).wait()
        fields = len(next(iter(out.values())))
        nbytes = sum(array.nbytes for _, array in receives)
        return Served(hits, len(receives) // fields, nbytes)

    def keep(self, dealt: Sequence[Sequence[int]], read: Mapping[int, Block]) -> None:
        """Notes who has read what in a step, and keeps a copy of what falls to this rank.

        Where two groups read the same sample in one step, the first keeps it.
        """
        for group, ids in enumerate(dealt):
            for sample in ids:
                if sample in self._owner:
                    continue
                self._owner[sample] = group
                if group == self._sharing.group:
                    self._slabs[sample] = {n: np.array(a) for n, a in read[sample].items()}

    def _in_store(self, ids: Sequence[int]) -> list[int]:
        return [sample for sample in dict.fromkeys(ids) if sample in self._owner]

    def _messages(self, group: int, block: Block) -> list[Message]:
        rank = self._sharing.rank_of(group, self._sharing.part)
        return [(rank, block[name]) for name in sorted(block)]
