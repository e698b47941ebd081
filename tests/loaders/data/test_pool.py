"""Groups of reads: every read once, by threads where reads are slow, counted whatever happens."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from vanidl_loaders.data import pool
from vanidl_loaders.data.pool import GroupedReads
from vanidl_loaders.data.pread import ReadTotals
from vanidl_loaders.errors import InputError


@pytest.fixture
def grouped():
    made = GroupedReads(4)
    yield made
    made.close()


class Storage:
    """Reads that say who did them; one of them may fail, or wait for others to begin."""

    def __init__(self):
        self.threads = []

    def read(self, number, *, fails=False, together_with=None):
        def task():
            self.threads.append(threading.get_ident())
            if together_with is not None:
                together_with.wait(60)
            if fails:
                raise InputError("expected a read that works")
            return ReadTotals(number, 1)

        return task


def quick_group(grouped, monkeypatch):
    """A group whose reads were quick, however busy the machine is."""
    monkeypatch.setattr(pool, "QUICK_S", 1e9)
    grouped.finish(grouped.begin([lambda: ReadTotals(0, 1)]))


def test_quick_reads_are_done_by_whoever_waits(grouped, monkeypatch):
    quick_group(grouped, monkeypatch)
    storage = Storage()
    group = grouped.begin([storage.read(i) for i in range(20)])
    assert not storage.threads
    grouped.finish(group)
    assert set(storage.threads) == {threading.get_ident()}
    assert group.totals() == ReadTotals(sum(range(20)), 20)
    assert group.totals() == ReadTotals()


def test_slow_reads_overlap(grouped, monkeypatch):
    """Four reads that each wait until all four have begun: fewer threads would never end."""
    monkeypatch.setattr(pool, "QUICK_S", -1e9)
    for _ in range(2):
        storage, all_four = Storage(), threading.Barrier(4)
        grouped.finish(grouped.begin([storage.read(i, together_with=all_four) for i in range(4)]))
        assert len(set(storage.threads)) == 4


def test_threads_join_in_where_a_read_turns_out_slow(grouped, monkeypatch):
    quick_group(grouped, monkeypatch)
    monkeypatch.setattr(pool, "SLOW_S", -1.0)
    storage, both = Storage(), threading.Barrier(2)
    reads = [storage.read(1), *(storage.read(1, together_with=both) for _ in range(2))]
    group = grouped.begin(reads)
    grouped.finish(group)
    assert len(set(storage.threads)) == 2
    assert group.totals() == ReadTotals(3, 3)


@pytest.mark.parametrize("quick", [True, False])
def test_what_a_read_raises_is_raised_and_the_others_are_counted(grouped, monkeypatch, quick):
    if quick:
        quick_group(grouped, monkeypatch)
    storage = Storage()
    group = grouped.begin([storage.read(5), storage.read(7, fails=True)])
    with pytest.raises(InputError, match="works"):
        grouped.finish(group)
    assert not group.abandon()
    assert group.totals() == ReadTotals(5, 1)


def test_an_abandoned_group_begins_no_more_and_counts_what_was_read(grouped):
    begun, go_on = threading.Barrier(5), threading.Event()

    def task():
        begun.wait(60)
        go_on.wait(60)
        return ReadTotals(1, 1)

    group = grouped.begin([task] * 6)
    begun.wait(60)
    with ThreadPoolExecutor(1) as elsewhere:
        whole = elsewhere.submit(group.abandon)
        while group._waiting:
            time.sleep(0.001)
        go_on.set()
        assert not whole.result()
    assert group.totals().requests == 4


def test_groups_of_nothing_say_nothing_of_the_storage(grouped, monkeypatch):
    quick_group(grouped, monkeypatch)
    empty = grouped.begin([])
    grouped.finish(empty)
    assert empty.abandon()
    assert grouped.begin([lambda: ReadTotals()])._workers == []
