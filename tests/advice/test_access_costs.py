"""Reading that costs more than its bytes: opens, chunks, fills of buffers, a second look."""

from __future__ import annotations

import functools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tests.advice import labeled
from vanidl.advice.caching import compute_spared_share
from vanidl.advice.facts import ANY, Facts, SampledShare, Seen
from vanidl.advice.opens import _OPENING, _compute_again_share
from vanidl.advice.registry import list_rules
from vanidl.breakdown.account import Column
from vanidl.model import intervals, states
from vanidl.model.lines import FETCH, FunctionLines, LineCost, SampledPart
from vanidl.model.states import SampledThread, Samples, States
from vanidl.model.trace import ITERABLE, MAP, READ
from vanidl.run import Run

RULE = {rule.code: rule for rule in list_rules()}
RECIPE = replace(labeled.RECIPES["one_worker_slow_storage"], delivery_us=1, steps=80, epochs=2)
"""One worker whose fetches were recorded; it makes the training wait."""


@functools.cache
def made() -> Run:
    trace = labeled.trace_of(RECIPE)
    return Run(trace, labeled.analyse(trace))


def lines(file: str, name: str, share: float, text: str = "", samples: int = 10_000) -> SampledPart:
    """A second of fetches, of which one function took a share."""
    costs = (LineCost(1, 1, round(share * 1e9), 0, text),)
    return SampledPart(
        FETCH, samples, 10**9, 0, (FunctionLines(file, name, 1, bool(text), None, 0, costs),)
    )


def facts_of(*, again: float = 1.0, opens: int = 0, parts: tuple[SampledPart, ...] = ()) -> Facts:
    """A run whose dataset is read so many times in each epoch, with so many opens."""
    run = made()
    data = run.results.dataset
    epochs = Facts(run.trace, run.results).fetched_epochs or 1
    files = tuple(replace(f, opens=opens // len(data.files)) for f in data.files)
    changed = replace(data, unique_bytes=round(data.bytes_read / again / epochs), files=files)
    return Facts(
        replace(run.trace, lines=parts), replace(run.results, dataset=changed), run.breakdown
    )


CHUNKS = lines("/lib/h5py/_hl/dataset.py", "Dataset.__getitem__", 0.5)


@pytest.mark.parametrize(("again", "is_named"), [(7.9, False), (8.1, True)])
def test_chunks_that_are_unpacked_for_a_sample_are_named_from_eight_times_on(again, is_named):
    found = RULE["chunks_read_again"].find(facts_of(again=again, parts=(CHUNKS,)))
    assert (found is not None) == is_named
    if found is not None:
        assert found.claim.stays == pytest.approx(1 / again, rel=1e-3)


def test_bytes_that_are_read_again_are_no_chunks_without_a_library_that_reads_them():
    other = lines("/lib/numpy/fromfile.py", "read", 0.5)
    assert RULE["chunks_read_again"].find(facts_of(again=20, parts=(other,))) is None
    assert RULE["chunks_read_again"].find(facts_of(again=20)) is None


def fetched_samples() -> int:
    run = made()
    return Facts(run.trace, run.results).fetched_samples


@pytest.mark.parametrize(
    ("part", "is_named"),
    [
        (lines("/usr/lib/python3.11/zipfile.py", "ZipFile.__init__", 0.5), True),
        (lines("train.py", "__getitem__", 0.5, "z = zipfile.ZipFile(path)"), True),
        (lines("train.py", "__getitem__", 0.5, "return decode(raw)"), False),
        (lines("train.py", "__getitem__", 0.05, "z = zipfile.ZipFile(path)"), False),
        (lines("train.py", "__getitem__", 0.5, "with h5py.File(join(p, str(i))) as f:"), True),
        (lines("train.py", "__getitem__", 0.5, "z = zipfile.ZipFile("), True),
        (lines("train.py", "__getitem__", 0.5, "rows = ParquetFile(join(p, n)).read()"), False),
        (lines("train.py", "__getitem__", 0.5, "return h5py.File(path)['x'][i]"), False),
    ],
)
def test_opens_are_named_by_the_lines_that_open(part, is_named):
    facts = facts_of(opens=4 * fetched_samples(), parts=(part,))
    found = RULE["reopened"].find(facts)
    assert (found is not None) == is_named
    if found is not None:
        waits_s = facts.account.length_ns("input_wait") / 1e9
        assert found.claim.within_s <= waits_s


@pytest.mark.parametrize("has_workers", [False, True])
def test_lines_that_open_take_storage_and_processor_together(has_workers):
    part = lines("data.py", "read", 0.9, "held = ZipFile(path)")
    facts = facts_of(opens=4 * fetched_samples(), parts=(part,))
    ns = {"input_cpu": (300, 400), "storage": (500, 600)}
    touchable_s = facts.account.length_ns("input_wait") / 1e9
    gains = {cause: SimpleNamespace(low_ns=low * 1e6, high_ns=high * 1e6, touchable_ns=0)
             for cause, (low, high) in ns.items()}  # fmt: skip
    vars(facts).update(gains=SimpleNamespace(without=lambda cause, *_: gains[cause]))
    vars(facts)["has_workers"] = has_workers
    found = RULE["reopened"].find(facts)
    assert found.claim.cause == ANY
    assert found.claim.within_s <= touchable_s * 1.0001
    cells_s = sum(facts.account.cell(f"mean/input_wait/{cause}").low_ns for cause in ns) / 1e9
    known_s = (0.5 if has_workers else 0.8) * (1 - found.claim.stays)
    least = SampledShare(0.9, part.samples).least
    assert found.claim.surely_s == pytest.approx(min(least * cells_s, known_s))


def test_opens_without_sampled_lines_are_named_by_what_is_read_again():
    opens = 4 * fetched_samples()
    assert RULE["reopened"].find(facts_of(opens=opens, again=7.9)) is None
    assert RULE["reopened"].find(facts_of(opens=opens, again=8.1)) is not None
    assert RULE["reopened"].find(facts_of(opens=8, again=8.1)) is None


def filled(times: float, nbytes: float) -> Facts:
    """A run whose first fetch of an epoch takes so many times as long and reads as much."""
    run = made()
    fetches = run.trace.fetches
    usual = int(np.median(fetches.end - fetches.begin))
    first = np.zeros(len(fetches), bool)
    keys = list(zip(fetches.epoch.tolist(), fetches.worker.tolist(), strict=True))
    first[[keys.index(key) for key in set(keys)]] = True
    begin = np.arange(len(fetches)) * 100 * usual
    length = np.where(first, round(times * usual), usual)
    changed = replace(
        fetches, begin=begin, collate=begin + length, end=begin + length, wait_begin=begin,
        wait_end=begin + length,
    )  # fmt: skip
    process = int(fetches.process[0])
    part = next(p for p in run.trace.io if p.process == process and p.layer == "POSIX")
    rows = np.resize(np.arange(len(part)), len(fetches))
    sizes = np.where(first, round(nbytes * 65536), 65536)
    moved = part.rows(rows)
    moved = replace(
        moved, start=begin + 1, end=begin + 2, nbytes=sizes, op=np.full(len(rows), READ, np.uint8)
    )
    return Facts(replace(run.trace, fetches=changed, io=(moved,)), run.results, run.breakdown)


@pytest.mark.parametrize(
    ("times", "nbytes", "is_named"), [(30, 30, True), (7.9, 30, False), (30, 7.9, False)]
)
def test_a_first_fetch_that_does_many_times_as_much_fills_a_buffer(times, nbytes, is_named):
    found = RULE["buffer_fills"].find(filled(times, nbytes))
    assert (found is not None) == is_named
    if found is not None:
        assert found.evidence["times_the_usual_fetch"] == pytest.approx(times, rel=1e-3)


def test_samples_that_are_asked_for_by_index_have_no_buffer_that_is_filled():
    facts = filled(30, 30)
    profiles = tuple(replace(p, dataset_kind=MAP, marks_loop=True) for p in facts.trace.profiles)
    assert profiles
    by_index = replace(facts, trace=replace(facts.trace, profiles=profiles))
    assert RULE["buffer_fills"].find(by_index) is None
    as_stream = tuple(replace(p, dataset_kind=ITERABLE) for p in profiles)
    stream = replace(facts, trace=replace(facts.trace, profiles=as_stream))
    assert RULE["buffer_fills"].find(stream) is not None


def looked_at_first(times: int) -> Facts:
    """A run that reads all of its data so many times before its first step."""
    run = made()
    is_data = run.trace.files.is_data
    reads = [
        part.rows((part.op == READ) & is_data[part.file] & (part.nbytes > 0) & (part.offset >= 0))
        for part in run.trace.io
    ]
    part = mine = max(reads, key=len)
    key = mine.file.astype(np.int64) << 40 | mine.offset
    once = mine.rows(np.unique(key, return_index=True)[1])
    before = [
        replace(once, start=once.start - 10**14 + k, end=once.end - 10**14 + k)
        for k in range(times)
    ]
    return Facts(replace(run.trace, io=(*before, part)), run.results, run.breakdown)


@pytest.mark.parametrize(("times", "is_named"), [(1, False), (2, True), (3, True)])
def test_data_that_are_read_twice_before_training_are_named(times, is_named):
    facts = looked_at_first(times)
    found = RULE["read_twice_at_start"].find(facts)
    assert (found is not None) == is_named
    assert facts.before_steps.again == pytest.approx(times)
    if found is not None:
        assert found.claim.within_s <= facts.before_steps.spent_s


@pytest.mark.parametrize(("hits", "samples"), [(1, 8), (8, 8), (32, 32)])
@pytest.mark.parametrize("by_text", [False, True])
def test_a_fetch_of_several_samples_has_looked_at_each_of_them(hits, samples, by_text):
    where = ("data.py", "read", 0.9, "held = ZipFile(path)") if by_text else (
        "/usr/lib/python3.11/zipfile.py", "ZipFile.__init__", 0.9)  # fmt: skip
    part = lines(*where, samples=8)
    (function,) = part.functions
    # Lines that run over and over within one of them count once: the first of a function does.
    first = replace(function.lines[0], hits=hits)
    more = () if by_text else (replace(first, number=first.number + 1, hits=4000, wall_ns=0),)
    part = replace(part, functions=(replace(function, lines=(first, *more)),))
    facts = facts_of(opens=4 * fetched_samples(), parts=(part,))
    found = facts.sampled_share("fetch", lambda f: f.name == "ZipFile.__init__", _OPENING)
    assert found == SampledShare(pytest.approx(0.9), samples)


def test_ends_of_a_sampled_share_are_two_deviations_away():
    share = SampledShare(0.5, 100)
    assert (share.least, share.most) == pytest.approx((0.4, 0.6))
    assert SampledShare(1.0, 4).least == 1.0
    assert Seen(10.0, 100, {states.NETWORK: 0.5}, 0.0).least_s(states.NETWORK) == pytest.approx(4)
    assert Seen(10.0, 100, {}, 0.0).least_s(states.NETWORK) == 0


def test_validations_that_start_workers_are_told_from_those_that_are_long():
    run = labeled.made("healthy")
    spent_ns = run.breakdown.steps_ns
    for share, stays in ((0.4, 0.0), (0.6, 0.5)):
        cells = {"phase/validation": 1.0, "phase/validation/workers": share}
        columns = dict(run.breakdown.columns) | {
            key: Column(np.array([round(part * spent_ns)]), np.array([round(part * spent_ns)]),
                        part * spent_ns, part * spent_ns)
            for key, part in cells.items()
        }  # fmt: skip
        facts = Facts(run.trace, run.results, replace(run.breakdown, columns=columns))
        facts.__dict__["_tiles"] = {}
        object.__setattr__(facts, "lengths_s", lambda _phase: [1.0, 1.0])
        assert RULE["long_validation"].find(facts).claim.stays == stays


def test_the_first_validation_starts_workers_whatever_is_changed():
    run = labeled.made("healthy")
    spent_ns = run.breakdown.steps_ns
    column = Column(np.array([round(spent_ns)]), np.array([round(spent_ns)]), spent_ns, spent_ns)
    columns = {**run.breakdown.columns, "phase/validation": column}
    facts = Facts(run.trace, run.results, replace(run.breakdown, columns=columns))
    object.__setattr__(facts, "lengths_s", lambda _phase: [spent_ns / 1e9, 0.001, 0.001])
    assert RULE["long_validation"].find(facts) is None


@pytest.mark.parametrize(("timed_ms", "sampled_ms"), [(200, 0), (20, 0), (20, 400)])
def test_opens_gain_no_more_than_metadata_calls_took_that_were_timed_or_sampled(
    timed_ms, sampled_ms
):
    run = labeled.made("open_for_each_sample_slow")
    (finding,) = (each for each in run.findings if each.code == "open_per_sample")
    key = "input_wait/storage.metadata"
    column = run.breakdown.columns[key]
    low = np.full_like(column.low, sampled_ms * 10**6)
    columns = {**run.breakdown.columns,
               key: replace(column, low=low, mean_low=float(low[0]))}  # fmt: skip
    first_ns = run.trace.job.start_ns + round(run.results.steps.table.start_s.min() * 1e9)
    # Calls before the first step are none of training.
    begin = np.array([first_ns - 5 * 10**9, first_ns])
    calls = intervals.union(begin, begin + np.array([10**9, timed_ms * 10**6]))
    trace = replace(run.trace, metadata_calls={run.trace.ranks[0]: calls})
    facts = Facts(trace, run.results, replace(run.breakdown, columns=columns), run.gains)
    assert facts.timed_metadata_s == pytest.approx(timed_ms / 1e3)
    _, high_s = facts.bound(RULE["open_per_sample"].find(facts).claim)
    assert high_s == pytest.approx(min(max(timed_ms, sampled_ms) / 1e3, finding.gain_s[1]))
    assert Facts(run.trace, run.results, run.breakdown, run.gains).timed_metadata_s is None


@pytest.mark.parametrize(
    ("served", "again", "is_named"),
    [(None, 8, True), (0.0, 8, False), (1.2, 8, False), (1.3, 8, True), (7.9, 80, False),
     (8.1, 80, True)],
)  # fmt: skip
def test_what_memory_keeps_already_is_not_kept_once_more(served, again, is_named):
    """Devices served all different bytes so many times; files are read so many times."""
    epochs = Facts(made().trace, made().results).fetched_epochs
    facts = facts_of(again=again / epochs)
    data = facts.results.dataset
    assert data.bytes_read / data.unique_bytes == pytest.approx(again, rel=0.001)
    vars(facts)["device_nbytes"] = None if served is None else served * data.unique_bytes
    assert (RULE["reread_each_epoch"].find(facts) is not None) == is_named


@pytest.mark.parametrize(("kind", "is_known"), [("ext4", True), ("fuse", False), ("", False)])
def test_what_came_from_devices_is_known_where_file_systems_count_it(kind, is_known):
    run = labeled.made("one_reader")
    files, since = run.trace.files, run.trace.job.start_ns
    trace = replace(run.trace, files=replace(files, file_system=(kind,) * len(files)))
    threads = []
    for position in run.trace.ranks:
        pid = run.trace.processes[position].pid
        rows = [(since, states.READ_BYTES, 0), (since + 10**13, states.READ_BYTES, 10**9),
                (since, states.RCHAR, 0), (since + 10**13, states.RCHAR, 3 * 10**9)]  # fmt: skip
        nothing = np.empty((0, 3), np.int64)
        samples = Samples(np.empty(0, np.int64), np.empty(0, np.uint8), np.empty(0, np.int32),
                          np.empty(0, np.uint32), np.empty(0, bool))  # fmt: skip
        threads.append(SampledThread("", pid, pid, 1, samples, (), nothing, np.array(rows)))
    facts = Facts(replace(trace, states=States(tuple(threads))), run.results, run.breakdown)
    assert (facts.device_nbytes is not None) == is_known
    if is_known:
        assert facts.device_nbytes == pytest.approx(sum(facts.counted_nbytes) / 3)


@pytest.mark.parametrize(("transfer", "share"), [(0.0, 0.75), (1.0, 0.9), (0.5, 0.825)])
def test_what_each_open_reads_again_stays_with_a_file_that_is_kept(transfer, share):
    """Four times the same requests, of which the large ones are the same ten times as often."""
    run, epochs = made(), Facts(made().trace, made().results).fetched_epochs
    is_data = run.trace.files.is_data
    part = next(p for p in run.trace.io if ((p.op == READ) & is_data[p.file]).any())
    part = part.rows(((part.op == READ) & is_data[part.file] & (part.nbytes > 0)).nonzero()[0][:1])
    # Requests of one file at `times` places, all of them four times a pass.
    places = np.repeat(np.arange(50), 4 * epochs)
    rows = part.rows(np.zeros(len(places), np.int64))
    moved = replace(rows, offset=places * 4096, nbytes=np.full(len(places), 4096))
    data = replace(run.results.dataset, bytes_read=10**9, unique_bytes=round(10**8 / epochs))
    facts = Facts(replace(run.trace, io=(moved,)), replace(run.results, dataset=data))
    vars(facts)["transfer_share"] = transfer
    assert _compute_again_share(facts) == pytest.approx(share)
    assert _compute_again_share(replace(facts, trace=replace(run.trace, io=()))) == 0


@pytest.mark.parametrize(("again", "passes"), [(4.0, 4.0), (6.0, 2.0), (2.0, 4.0)])
@pytest.mark.parametrize("transfer", [0.0, 0.3, 1.0])
def test_a_copy_spares_of_the_first_pass_all_but_the_bytes(again, passes, transfer):
    facts = facts_of()
    vars(facts).update(transfer_share=transfer, request_cost=object())
    later = 1 - 1 / min(passes, again)  # of all reading, which a replay spares
    share = compute_spared_share(facts, again, passes)
    assert later + share == pytest.approx(1 - transfer / again)
    vars(facts)["request_cost"] = None
    assert compute_spared_share(facts, again, passes) == 0
