"""Fetches recorded with no change of a program, against times that the program took itself."""

from __future__ import annotations

import json
import sys
from collections import UserDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import vanidl
from tests.record import fetch_sizes as sizes
from tests.record.conftest import recorder, whole
from tests.record.own_times import OwnTimes, assert_same_times, assert_steps, own_times
from vanidl.model.trace import Fetches, SpanKind
from vanidl.readers.steps.journal import FETCH, read_journal
from vanidl.record import Recorded, record
from vanidl.record.injected.vanidl_steps import fetches
from vanidl.record.injected.vanidl_steps.journal import Journal
from vanidl.record.injected.vanidl_steps.registry import Channel

PROGRAM = Path(__file__).with_name("timed_fetches.py")
MS = 1_000_000
SAME_TIME = 0.25  # of the times at least: a busy machine stops a process between two clocks
CLOCKS_S = 1e-4  # of a batch: tracers count in microseconds
RANKS = 2
A_PASS = (sizes.ROWS + sizes.HELD_OUT) // sizes.BATCH  # batches of both loaders


@dataclass(frozen=True)
class Truth:
    """One batch as its process saw it."""

    rank: int
    rows: list[int]
    items_ns: int
    read_ns: int
    collate_ns: int
    begin: int
    end: int


@dataclass(frozen=True)
class Timed:
    """A recorded run and what its processes measured, batches in the order of time."""

    run: vanidl.Run
    truth: list[Truth]
    loops: OwnTimes

    @property
    def fetches(self) -> Fetches:
        return self.run.trace.fetches


def truth_of(path: Path) -> list[Truth]:
    found = []
    for line in map(json.loads, path.read_text().splitlines()):
        rows, samples, (begin, end) = [], line["samples"], line["collate"]
        rows = [sample[0] for sample in samples]
        items = sum(after - before for _, before, _, after in samples)
        reads = sum(read - before for _, before, read, _ in samples)
        found.append(Truth(line["rank"], rows, items, reads, end - begin, samples[0][1], end))
    return found


def train(folder: Path, *how: str, launcher: tuple[str, ...] = ()) -> Timed:
    command = [*(launcher or (sys.executable,)), str(PROGRAM), str(folder / "truth"), *how, "-"]
    done = record(command, folder / "RUN", tracer="none")
    assert done.exit_status == 0
    return timed(folder, done)


def timed(folder: Path, done: Recorded) -> Timed:
    found = [batch for path in folder.glob("truth-*") for batch in truth_of(path)]
    run = vanidl.open_run(done.folder)
    return Timed(run, sorted(found, key=lambda batch: batch.begin), own_times(folder, run))


def same(timed: Timed) -> list[Truth]:
    """The truth of each fetch: of its rank, loader and batch, in the order of the epochs."""
    fetches, truth = timed.fetches, timed.truth
    ranks = np.array([process.rank or 0 for process in timed.run.trace.processes])
    training = np.array(["training" in name for name in fetches.names])
    found = np.lexsort(
        (fetches.begin, fetches.batch, training[fetches.name], ranks[fetches.trainer])
    )
    keys = [
        (b.rank, b.rows[0] < sizes.ROWS, b.rows[0] % sizes.ROWS // sizes.BATCH, b.begin)
        for b in truth
    ]
    expected = sorted(range(len(truth)), key=keys.__getitem__)
    of_fetch = dict(zip(found.tolist(), expected, strict=True))
    return [truth[of_fetch[i]] for i in range(len(fetches))]


WITHOUT_WORKERS = ("0", "fork", "no")
FORKED = ("2", "fork", "no")
SPAWNED = ("1", "spawn", "yes")  # every start costs an import of PyTorch
SERVED = ("1", "forkserver", "yes")
PROGRAMS = [WITHOUT_WORKERS, FORKED, SPAWNED, SERVED]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Timed]:
    """Runs of the program, each once a session."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    known: dict[tuple, Timed] = {}

    def run(*how: str) -> Timed:
        if how not in known:
            known[how] = train(tmp_path_factory.mktemp("fetches"), *how)
        return known[how]

    return run


def near(found: np.ndarray, truth: np.ndarray) -> bool:
    """Within 1 % or 1 ms."""
    return (np.abs(found - truth) <= np.maximum(MS, truth // 100)).mean() >= SAME_TIME


def assert_true(timed: Timed) -> None:
    """Each fetch holds what its process measured, and fills it."""
    fetches = timed.fetches
    assert len(fetches) == len(timed.truth)
    own = same(timed)
    begin, collate, end = (getattr(fetches, column) for column in ("begin", "collate", "end"))
    assert (begin <= [batch.begin for batch in own]).all()
    assert (end >= [batch.end for batch in own]).all()
    assert near(end - begin, np.array([batch.items_ns + batch.collate_ns for batch in own]))
    assert near(collate - begin, np.array([batch.items_ns for batch in own]))
    assert near(end - collate, np.array([batch.collate_ns for batch in own]))
    first = [batch.rows[0] for batch in own]
    of_training = np.array([row < sizes.ROWS for row in first])
    expected = np.array(first) % sizes.ROWS // sizes.BATCH
    assert (fetches.batch == expected).all()
    assert (fetches.samples == sizes.BATCH).all()
    # Of each fetcher the first batch: float32 numbers.
    measured = fetches.nbytes >= 0
    assert (fetches.nbytes[measured] == 4 * sizes.BATCH).all()
    who = np.stack([fetches.pid, fetches.name], axis=1)
    assert set(map(tuple, who[measured].tolist())) == set(map(tuple, who.tolist()))
    named = np.array(["training" in fetches.names[k] for k in fetches.name.tolist()])
    assert (named == of_training).all()


@pytest.mark.parametrize("how", PROGRAMS, ids="-".join)
def test_fetches_are_those_of_the_program(trained: Callable[..., Timed], how: tuple) -> None:
    timed = trained(*how)
    assert_true(timed)
    rows = np.bincount(timed.fetches.epoch)
    assert rows.tolist() == [A_PASS] * sizes.EPOCHS


@pytest.mark.parametrize("how", [SPAWNED, SERVED], ids="-".join)
def test_waits_and_steps_are_those_of_the_program(
    trained: Callable[..., Timed], how: tuple
) -> None:
    loops = trained(*how).loops
    assert_same_times(loops.spans(SpanKind.INPUT_WAIT, 0), loops.waits(0))
    assert_steps(loops, 0, sizes.EPOCHS)


@pytest.mark.parametrize("how", PROGRAMS, ids="-".join)
def test_a_batch_is_taken_when_it_is_there(trained: Callable[..., Timed], how: tuple) -> None:
    fetches = trained(*how).fetches
    assert (fetches.wait_end >= fetches.end).all()
    workers = int(how[0])
    if not workers:
        assert (fetches.worker == -1).all()
        assert (fetches.wait_begin <= fetches.begin).all()
        return
    assert (fetches.worker == fetches.batch % workers).all()  # dealt in turn
    for name in np.unique(fetches.name).tolist():
        mine = fetches.pick(fetches.name == name)
        taken = np.lexsort((mine.batch, mine.epoch))
        assert (np.diff(mine.wait_end[taken]) > 0).all()


def test_each_rank_of_torchrun_has_its_fetches_waits_and_steps(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    torchrun = (
        sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"
    )  # fmt: skip
    timed = train(tmp_path, "2", "fork", "yes", launcher=torchrun)
    assert_true(timed)
    assert np.bincount(timed.fetches.trainer).tolist() == [A_PASS * sizes.EPOCHS] * RANKS
    trace = timed.run.trace
    assert [trace.processes[i].rank for i in trace.ranks] == [0, 1]
    for rank in (0, 1):
        found = timed.loops.spans(SpanKind.INPUT_WAIT, rank)
        assert_same_times(found, timed.loops.waits(rank))
        assert_steps(timed.loops, rank, sizes.EPOCHS)


@pytest.mark.parametrize("tracer", ["darshan", "dftracer"])
def test_reading_and_decoding_are_divided_as_they_were_made(tmp_path: Path, tracer: str) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    data = tmp_path / "samples.f32"
    data.write_bytes(bytes(sizes.SAMPLE_BYTES * sizes.SAMPLES_STORED))
    run = recorder(tracer, tmp_path)
    done = whole(run, sys.executable, PROGRAM, tmp_path / "truth", *WITHOUT_WORKERS, data)
    found = timed(tmp_path, done)
    fetching, own = found.run.fetching, same(found)
    assert fetching is not None
    assert fetching.io_recorded
    batches = fetching.batches
    reads = batches.reads_s + np.nan_to_num(batches.metadata_s)
    read = np.array([batch.read_ns for batch in own]) / 1e9
    decoded = np.array([batch.items_ns - batch.read_ns for batch in own]) / 1e9
    collated = np.array([batch.collate_ns for batch in own]) / 1e9
    # The calls lie within what the program measured around them, and its sleeps are no calls.
    assert (reads > 0).all()
    assert (reads <= read + CLOCKS_S).all()
    assert (batches.decoding_s >= decoded - CLOCKS_S).all()
    assert (batches.collating_s >= collated - CLOCKS_S).all()
    parts = reads + batches.decoding_s + batches.collating_s
    assert parts == pytest.approx(batches.samples_s + batches.collate_s)
    fetches = found.fetches
    delivered = fetches.wait_end - fetches.end
    assert found.run.breakdown.cell("mean/input_wait/delivery").low_ns <= delivered.sum()
    assert (batches.longest_read_nbytes == sizes.SAMPLE_BYTES).mean() >= 0.5


def test_a_killed_worker_leaves_its_fetches(tmp_path: Path) -> None:
    """It writes what it has when it idles, and once a second."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    words = [
        "import os, signal, time, torch", "from pathlib import Path",
        "from torch.utils.data import DataLoader",
        "batches = iter(DataLoader(range(8), batch_size=2, num_workers=1))", "next(batches)",
        "steps, end = Path(os.environ['VANIDL_STEPS']), time.monotonic() + 120",
        f"of = lambda: sum(p.read_bytes()[::32].count({FETCH}) for p in steps.glob('*.steps'))",
        "while of() < 3 and time.monotonic() < end: time.sleep(0.01)",
        "os.kill(batches._workers[0].pid, signal.SIGKILL)", "os._exit(0)",
    ]  # fmt: skip
    done = record([sys.executable, "-c", "\n".join(words)], tmp_path / "RUN", tracer="none")
    assert done.exit_status == 0
    journals = [read_journal(path) for path in (tmp_path / "RUN" / "steps").glob("*.steps")]
    kinds = np.concatenate([journal.events.kind for journal in journals])
    assert (kinds == FETCH).sum() == 3  # two ahead, and one for the batch that was taken


class Asked:
    """Of no class that is known: what it holds is not asked for."""

    @property
    def nbytes(self) -> int:
        raise AssertionError("the program would notice")


@pytest.mark.parametrize(
    ("batch", "nbytes"),
    [
        (np.zeros((3, 5), np.float32), 60),
        ({"x": np.zeros(4), "y": (np.zeros(2, np.int8), b"abc", "de")}, 39),
        (UserDict(x=np.zeros(4)), 32),
        ([np.zeros(2)] * 1000, 16_000),  # the first 64 stand for all
        ([np.zeros(2)] * 63 + [b"12345"], 63 * 16 + 5),
        ({"x": [1, 2.0, True], "y": None}, 32),
        ([[[[[np.zeros(2)]]]]], None),  # as deep as that none hands over
        ([np.zeros(2), Asked()], None),
        (np.array([Asked()]), None),
        ([], 0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_bytes_of_a_batch_are_those_of_its_arrays_and_texts(batch, nbytes) -> None:
    assert fetches._measure_nbytes(batch) == nbytes


def test_the_bytes_of_a_batch_are_those_of_its_tensors() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    batch = {"x": torch.zeros(2, 3), "y": [torch.zeros(5, dtype=torch.int8)]}
    assert fetches._measure_nbytes(batch) == 29
    assert fetches._measure_nbytes([torch.zeros(2, 3).to_sparse()]) is None
    assert fetches._measure_nbytes(torch.nn.Parameter(torch.zeros(2))) is None


@pytest.mark.parametrize("error", [None, StopIteration, ValueError])
def test_a_fetch_that_ends_in_an_exception_is_a_fetch(tmp_path: Path, error) -> None:
    class Fetcher:
        def fetch(self, index: int) -> int:
            if error is not None:
                raise error
            return index

    events = Channel("fetches", Journal(str(tmp_path)))
    fetches._watch_fetch(Fetcher, events)
    if error is None:
        assert Fetcher().fetch(7) == 7
    else:
        with pytest.raises(error):
            Fetcher().fetch(7)
    events.journal.flush()
    (path,) = tmp_path.glob("*.steps")
    kind, begin, end = (getattr(read_journal(path).events, k) for k in ("kind", "begin", "end"))
    assert kind.tolist() == [fetches.FETCH]
    assert begin <= end
