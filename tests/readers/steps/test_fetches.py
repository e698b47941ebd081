"""Fetches and who took them: process ids that come again, batches that nobody took."""

from __future__ import annotations

import numpy as np

from vanidl.readers.steps.fetches import build_fetch_table, find_workers
from vanidl.readers.steps.journal import (
    COLLATE,
    FETCH,
    TAKEN,
    WAIT,
    WORKER,
    Events,
    Journal,
)

TRAINER, WORKER_ID = 50, 77
Row = tuple[int, int, int, int, int, int]  # kind, loader or iterator, epoch, place, begin, end


def journal(pid: int, rows: list[Row]) -> Journal:
    columns = np.array(rows, np.int64).reshape(-1, 6).T
    kind, loader, epoch, place, begin, end = columns
    events = Events(kind, np.zeros(len(kind), np.int64), loader, epoch, place, begin, end)
    return Journal("", {"host": "n1", "pid": pid}, {}, events, ())


def test_a_process_id_that_comes_again_is_another_worker() -> None:
    """Two epochs, each with one worker; the system gave both the same process id."""
    trainer: list[Row] = []
    workers = []
    for epoch, at in enumerate((1_000, 5_000)):
        trainer += [(WORKER, epoch, 0, 0, WORKER_ID, at)]
        fetched: list[Row] = []
        for batch in range(2):
            begin = at + 10 + 100 * batch
            fetched += [(COLLATE, 0, 0, 3, begin + 20, begin + 29)]
            fetched += [(FETCH, 0, 0, batch, begin, begin + 30)]
            trainer += [(TAKEN, epoch, 0, batch, begin + 40, begin + 40)]
            trainer += [(WAIT, 4, epoch, batch, begin + 5, begin + 50)]
        fetched += [(FETCH, 0, 0, 2, at + 900, at + 950)]  # nobody took this one
        workers.append(journal(WORKER_ID, fetched))
    other = journal(WORKER_ID + 1, [(FETCH, 0, 0, 0, 1_010, 1_020)])
    loop = journal(TRAINER, trainer)
    table = build_fetch_table(loop, find_workers([loop, *workers, other]))
    assert table is not None
    assert table.by == ((TRAINER, -1), (WORKER_ID, 0), (WORKER_ID, 0))
    assert table.loader.tolist() == [4, 4, -1, 4, 4, -1]
    assert table.epoch.tolist() == [0, 0, -1, 1, 1, -1]
    assert table.batch.tolist() == [0, 1, -1, 0, 1, -1]
    assert table.samples.tolist() == [3, 3, -1, 3, 3, -1]
    taken = table.wait_end >= 0
    assert (table.collate - table.begin)[taken].tolist() == [20] * 4
    assert (table.wait_end - table.begin)[taken].tolist() == [50] * 4
    assert build_fetch_table(other, find_workers([other])) is None


def test_what_a_process_fetches_itself_is_of_the_wait_around_it() -> None:
    rows: list[Row] = []
    for batch in range(3):
        begin = 1_000 + 100 * batch
        rows += [
            (COLLATE, 0, 0, 2, begin + 30, begin + 40),
            (FETCH, 0, 0, 0, begin + 5, begin + 45),
        ]
        rows += [(WAIT, 1, 0, batch, begin, begin + 50)]
    rows += [(FETCH, 0, 0, 0, 2_000, 2_010), (WAIT, 1, 1, 0, 3_000, 3_010)]  # of no wait
    loop = journal(TRAINER, rows)
    table = build_fetch_table(loop, {})
    assert table is not None
    assert table.member.tolist() == [0] * 4
    assert table.batch.tolist() == [0, 1, 2, -1]
    assert table.wait_begin.tolist() == [1_000, 1_100, 1_200, -1]
