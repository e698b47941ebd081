"""Every window of one rank by cause: phases, steps and parts of steps, one row each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vanidl.breakdown.rank_cells import RankCells
from vanidl.breakdown.windows import PART_NAMES, PHASE_NAMES

Int64Array = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of one rank in order of time, one entry each in every array; times in ns.

    A part of a step is one window, however often a save or a validation cuts it. `step` is the
    number of the step, -1 outside of steps; `epoch` -1 where nothing says. `low` and `high`: name
    of a cell, as "storage.read" -> at least and at most. `assumed`: what the cells of a window
    rest on beside what was recorded -> of which windows.
    """

    phase: Int64Array  # index into PHASE_NAMES
    part: Int64Array  # index into PART_NAMES
    epoch: Int64Array
    step: Int64Array
    start_ns: Int64Array  # since the epoch
    end_ns: Int64Array
    length_ns: Int64Array
    low: Mapping[str, Int64Array]
    high: Mapping[str, Int64Array]
    assumed: Mapping[str, NDArray[np.bool_]]

    def __len__(self) -> int:
        return len(self.start_ns)

    def columns(self, since_ns: int) -> dict[str, NDArray[np.generic]]:
        """As a table: times in seconds since an instant, of each cell both ends."""
        phases, parts = np.array(PHASE_NAMES, object), np.array(PART_NAMES, object)
        columns: dict[str, NDArray[np.generic]] = {
            "phase": phases[self.phase],
            "part": parts[self.part],
            "epoch": self.epoch,
            "step": self.step,
            "start_s": (self.start_ns - since_ns) / 1e9,
            "end_s": (self.end_ns - since_ns) / 1e9,
            "window_s": self.length_ns / 1e9,
        }
        for name, low in self.low.items():
            columns[f"{name}_at_least_s"] = low / 1e9
            columns[f"{name}_at_most_s"] = self.high[name] / 1e9
        return columns


def gather_windows(cells: RankCells) -> Windows:
    """The windows that the tiles of one rank make up."""
    tiles = cells.tiles
    # Tiles outside of steps are windows of their own, unless their neighbour is of the same kind.
    same = (tiles.phase[1:] == tiles.phase[:-1]) & (tiles.part[1:] == tiles.part[:-1])
    run = np.append(0, np.cumsum(~(same & (tiles.step[1:] == tiles.step[:-1]))))
    place = len(tiles.number) * len(PART_NAMES) + run
    key = np.where(tiles.step >= 0, tiles.step * len(PART_NAMES) + tiles.part, place)
    _, first, row = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.argsort(order)
    row, first = rank[row], first[order]
    count = len(first)

    def total(values: Int64Array) -> Int64Array:
        return np.bincount(row, values, count).astype(np.int64)

    last = np.zeros(count, np.int64)
    np.maximum.at(last, row, tiles.end)
    sums = {id(v): total(v) for side in (cells.low, cells.high) for v in side.values()}
    low = {name: sums[id(v)] for name, v in cells.low.items()}
    high = {name: sums[id(v)] for name, v in cells.high.items()}
    step = tiles.step[first]
    number = np.append(tiles.number, -1)
    return Windows(
        phase=tiles.phase[first],
        part=tiles.part[first],
        epoch=tiles.epoch[first],
        step=number[np.where(step >= 0, step, len(tiles.number))],
        start_ns=tiles.start[first],
        end_ns=last,
        length_ns=total(tiles.length),
        low=low,
        high=high,
        assumed={what: np.bincount(row, where, count) > 0 for what, where in cells.assumed.items()},
    )
