"""Fetches of DataLoader workers, joined with the calls of the training process that took them.

A training process numbers its iterators with workers, and says which processes work for each.
A worker says which batch it fetched, in which round. Batch, round and iterator lead to the event
TAKEN, and that to the input wait that follows in its thread. What a process fetches itself is
of the wait that it does so in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.readers.records import FetchTable
from vanidl.readers.steps.journal import COLLATE, END, FETCH, TAKEN, WAIT, WORKER, Events, Journal
from vanidl.readers.steps.loop import name_loaders
from vanidl.schema.dataclass import dataclass

Int64Array = NDArray[np.int64]

_MOST = 1 << 20  # workers, and batches that each makes ahead: more is no loader's


@dataclass(frozen=True, slots=True)
class _Fetches:
    """Some fetches of one training process; one entry a fetch in every array."""

    member: Int64Array
    loader: Int64Array
    epoch: Int64Array
    batch: Int64Array
    samples: Int64Array
    begin: Int64Array
    collate: Int64Array
    end: Int64Array
    wait_begin: Int64Array
    wait_end: Int64Array
    nbytes: Int64Array


@dataclass(frozen=True, slots=True)
class _Done:
    """Fetches as the process that did them recorded them."""

    round: Int64Array
    batch: Int64Array
    thread: Int64Array
    samples: Int64Array
    begin: Int64Array
    collate: Int64Array
    end: Int64Array
    row: Int64Array  # of the event
    nbytes: Int64Array

    def __len__(self) -> int:
        return len(self.begin)


Workers = Mapping[tuple[str, int], Sequence[Journal]]
"""Host and process id -> journals of processes that trained nothing: ids come again."""


def find_workers(journals: Iterable[Journal]) -> Workers:
    """The journals that may be those of workers."""
    by_process: dict[tuple[str, int], list[Journal]] = {}
    for journal in journals:
        pid = _get_pid(journal)
        if pid is not None and not _trains(journal):
            by_process.setdefault((_get_host(journal), pid), []).append(journal)
    return by_process


def build_fetch_table(journal: Journal, workers: Workers) -> FetchTable | None:
    """What the loaders of a training process fetched; None for other processes, and nothing."""
    if not _trains(journal):
        return None
    events, pid = journal.events, _get_pid(journal)
    by = [(-1 if pid is None else pid, -1)]
    # What the training process fetched itself: each is of the wait that ends next.
    done = _collect_done(events)
    wait = _find_next_wait(events, done.row, done.thread)
    inside = wait >= 0
    inside[inside] = events.begin[wait[inside]] <= done.begin[inside]
    own = _add_waits(done, 0, np.where(inside, wait, -1), events)
    blocks = [own]
    taken = _Taken.of(events)
    for row, worker in _match_workers(journal, workers):
        # What a worker fetched, with the waits that took it.
        fetched = _collect_done(worker.events)
        waits = taken.wait(int(events.loader[row]), fetched)
        blocks.append(_add_waits(fetched, len(by), waits, taken.events))
        by.append((int(events.begin[row]), int(events.place[row])))

    # All blocks as one table.
    columns = {
        f.name: np.concatenate([getattr(b, f.name) for b in blocks]) for f in fields(_Fetches)
    }
    for column in columns.values():
        column.flags.writeable = False
    table = FetchTable(
        host=_get_host(journal),
        pid=pid,
        by=tuple(by),
        loaders=name_loaders(journal),
        ahead={number: _get_read_ahead(text) for number, text in journal.loaders.items()},
        **columns,
    )
    return table if len(table.begin) else None


def list_processes(journal: Journal, workers: Workers) -> list[Journal]:
    """The journals of a training process and of the workers that fetched for it, each once."""
    matched = {worker.path: worker for _, worker in _match_workers(journal, workers)}
    return [journal, *matched.values()]


def _trains(journal: Journal) -> bool:
    return bool(np.isin(journal.events.kind, (WAIT, END, TAKEN, WORKER)).any())


def _get_read_ahead(loader: Mapping[str, Any]) -> tuple[int, int]:
    """How many batches a loader asks for ahead, and whether they come in order; -1: not said."""
    ahead = 1
    for word in ("workers", "prefetch"):
        value = loader.get(word)
        if type(value) is not int or not 0 < value <= _MOST:
            ahead = -1
            break
        ahead *= value
    in_order = loader.get("in_order")
    return ahead, int(in_order) if type(in_order) is bool else -1


def _get_pid(journal: Journal) -> int | None:
    pid = journal.process.get("pid")
    return pid if type(pid) is int and pid >= 0 else None


def _get_host(journal: Journal) -> str:
    return str(journal.process.get("host", ""))


def _match_workers(journal: Journal, workers: Workers) -> Iterator[tuple[int, Journal]]:
    """Each worker of a process, with the row that says so: the last of its id before it fetched.

    A worker begins to fetch while its iterator is being made.
    """
    events, host = journal.events, _get_host(journal)
    rows = np.flatnonzero(events.kind == WORKER)
    rows = rows[np.lexsort((events.end[rows], events.begin[rows]))]  # by process id, then time
    pids, first = np.unique(events.begin[rows], return_index=True)
    for pid, mine in zip(pids.tolist(), np.split(rows, first[1:]), strict=False):
        for worker in workers.get((host, pid), ()):
            begun = worker.events.begin[worker.events.kind == FETCH]
            place = (
                np.searchsorted(events.end[mine], begun.min(), side="right") if len(begun) else 0
            )
            if place:
                yield int(mine[place - 1]), worker


def _add_waits(done: _Done, member: int, wait: Int64Array, events: Events) -> _Fetches:
    # -1 where no wait is known that took the batch.
    def of(column: Int64Array) -> Int64Array:
        return np.where(wait >= 0, column[wait] if len(column) else -1, -1)

    return _Fetches(
        member=np.full(len(done), member, np.int64),
        loader=of(events.loader),
        epoch=of(events.epoch),
        batch=of(events.place),
        samples=done.samples,
        begin=done.begin,
        collate=done.collate,
        end=done.end,
        wait_begin=of(events.begin),
        wait_end=of(events.end),
        nbytes=done.nbytes,
    )


@dataclass(frozen=True, slots=True)
class _Taken:
    """Batches that a training process took, in ascending order of `key`."""

    events: Events
    key: NDArray[Any]  # (iterator, round, batch)
    waits: Int64Array  # row of the wait that took it, -1 where none is known

    @classmethod
    def of(cls, events: Events) -> _Taken:
        """As its journal has them."""
        rows = np.flatnonzero(events.kind == TAKEN)
        key = _build_keys(events.loader[rows], events.epoch[rows], events.place[rows])
        order = np.argsort(key, order=key.dtype.names, kind="stable")
        waits = _find_next_wait(events, rows, events.thread[rows])
        return cls(events, key[order], waits[order])

    def wait(self, iterator: int, done: _Done) -> Int64Array:
        """For each fetch the row of the wait that took its batch, -1 for none."""
        if not len(self.key):
            return np.full(len(done), -1, np.int64)
        wanted = _build_keys(np.full(len(done), iterator), done.round, done.batch)
        place = np.minimum(np.searchsorted(self.key, wanted), len(self.key) - 1)
        return np.where(self.key[place] == wanted, self.waits[place], -1)


def _build_keys(iterator: Int64Array, of_round: Int64Array, batch: Int64Array) -> NDArray[Any]:
    keys = np.empty(len(batch), [("iterator", "i8"), ("round", "i8"), ("batch", "i8")])
    keys["iterator"], keys["round"], keys["batch"] = iterator, of_round, batch
    return keys


def _collect_done(events: Events) -> _Done:
    """The fetches of a process, with the collating that ended just before in their thread."""
    rows = np.flatnonzero(events.kind == FETCH)
    thread, begin, end = events.thread[rows], events.begin[rows], events.end[rows]
    collates = _find_before(events, COLLATE, rows)
    collated = collates >= 0
    # Collating that began before the fetch is that of another one.
    collated[collated] = events.begin[collates[collated]] >= begin[collated]
    last = np.maximum(collates, 0)
    # Bytes are measured of some batches only; 0 stands for none.
    measured = collated & (events.loader[last] > 0) if len(rows) else collated
    return _Done(
        round=events.epoch[rows],
        batch=events.place[rows],
        thread=thread,
        samples=np.where(collated, events.place[last], -1) if len(rows) else rows,
        begin=begin,
        collate=np.where(collated, events.begin[last], end) if len(rows) else rows,
        end=end,
        row=rows,
        nbytes=np.where(measured, events.loader[last], -1) if len(rows) else rows,
    )


def _find_before(events: Events, kind: int, rows: Int64Array) -> Int64Array:
    """For each row the last one of a kind before it in its thread, -1 for none."""
    before = np.full(len(rows), -1, np.int64)
    for thread in np.unique(events.thread[rows]).tolist():
        of_thread = events.thread[rows] == thread
        others = np.flatnonzero((events.kind == kind) & (events.thread == thread))
        place = np.searchsorted(others, rows[of_thread]) - 1
        before[of_thread] = np.where(place >= 0, others[place] if len(others) else -1, -1)
    return before


def _find_next_wait(events: Events, rows: Int64Array, threads: Int64Array) -> Int64Array:
    """For each row the next wait that got a batch in its thread, -1 for none."""
    following = np.full(len(rows), -1, np.int64)
    for thread in np.unique(threads).tolist():
        of_thread = threads == thread
        waits = np.flatnonzero((events.kind == WAIT) & (events.thread == thread))
        place = np.searchsorted(waits, rows[of_thread])
        has = place < len(waits)
        row = waits[np.minimum(place, max(len(waits) - 1, 0))] if len(waits) else -1
        following[of_thread] = np.where(has, row, -1)
    return following
