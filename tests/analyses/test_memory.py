from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vanidl.analyses.memory import (
    LEAST_NBYTES,
    estimate_trend,
    finish,
    sum_hosts,
)
from vanidl.model.run_facts import Ending, HostMemory, ProcessMemory
from vanidl.model.trace import NO_FETCHES, SpanKind
from vanidl.wording.results import describe_memory, describe_peak, explain_memory

MIB = 1 << 20
GIB = 1 << 30
LOOKS = 61  # a second apart
AT = np.arange(LOOKS, dtype=np.int64) * 10**9 + 10**18


def grown(first, last, looks=LOOKS):
    return np.linspace(first, last, looks).astype(np.int64)


def process(pid, parent, resident, private, shared_memory=0, every=4):
    """One whose pages are walked at every fourth look; what is not private is another's."""
    resident = np.broadcast_to(resident, LOOKS).astype(np.int64)
    private = np.broadcast_to(private, LOOKS).astype(np.int64)
    walks = slice(None, None, every)
    shared = np.full(LOOKS, shared_memory, np.int64)[walks]
    return ProcessMemory(
        pid, parent, AT, resident, np.zeros(LOOKS, np.int64), AT[walks],
        private[walks] + shared, private[walks], shared, np.zeros_like(shared),
    )  # fmt: skip


def run_of(*processes, limit=64 * GIB, of="control group", dev_shm=0, available=-1, epochs=0):
    shm = np.broadcast_to(dev_shm, LOOKS).astype(np.int64)
    unknown = np.full(LOOKS, -1, np.int64)
    host = HostMemory(
        "node", limit, of, processes, AT, shm, np.full(LOOKS, available, np.int64), unknown, unknown
    )
    edges = np.linspace(AT[0], AT[-1] + 1, epochs + 1).astype(np.int64)
    spans = SimpleNamespace(
        kind=np.full(epochs, SpanKind.EPOCH, np.uint8), process=np.zeros(epochs, np.int32),
        start=edges[:-1], end=edges[1:],
    )  # fmt: skip
    return SimpleNamespace(
        memory=(host,),
        job=SimpleNamespace(start_ns=int(AT[0])),
        processes=(SimpleNamespace(pid=1, role="trainer", host="node"),),
        fetches=NO_FETCHES,
        spans=spans,
    )


TRAINER = process(1, 0, GIB, GIB)


@pytest.mark.parametrize("turned", [False, True])
def test_of_several_hosts_the_one_with_the_highest_peak_stands_for_the_run(turned: bool) -> None:
    """In words and in the picture, which draws the first."""
    small = run_of(TRAINER)
    (large,) = run_of(process(1, 0, 3 * GIB, 3 * GIB)).memory
    hosts = (*small.memory, replace(large, host="other"))
    small.memory = hosts[::-1] if turned else hosts
    found = finish(small)
    assert found.peak_nbytes == 3 * GIB
    assert [series.host for series in found.series] == ["other", "node"]
    assert found.series[0].training.max() + found.series[0].other.max() >= 3 * GIB


def test_workers_that_copy_what_they_share_are_told():
    """They are as large as their parent from the start on; more and more of it is their own."""
    workers = [process(k, 1, GIB, grown(64 * MIB, 564 * MIB)) for k in (2, 3)]
    found = finish(run_of(TRAINER, *workers))
    assert (found.kind, found.workers) == ("copies", 2)
    assert found.copied_nbytes == pytest.approx(1000 * MIB, rel=0.01)
    assert found.peak_nbytes == pytest.approx(GIB + 2 * 564 * MIB, rel=0.01)
    assert found.peak_workers_nbytes == pytest.approx(2 * 564 * MIB, rel=0.01)
    assert (
        "1,000 MiB" in explain_memory(found)
        or "GiB" in explain_memory(found)
        or "MiB" in explain_memory(found)
    )


def test_workers_that_hold_more_and_more_do_not_copy():
    workers = [process(k, 1, grown(64 * MIB, 564 * MIB), grown(64 * MIB, 564 * MIB)) for k in (2,)]
    found = finish(run_of(TRAINER, *workers))
    assert (found.kind, found.copied_nbytes) == ("growth", 0)


def test_batches_on_their_way_are_in_shared_memory():
    filled = np.minimum(grown(0, 4 * GIB), GIB)
    found = finish(run_of(TRAINER, process(2, 1, 0, 0), dev_shm=filled + 5 * MIB))
    assert found.kind == "in_flight"
    assert found.peak_shared_nbytes == GIB
    assert found.peak_nbytes == 2 * GIB
    assert "1 GiB of shared memory" in explain_memory(found)


def test_steady_is_steady():
    found = finish(run_of(TRAINER, process(2, 1, GIB, 100 * MIB), dev_shm=MIB))
    assert (found.kind, found.growth_nbytes_per_s, found.out_of_memory_s) == ("steady", None, None)
    assert describe_memory(found, None) == explain_memory(found) == ""


@pytest.mark.parametrize(
    ("nbytes", "kind"), [(LEAST_NBYTES, "copies"), (LEAST_NBYTES - 1, "steady")]
)
def test_little_that_is_copied_is_not_worth_a_word(nbytes, kind):
    worker = process(2, 1, 64 * MIB, grown(0, nbytes, LOOKS), every=1)
    assert finish(run_of(process(1, 0, 64 * MIB, 64 * MIB), worker)).kind == kind


def test_growth_says_when_memory_runs_out():
    found = finish(run_of(process(1, 0, grown(GIB, 7 * GIB), grown(GIB, 7 * GIB)), limit=8 * GIB,
                          epochs=6))  # fmt: skip
    assert found.kind == "growth"
    assert found.growth_nbytes_per_s == pytest.approx(GIB / 10, rel=0.01)
    assert found.left_nbytes == pytest.approx(GIB, rel=0.01)
    assert found.out_of_memory_s == pytest.approx(10, rel=0.01)
    assert found.growth_nbytes_per_epoch == pytest.approx(GIB, rel=0.01)
    assert "out of memory in about 10" in describe_memory(found, None)


def test_what_a_machine_can_still_give_counts_beside_its_size():
    found = finish(run_of(TRAINER, of="machine", available=3 * GIB))
    assert found.left_nbytes == 3 * GIB
    of_group = finish(run_of(TRAINER, limit=8 * GIB, available=3 * GIB))
    assert of_group.left_nbytes == 7 * GIB
    assert finish(run_of(TRAINER, limit=-1, of="")).limit_nbytes is None


@pytest.mark.parametrize(("left", "said"), [(0.09, True), (0.11, False)])
def test_a_run_near_its_limit_says_so(left, said):
    found = finish(run_of(TRAINER, limit=round(GIB / (1 - left))))
    assert bool(describe_memory(found, None)) == said
    assert "of its control group" in describe_peak(found)


def test_kills_are_said_with_what_was_taken():
    found = finish(run_of(TRAINER))
    killed = Ending(exit_status=137, memory_kills=1)
    assert describe_memory(found, killed).startswith("Memory ran out: at most 1 GiB of the 64 GiB")
    assert describe_memory(None, killed) == ""


SECONDS = np.arange(90, dtype=float)


def test_a_trend_must_hold():
    assert estimate_trend(SECONDS, SECONDS * MIB + GIB) is not None
    assert estimate_trend(SECONDS, np.full(90, 5.0 * GIB)) is None
    filled = np.minimum(SECONDS * 20 * MIB, 40 * 20 * MIB) + GIB  # full after 40 s
    assert estimate_trend(SECONDS, filled) is None
    late = np.where(SECONDS < 75, 0, (SECONDS - 75) * 50 * MIB) + GIB
    assert estimate_trend(SECONDS, late) is None
    assert estimate_trend(SECONDS[:7], SECONDS[:7] * GIB) is None
    assert estimate_trend(SECONDS[:0], SECONDS[:0]) is None
    assert estimate_trend(SECONDS / 10, SECONDS * GIB) is None  # too short


@pytest.mark.parametrize(("rise", "holds"), [(1.01, True), (0.99, False)])
def test_growth_of_little_is_no_trend(rise, holds):
    """Of the last two thirds, 59 s here, what is worth a word."""
    late = SECONDS >= 89 / 3
    long_s = SECONDS[late][-1] - SECONDS[late][0]
    found = estimate_trend(SECONDS, SECONDS * rise * LEAST_NBYTES / long_s)
    assert (found is not None) == holds


@given(st.lists(st.integers(0, 10**12), min_size=10, max_size=60))
def test_a_trend_is_growth(sizes):
    at_s = np.arange(len(sizes), dtype=float) * 2
    found = estimate_trend(at_s, np.array(sizes, float))
    assert found is None or found > 0


@given(st.integers(1, 60), st.integers(1, 1000), st.integers(0, 1000))
def test_pages_count_once(every, resident, private):
    """However seldom they are walked, what is shared with another does not count for this one."""
    private = min(resident, private)
    found = sum_hosts(run_of(process(1, 0, resident, private, every=every)).memory[0])[1]
    assert found == pytest.approx(np.full(LOOKS, private))


def test_pages_of_libraries_that_others_have_count_by_their_share():
    """A process grows between two walks, by pages of which half are of others."""
    size = np.where(np.arange(LOOKS) < 2, 10 * MIB, 290 * MIB)
    one = process(1, 0, size, np.where(size > 10 * MIB, 150 * MIB, 10 * MIB))
    _, total = sum_hosts(run_of(one).memory[0])
    assert total.tolist() == [10 * MIB] * 2 + [150 * MIB] * (LOOKS - 2)


def test_pages_that_change_hands_do_so_bit_by_bit():
    """Resident memory does not change; between two walks its own part grows."""
    one = process(1, 0, GIB, grown(64 * MIB, 564 * MIB))
    _, total = sum_hosts(run_of(one).memory[0])
    assert total == pytest.approx(np.linspace(64 * MIB, 564 * MIB, LOOKS), abs=MIB)


def test_pages_that_a_child_shares_are_given_away_when_it_begins():
    """Between two walks a process forks: what both have counts once from then on."""
    size, born = 300 * MIB, 6
    parent = process(1, 0, size, np.where(np.arange(LOOKS) < born, size, size // 2))
    child = process(2, 1, size, size // 2)
    late = {name: getattr(child, name)[2:] for name in
            ("walked_ns", "proportional", "private", "shared_memory", "swapped")}  # fmt: skip
    looks = {name: getattr(child, name)[born:] for name in ("at_ns", "resident", "shared")}
    _, total = sum_hosts(run_of(parent, replace(child, **late, **looks)).memory[0])
    assert total.tolist() == [size] * LOOKS


def test_without_walks_resident_pages_count():
    bare = process(1, 0, GIB, GIB)
    none = np.zeros(0, np.int64)
    bare = ProcessMemory(1, 0, AT, bare.resident, bare.shared + MIB, none, none, none, none, none)
    assert sum_hosts(run_of(bare).memory[0])[1] == pytest.approx(np.full(LOOKS, GIB - MIB))


def test_nothing_seen_is_none():
    assert finish(SimpleNamespace(memory=())) is None
