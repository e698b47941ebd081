"""`N_output.json`: what rank N measured of each step, in the order of its steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vanidl.encoding.budget import bounded_name, whole_number
from vanidl.readers.dlio.document import Object, number, objects, read_object, seconds, unusable

EXPECTED = "the steps of a rank"
EVALUATION = "eval"
_KIB = 1024

Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Block:
    """Steps between checkpoints, one entry a step in every array; `eval` is that of validation."""

    name: str
    load: Seconds  # until its batch was there
    proc: Seconds  # until it was computed: load and compute are parts of it
    compute: Seconds
    throughput: float | None  # samples/s of this rank, as recorded
    utilization_percent: float | None  # as recorded

    def __len__(self) -> int:
        return len(self.proc)


@dataclass(frozen=True, slots=True)
class RankOutput:
    """One rank's steps: epoch -> its blocks in order."""

    path: str
    rank: int
    host: str
    epochs: dict[int, tuple[Block, ...]]
    cached_nbytes: tuple[tuple[int, int], ...]  # (epoch, page cache of its host as it began)
    losses: tuple[str, ...]


def rank_of(path: Path) -> int | None:
    """The rank in the name of a file, None where it names none."""
    return whole_number(path.name.split("_", 1)[0])


def read_output(path: Path) -> RankOutput:
    """The steps of one rank; of damaged blocks the others.

    Raises:
        InputError: The file cannot be read, or holds no steps.
    """
    values = read_object(path, EXPECTED)
    epochs: dict[int, tuple[Block, ...]] = {}
    cached: list[tuple[int, int]] = []
    lost = 0
    for key, epoch in values.items():
        at = whole_number(key)
        if at is None or not isinstance(epoch, dict):
            continue
        found = [_block(epoch, str(name)) for name in objects(epoch.get("proc"))]
        lost += found.count(None)
        epochs[at] = tuple(block for block in found if block is not None)
        cached += ((at, nbytes) for nbytes in _cached(epoch))
    if not epochs:
        raise unusable(path, EXPECTED, "none")
    host = values.get("hostname")
    return RankOutput(
        path=str(path),
        rank=rank_of(path) or 0,
        host=bounded_name(host) if isinstance(host, str) else "",
        epochs=dict(sorted(epochs.items())),
        cached_nbytes=tuple(sorted(cached)),
        losses=(f"blocks of steps left out as their times are damaged: {lost:,}",) if lost else (),
    )


def _block(epoch: Object, name: str) -> Block | None:
    """One block; None where its times make no sense."""
    parts = (seconds(objects(epoch.get(what)).get(name)) for what in ("load", "proc", "compute"))
    load, proc, compute = parts
    if load is None or proc is None or compute is None:
        return None
    # A batch may have been loaded for which training had ended.
    steps = min(len(load), len(proc), len(compute))
    if steps < len(proc) or steps < len(compute) or len(load) > steps + 1:
        return None
    return Block(
        name=bounded_name(name),
        load=load[:steps],
        proc=proc,
        compute=compute,
        throughput=number(objects(epoch.get("throughput")).get(name)),
        utilization_percent=number(objects(epoch.get("au")).get(name)),
    )


def _cached(epoch: Object) -> Iterator[int]:
    """Bytes in the page cache of the rank's host as the epoch began."""
    text = objects(epoch.get("host_meminfo")).get("Cached")
    amount, _, unit = text.partition(" ") if isinstance(text, str) else ("", "", "")
    kib = whole_number(amount)
    if kib is not None and unit == "kB":
        yield kib * _KIB
