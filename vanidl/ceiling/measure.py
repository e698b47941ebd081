"""Two recorded runs of one program, one of them with batches from memory -> `Ceiling`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nextafter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vanidl.ceiling.replayed import Kept, kept
from vanidl.ceiling.replayed_steps import RankSteps, steps_of
from vanidl.errors import InputError
from vanidl.formatting.units import plural
from vanidl.model.run_facts import Ceiling
from vanidl.model.student_t import t_above
from vanidl.readers import discover
from vanidl.readers.steps import FORMAT
from vanidl.readers.steps.journal import Journal, read_journal

FEWEST = 8
"""Steps of a rank: of fewer there is no interval to speak of."""

_SHORT = (
    "train for more steps, or less --warm-up, or say with --epoch-batches N how many batches a "
    "pass has over data that do not know it"
)
_BLOCKS = 20
_LEVEL = 0.98

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Compared:
    """Steps that both runs have; arrays of shape (ranks, steps), in seconds."""

    taken: FloatArray
    free: FloatArray
    copying: FloatArray
    remarks: tuple[str, ...]


def measure(run: Path, ceiling_run: Path) -> Ceiling:
    """The ceiling of a recorded run.

    Args:
        run: as it trains.
        ceiling_run: the same command with batches from memory after a warm-up.

    Raises:
        InputError: in one of them no steps were recorded, or no batch came from memory.
    """
    taken, free = _journals(run), _journals(ceiling_run)
    memory = kept(free)
    compared = _compared(_by_rank(taken, run), _by_rank(free, ceiling_run), memory)
    return _ceiling(compared, memory)


def _journals(folder: Path) -> list[Journal]:
    found = discover.find(folder).of(FORMAT)
    paths = next((paths for kind, paths in found.items() if kind.name == "steps"), ())
    return [read_journal(path) for path in paths]


def _by_rank(journals: list[Journal], folder: Path) -> dict[int, RankSteps]:
    """The steps of each rank; of a process without one it is 0."""
    found: dict[int, RankSteps] = {}
    for journal in journals:
        steps = steps_of(journal)
        rank = steps.rank
        if len(steps.length_s) > len(found[rank].length_s if rank in found else ()):
            found[rank] = steps
    if not found:
        raise InputError(
            f"{folder}: expected steps recorded by vanidl record, found none: the program must "
            "take batches from a loader that vanidl knows (docs/recording.md), or one named with "
            "--wait, and --no-steps must not be set"
        )
    return found


def _compared(
    taken: Mapping[int, RankSteps], free: Mapping[int, RankSteps], memory: Kept
) -> _Compared:
    ranks = sorted(taken.keys() & free.keys())
    if not ranks or taken.keys() != free.keys():
        raise InputError(
            f"expected the same ranks in both runs, found {sorted(taken)} and, with batches from "
            f"memory, {sorted(free)}: run both on as many processes"
        )
    fewest = _fewest(taken, free)
    pairs = [(taken[rank], free[rank]) for rank in ranks]
    alike = min(_alike(*pair, fewest) for pair in pairs)
    parted = [pair for pair in pairs if _alike(*pair, fewest) == alike < fewest]
    where = tuple(_parting(*pair, alike) for pair in parted[:1])
    usable = np.stack([_usable(*pair, alike) for pair in pairs])
    steps = np.flatnonzero(usable.all(axis=0))
    if len(steps) < FEWEST:
        raise InputError(_too_few(len(steps), where, memory.remarks))
    return _Compared(
        np.stack([taken[rank].length_s[steps] for rank in ranks]),
        np.stack([free[rank].length_s[steps] for rank in ranks]),
        np.stack([free[rank].copying_s[steps] for rank in ranks]),
        (*where, *memory.remarks),
    )


def _fewest(taken: Mapping[int, RankSteps], free: Mapping[int, RankSteps]) -> int:
    return min(len(steps.length_s) for steps in (*taken.values(), *free.values()))


def _usable(taken: RankSteps, free: RankSteps, count: int) -> NDArray[np.bool_]:
    """Steps whose batches all came from memory, and that no profiler of ours slowed."""
    usable: NDArray[np.bool_] = free.replayed[:count] & ~taken.profiled[:count]
    return usable


def _alike(taken: RankSteps, free: RankSteps, count: int) -> int:
    """How many steps the runs have in common: which take the same batches of the same passes."""
    differs = np.flatnonzero((taken.begins[:count] != free.begins[:count]).any(axis=1))
    return int(differs[0]) if len(differs) else count


def _parting(taken: RankSteps, free: RankSteps, step: int) -> str:
    """Where the runs part."""
    real, memory = (
        "no batch" if first[0] < 0 else f"batch {first[1] + 1} of pass {first[0] + 1}"
        for first in (taken.begins[step].tolist(), free.begins[step].tolist())
    )
    return (
        f"{plural(step, 'step')} can be compared at most: the next one takes {real} in the run as "
        f"it trains, {memory} with batches from memory; data that end before a pass should, such "
        "as a finite generator with steps_per_epoch, do not end from memory"
    )


def _too_few(found: int, parted: Sequence[str], remarks: Sequence[str]) -> str:
    why = "; ".join((*parted, *(remarks or (_SHORT,))))
    return (
        f"expected at least {FEWEST} steps with batches from memory, found {plural(found, 'step')}"
        f": {why}"
    )


def _ceiling(compared: _Compared, memory: Kept) -> Ceiling:
    taken, free, copying = compared.taken, compared.free, compared.copying
    cost, low, _ = cost_of(taken.mean(axis=0), free.mean(axis=0))
    _, _, high = cost_of(taken.mean(axis=0), (free - copying).mean(axis=0))
    return Ceiling(
        ranks=len(taken),
        steps=taken.shape[1],
        step_s=float(taken.mean()),
        free_s=float(free.mean()),
        median_step_s=float(np.median(taken)),
        median_free_s=float(np.median(free)),
        copying_s=float(copying.mean()),
        cost=cost,
        low=min(low, cost),
        high=min(max(high, cost), nextafter(1.0, 0.0)),
        replayed=memory.loaders,
        kept=memory.batches,
        kept_nbytes=memory.nbytes,
        remarks=compared.remarks,
    )


def cost_of(taken: FloatArray, free: FloatArray) -> tuple[float, float, float]:
    """1 - sum(free) / sum(taken), and its 98 % interval.

    Jackknife over blocks of neighbouring steps, as steps follow from each other: Student's t with
    one degree of freedom less than there are blocks. It says nothing of another pair of runs.
    """
    blocks = min(_BLOCKS, len(taken) // 2)
    edges = np.linspace(0, len(taken), blocks + 1).astype(int)[:-1]
    t, f = np.add.reduceat(taken, edges), np.add.reduceat(free, edges)
    cost = 1 - float(f.sum() / t.sum())
    without = 1 - (f.sum() - f) / (t.sum() - t)
    error = float(np.sqrt((blocks - 1) / blocks * ((without - without.mean()) ** 2).sum()))
    reach = error * t_above((1 - _LEVEL) / 2, blocks - 1)
    return cost, cost - reach, cost + reach
