"""What workers read, and who worked beside whom."""

from __future__ import annotations

import pytest

from tests.makers.records import JOB_START_NS, Io, darshan_log
from tests.makers.training_jobs import Recipe, trace_of
from vanidl.analyses.results import analyse
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import assemble


def workers_of(recipe: Recipe):
    return analyse(trace_of(recipe)).workers


def test_workers_of_an_epoch_are_a_group():
    found = workers_of(Recipe(workers=2, epochs=3))
    assert [row.group for row in found.rows] == [0, 0, 1, 1, 2, 2]
    assert found.largest_group == 2
    assert found.spread == pytest.approx(1.0)
    assert sum(row.bytes_read for row in found.rows) == 3 * 16 * 4 * (4 << 20)


def test_spread_is_the_largest_share_times_the_workers():
    assert workers_of(Recipe(uneven_workers=True)).spread == pytest.approx(14 / 16 * 2)


def test_ranks_have_groups_of_their_own():
    found = workers_of(Recipe(ranks=2, workers=2, epochs=1))
    assert len({row.trainer for row in found.rows}) == 2
    assert found.spread == pytest.approx(1.0)


def test_a_trainer_that_reads_itself_has_no_workers():
    assert workers_of(Recipe(workers=0)) is None


def test_one_worker_has_nobody_beside_it():
    assert workers_of(Recipe(workers=1)).spread is None


MS = 1_000_000


def worker(pid: int, start_ms: int, reads_ms: list[int], folder: str, *, end_ms: int = 9_000):
    """A worker that reads 1 ms of a file of its own each time; files of loaders lie apart."""
    ios = [
        Io((at - start_ms) * MS, (at - start_ms + 1) * MS, 0, 4096, pid * 1000 + k)
        for k, at in enumerate(reads_ms)
    ]
    names = {io.file: f"/data/{folder}/sample-{io.file}.bin" for io in ios}
    return darshan_log(
        ios, pid=pid, parent=100, start_ns=JOB_START_NS + start_ms * MS,
        length_ns=(end_ms - start_ms) * MS, names=names,
    )  # fmt: skip


def groups_of(*logs) -> list[list[int]]:
    """Pids of the workers, loader by loader."""
    trace = assemble(Group((darshan_log([Io(0, MS)]), *logs), ()), {})
    found: dict[int, list[int]] = {}
    for row in analyse(trace).workers.rows:
        found.setdefault(row.group, []).append(trace.processes[row.process].pid)
    return list(found.values())


def test_persistent_workers_of_two_loaders_are_two_groups():
    """Validation starts its workers after the first epoch, from the folder of training too."""
    every = list(range(1_000, 8_000, 100))
    train = [worker(200 + i, 900 + i, every, "all") for i in range(2)]
    test = [worker(300 + i, 3_000 + i, [3_100, 5_100, 7_100], "all") for i in range(2)]
    assert groups_of(*train, *test) == [[200, 201], [300, 301]]


def test_loaders_created_together_differ_in_what_they_read():
    train = [worker(200 + i, 900 + i, [1_000, 2_000, 3_000], "train") for i in range(2)]
    test = [worker(300 + i, 910 + i, [1_010, 4_000], "val") for i in range(2)]
    assert sorted(groups_of(*train, *test)) == [[200, 201], [300, 301]]


def test_workers_that_read_one_after_the_other_are_one_group():
    """As grain's: started together, each fills its own buffer at its own time."""
    logs = [worker(200, 900, [1_000, 1_001], "all"), worker(201, 950, [2_000, 2_001], "all")]
    assert groups_of(*logs) == [[200, 201]]


def test_one_read_by_validation_does_not_make_training_uneven():
    every = list(range(1_000, 8_000, 100))
    train = [worker(200 + i, 900 + i, every, "train") for i in range(2)]
    test = [worker(300 + i, 3_000 + i, [3_100], "val") for i in range(2)]
    trace = assemble(Group((darshan_log([Io(0, MS)]), *train, *test), ()), {})
    found = analyse(trace).workers
    assert found.spread == pytest.approx(1.0)
    assert found.largest_group == 2


def test_workers_started_anew_are_a_group_of_their_own():
    first = [worker(200 + i, 900 + i, [1_000, 1_100], "all", end_ms=1_200) for i in range(2)]
    second = [worker(300 + i, 1_210 + i, [1_300, 1_400], "all", end_ms=1_500) for i in range(2)]
    assert groups_of(*first, *second) == [[200, 201], [300, 301]]
