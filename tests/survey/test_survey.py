from __future__ import annotations

import csv
import importlib
import json
import os
import random
import re
import shutil
import sys
import textwrap
import tracemalloc
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import google_crc32c
import numpy as np
import pytest

from tests import ROOT
from tests.makers.darshan_logs import Log, log_bytes
from tests.makers.dlio_results import Plan
from tests.makers.dlio_results import write as write_result
from tests.makers.large_logs import Workload, write_log
from vanidl.anonymize.pseudonyms import Pseudonyms
from vanidl.cli import main
from vanidl.commands.arguments import COMMANDS
from vanidl.commands.schema import output_schema
from vanidl.errors import UsageError
from vanidl.merge.jobs import group_runs
from vanidl.parallel.executors import ExecutorOptions, LocalWorkers, local_workers
from vanidl.parallel.limits import Limits
from vanidl.readers.records import TracerLog
from vanidl.report.summary import summary_object
from vanidl.run import open_run
from vanidl.survey import Survey, store, survey
from vanidl.survey import rows as survey_rows
from vanidl.survey.fleet import Fleet, extract_program
from vanidl.survey.groups import GROUPS, group_figures
from vanidl.survey.logs import Grouped, KnownLogs, Listing, link_logs
from vanidl.survey.page import TERMS, order_by_io, page
from vanidl.survey.plain import PlainTable
from vanidl.survey.rows import COLUMNS, MORE, Job, Row, build_unread_row
from vanidl.survey.store import (
    RowCache,
    Rows,
    StoredTable,
    build_table,
    build_unread_schema,
    write_jobs,
)
from vanidl.survey.survey import LIMITS, place_of
from vanidl.survey.trend import draw_changes, draw_input_by_day

survey_module = importlib.import_module("vanidl.survey.survey")
pyarrow = pytest.importorskip("pyarrow", reason="the table of jobs is Parquet")
parquet = pytest.importorskip("pyarrow.parquet")

JOBS = 5


def fleet(rows: Sequence[Row]) -> Fleet:
    """The rows as the page takes them."""
    return Fleet(build_table(rows))


@pytest.fixture(scope="module")
def workers() -> Iterator[LocalWorkers]:
    """Two worker processes: each takes half a second to start, and a survey leaves none."""
    with local_workers(2) as executor:
        yield executor


@pytest.fixture(autouse=True, scope="module")
def _one_pool_of_workers(workers: LocalWorkers) -> Iterator[None]:
    """Every survey of these tests has its jobs read by the same workers, but those on Dask."""
    own = survey_module.open_executor

    def opened(options: ExecutorOptions) -> AbstractContextManager[Executor]:
        return own(options) if options.on_dask else nullcontext(workers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(survey_module, "open_executor", opened)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five jobs of one log each, a day apart, and a file that is no log."""
    root = tmp_path_factory.mktemp("logs")
    for i in range(JOBS):
        day = 1_700_000_000 + 86_400 * i
        log = Log(start=(day, 0), end=(day + 60, 0))
        path = root / f"day{i}" / f"me_x_id{i}-{i}_1-1-1-1_1.darshan"
        path.parent.mkdir()
        write_log(path, Workload(400 * (i + 1), ranks=2, files=3, seed=i, job=i), log)
    (root / "bad_x_id1-1_1-1-1-1_1.darshan").write_bytes(b"no log" * 10)
    return root


@pytest.fixture(scope="module")
def done(folder: Path, tmp_path_factory: pytest.TempPathFactory):
    return survey(folder, tmp_path_factory.mktemp("out"))


def test_a_job_is_a_row_with_the_numbers_of_its_summary(folder: Path, done) -> None:
    read = [row for row in done.rows if row["problem"] is None]
    assert len(read) == JOBS
    for row in read:
        run = open_run(folder / row["first_log"])
        content = json.loads(json.dumps(summary_object(run)))
        for name, _, place in COLUMNS:
            value = content
            for key in place:
                value = None if value is None else value[key]
            assert row[name] == value, name
        assert row["findings"] == len(content["findings"])


def test_a_row_does_not_depend_on_the_process_that_reads_the_log(folder: Path, done) -> None:
    read = [row for row in done.rows if row["problem"] is None]
    logs = [str(folder / row["first_log"]) for row in read]
    jobs = [Job("", (log,), "", log) for log in logs]
    here = survey_rows.read_rows(jobs, LIMITS)
    names = [name for name, *_ in COLUMNS] + ["warnings", "findings", "problem"]
    assert [[row[n] for n in names] for row in here] == [[row[n] for n in names] for row in read]


def test_what_cannot_be_read_is_a_row_that_says_so(done) -> None:
    (row,) = [row for row in done.rows if row["problem"] is not None]
    assert row["first_log"].startswith("bad_x")
    assert "expected a Darshan log" in row["problem"]
    assert row["ops"] is None


def test_the_table_holds_the_rows(done) -> None:
    table = parquet.read_table(done.file).to_pylist()
    assert table == list(done.rows)
    assert list(table[0]) == [name for name, *_ in (*COLUMNS, *MORE)]


def test_the_table_of_many_jobs_has_the_cleaned_text_of_one_column_at_a_time(
    done, tmp_path: Path
) -> None:
    text = "x" * 1000
    row = {name: text if type(value) is str else value for name, value in done.rows[-1].items()}
    many = 300
    texts = sum(value is text for value in row.values())
    write_jobs([build_table([row])], tmp_path / "first.parquet")  # which imports what writes it
    tracemalloc.start()
    write_jobs([build_table([row] * many)], tmp_path / "many.parquet")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert texts >= 4
    assert peak < 2.5 * many * len(text)


def test_the_page_is_whole_and_fetches_nothing(done) -> None:
    text = done.page.read_text()
    assert 'content="default-src &#39;none&#39;' in text
    assert [f.id for f in page(fleet(done.rows), "x").figures] == [
        "worst", "users", "commands", "file-systems", "findings", "share", "moved", "sizes",
        "changes", "input-trend", "trend",
    ]  # fmt: skip
    trend = page(fleet(done.rows), "x").figures[-1].table
    assert trend is not None
    assert len(trend.rows) == JOBS


def test_what_is_done_is_kept(folder: Path, tmp_path: Path, monkeypatch) -> None:
    first = survey(folder, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "done").iterdir()}
    again = survey(folder, tmp_path)
    assert (first.kept, again.kept) == (0, JOBS)
    assert again.rows == first.rows
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "done").iterdir()} == before


def test_only_a_job_whose_log_changed_is_redone(folder: Path, tmp_path: Path) -> None:
    survey(folder, tmp_path)
    changed = next(folder.glob("day2/*"))
    os.utime(changed, ns=(1, changed.stat().st_mtime_ns + 1))
    assert survey(folder, tmp_path).kept == JOBS - 1


def known(folder: Path, paths: Sequence[str], read) -> Grouped:
    """The jobs of some logs, as a survey asks for them."""
    return KnownLogs(folder, "", Listing.of(paths), kept=True).grouped(read)


def read_logs(paths: Sequence[str]) -> list[TracerLog]:
    """Who wrote the logs of which that can be said."""
    return [log for _, log, _ in survey_rows.identify_logs(paths) if log is not None]


def test_only_new_and_changed_logs_are_opened_again(folder: Path, tmp_path: Path) -> None:
    paths = sorted(map(str, folder.rglob("*.darshan")))
    bad = [path for path in paths if "bad_x" in path]
    opened: list[str] = []

    def read(some: Sequence[str]) -> list[TracerLog]:
        opened.extend(some)
        return read_logs(some)

    first = known(tmp_path, paths, read)
    assert opened == paths
    assert (len(first.new), first.settled) == (JOBS, [])
    opened.clear()
    again = known(tmp_path, paths, read)
    assert opened == bad  # which nobody can read
    assert sorted(again.settled) == sorted(first.new)
    assert again.new == []
    kept = KnownLogs(tmp_path, "", Listing.of(paths), kept=True)
    jobs = list(kept.jobs(first.new))
    assert [job.key for job in jobs] == first.new
    assert [path for job in jobs for path in job.paths] == [
        path for path in paths if path not in bad
    ]
    Path(paths[1]).touch()
    opened.clear()
    changed = known(tmp_path, paths[:2], read)
    assert opened == [*bad, paths[1]]
    assert (len(changed.new), changed.settled) == (1, [])
    nothing = known(tmp_path, [], read)
    assert (nothing.new, nothing.settled) == ([], [])


@pytest.mark.parametrize("at", [0, 5, 40, -2000, -1])
def test_what_is_known_of_logs_is_believed_only_where_it_is_whole(
    folder: Path, tmp_path: Path, at: int
) -> None:
    paths = sorted(str(path) for path in folder.rglob("me_*.darshan"))
    expected = known(tmp_path, paths, read_logs)
    file = tmp_path / "logs.known"
    whole = file.read_bytes()
    damaged = bytearray(whole)
    damaged[at] ^= 1
    for content in (damaged, whole[:at], b""):
        file.write_bytes(content)
        assert known(tmp_path, paths, read_logs) == expected
    assert known(tmp_path, paths, read_logs).new == []


def test_many_known_logs_take_little_memory(folder: Path, tmp_path: Path) -> None:
    """Of logs that are known none is an object: their names, sizes and times are, twice."""
    many = 1_000
    (path,) = map(str, folder.glob("day1/*.darshan"))
    (log,) = read_logs([path])
    logs = {f"{path}.{i}": replace(log, path=f"{path}.{i}", user_id=i) for i in range(many)}
    known(tmp_path, list(logs), lambda some: [logs[p] for p in some])
    nbytes = (tmp_path / "logs.known").stat().st_size
    listing = Listing.of(logs)
    tracemalloc.start()
    try:
        found = KnownLogs(tmp_path, "", listing, kept=True).grouped(lambda _: [])
        assert tracemalloc.get_traced_memory()[1] < 2 * nbytes
    finally:
        tracemalloc.stop()
    assert len(found.settled) == many


COMMANDS_DRAWN = ("", "python train.py", "sh python train.py", "python -u train.py", "cat x",
                  "python -c from multiprocessing.spawn import spawn_main")  # fmt: skip


def drawn_logs(draw: random.Random, like: TracerLog, many: int) -> dict[str, TracerLog]:
    """Logs by path, of few users, jobs, processes and commands, so that many are linked."""
    logs = {}
    for i in range(many):
        start = draw.choice([draw.randrange(120)] * 30 + [2**70, -(2**70)])
        path = f"{draw.choice('xy')}/{i}"
        logs[path] = replace(
            like, path=path, user_id=draw.randrange(3), job_id=draw.choice(["", "1", f"j{i}"]),
            pid=draw.randrange(9), parent_pid=draw.choice([None, draw.randrange(9)]),
            nprocs=draw.choice([1, 1, 2]), command=draw.choice(COMMANDS_DRAWN),
            start_ns=start, end_ns=start + draw.choice([-3, 0, 1, 5, 20]),
            host=draw.choice(["", "n1"]), beside=draw.random() < 0.2,
        )  # fmt: skip
    return logs


@pytest.mark.parametrize("seed", range(40))
def test_jobs_of_logs_that_come_and_go_by_night_are_those_of_all_logs(
    folder: Path, tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    (like,) = read_logs([str(next(folder.glob("day1/*.darshan")))])
    logs = drawn_logs(draw, like, draw.choice([6, 12, 25]))
    for night in range(6):
        there = draw.sample(sorted(logs), draw.randrange(len(logs) // 2, len(logs) + 1))
        changed = np.array([draw.randrange(20) // 19 for _ in there], np.int64)
        listing = Listing(sorted(there), np.zeros(len(there), np.int64), changed)
        kept = KnownLogs(tmp_path, "", listing, kept=True)
        found = kept.grouped(lambda some: [logs[path] for path in some])
        jobs = list(kept.jobs([*found.new, *found.settled]))
        expected = group_runs([logs[path] for path in sorted(there)], ()) if there else ()
        assert sorted(job.paths for job in jobs) == sorted(
            tuple(sorted(log.path for log in one.logs)) for one in expected
        )
        assert {job.id for job in jobs} == {"+".join(one.job_ids) for one in expected}
        if night == 4:  # and one in which nothing happens
            again = KnownLogs(tmp_path, "", listing, kept=True).grouped(lambda _: [])
            assert (again.new, len(again.settled)) == ([], len(jobs))


@pytest.mark.parametrize("seed", range(30))
def test_logs_are_related_as_a_search_among_all_pairs_relates_them(seed: int) -> None:
    draw = np.random.default_rng(seed)
    many = int(draw.integers(1, 30))
    user = draw.integers(0, 2, many)
    run = 10 * user + draw.integers(0, 9, many)
    begin = draw.integers(0, 200, many)
    lifetimes = np.stack([begin, begin + draw.integers(0, 12, many)])
    near = (user[:, None] == user) & (
        (run[:, None] == run)
        | ((begin[:, None] <= lifetimes[1]) & (begin <= lifetimes[1][:, None]))
    )
    for _ in range(many):
        near = near @ near
    found = link_logs(run, user, lifetimes)
    assert np.array_equal(found[:, None] == found, near)


def test_where_names_may_not_stay_nothing_is_known(folder: Path, tmp_path: Path) -> None:
    paths = [str(path) for path in folder.rglob("me_*.darshan")]
    found = KnownLogs(tmp_path, "", Listing.of(paths), kept=False).grouped(read_logs)
    assert len(found.new) == JOBS
    assert not list(tmp_path.iterdir())


def kept_rows(output: Path, keys: Iterable[str]) -> dict[str, Row]:
    """The rows of those keys that are in the folder of a survey."""
    cache = RowCache(output)
    there = [key for key in keys if key in cache]
    return dict(zip(there, rows_of(cache, there), strict=True))


def rows_of(cache: RowCache, keys: Sequence[str]) -> list[Row]:
    """The rows of some jobs, in the order of the keys."""
    ordered = cache.by_start(keys, Rows(build_unread_schema()))
    by_start = [row for table in ordered.tables() for row in table.to_pylist()]
    assert [starts(row) for row in by_start] == sorted(map(starts, by_start))
    return [by_start[place] for place in np.argsort(ordered.order).tolist()]


def starts(row: Row) -> tuple[str, str]:
    """What rows are ordered by."""
    return row["start"] or "", row["first_log"]


@pytest.fixture
def settled(tmp_path: Path, done) -> dict[str, Row]:
    """A folder in which the rows of a survey are settled, twice each."""
    rows = {f"{i}{half}": row for half in "ab" for i, row in enumerate(done.rows)}
    for half in "ab":
        cache = RowCache(tmp_path)
        cache.add({key: row for key, row in rows.items() if key.endswith(half)})
        cache.settle()
    return rows


def test_rows_of_every_night_settle_in_one_file(tmp_path: Path, settled, monkeypatch) -> None:
    assert [path.name for path in (tmp_path / "done").iterdir()] == ["jobs.known"]
    assert kept_rows(tmp_path, settled) == settled
    monkeypatch.setattr(store, "MOST_ROWS", 2)
    cache = RowCache(tmp_path)
    new = {f"{key}c": row for key, row in settled.items()}
    for key, row in new.items():
        cache.add({key: row})
    both = settled | new
    keys = sorted(both, reverse=True)
    assert rows_of(cache, keys) == [both[key] for key in keys]
    assert kept_rows(tmp_path, keys) == both  # before they settle, and after
    cache.settle()
    assert kept_rows(tmp_path, keys) == both


def test_what_is_settled_is_believed_only_where_it_is_whole(tmp_path: Path, settled) -> None:
    file = tmp_path / "done" / "jobs.known"
    whole = file.read_bytes()
    for at in (0, 12, 40, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert kept_rows(tmp_path, settled) == {}
        file.write_bytes(whole[:at])
        assert kept_rows(tmp_path, settled) == {}
    file.write_bytes(whole)
    assert kept_rows(tmp_path, settled) == settled


@pytest.mark.parametrize("columns", [
    {"key": ["a"]}, {"key": ["a"], "logs": [1], "first_log": ["x"]}, None,
])  # fmt: skip
def test_a_settled_table_with_other_columns_is_not_believed(tmp_path: Path, columns) -> None:
    content = b"no table"
    if columns:
        sink = pyarrow.BufferOutputStream()
        made = pyarrow.table(columns)
        with pyarrow.ipc.new_file(sink, made.schema) as file:
            file.write_table(made)
        content = sink.getvalue().to_pybytes()
    sum_ = google_crc32c.value(content).to_bytes(4, "little")
    (tmp_path / "done").mkdir()
    (tmp_path / "done" / "jobs.known").write_bytes(b"vanidl jobs 2\n" + content + sum_)
    assert kept_rows(tmp_path, ["a"]) == {}


def test_no_settled_row_is_an_object(tmp_path: Path, done) -> None:
    """Of many known jobs nothing but their keys, and the file once while it is read."""
    rows = {f"{i}": row for i, row in enumerate(done.rows * 200)}
    cache = RowCache(tmp_path)
    cache.add(rows)
    cache.settle()
    RowCache(tmp_path)  # which imports what reads it
    tracemalloc.start()
    RowCache(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (tmp_path / "done" / "jobs.known").stat().st_size + 300 * len(rows)


def test_jobs_that_could_not_be_read_stand_in_turn_with_the_others(
    tmp_path: Path, done, monkeypatch
) -> None:
    monkeypatch.setattr(store, "MOST_ROWS", 3)
    monkeypatch.setattr(store, "_ROW_GROUP", 4)
    cache, unread = RowCache(tmp_path), Rows(build_unread_schema())
    read = {f"{i}": row | {"first_log": f"{i}"} for i, row in enumerate(done.rows)}
    read |= {
        f"{i}+": row | {"start": None, "first_log": f"{i}+"} for i, row in enumerate(done.rows)
    }
    lost = [build_unread_row(Job(None, (name,), "", ""), "gone") for name in "b6d1c2e"]
    cache.add(read)
    for row in lost:
        unread.add(row)
    write_jobs(cache.by_start(list(read), unread).tables(), tmp_path / "jobs")
    whole = parquet.read_table(tmp_path / "jobs")
    expected = sorted([*read.values(), *lost], key=starts)
    assert whole.to_pylist() == expected
    stored = StoredTable(tmp_path / "jobs")
    assert stored.num_rows == len(expected)
    for name in whole.column_names:
        assert stored.column(name).equals(whole.column(name))
        pieces = list(stored.pieces(name))  # never all at once: problems of many jobs are long
        assert max(map(len, pieces)) <= 4
        assert pyarrow.concat_arrays(pieces).equals(whole.column(name).combine_chunks())
        for chosen in (None, np.array([2, 5, 11])):
            known = Fleet(stored, chosen).known(name)
            assert known.tolist() == Fleet(whole, chosen).known(name).tolist()
            wanted = range(len(expected)) if chosen is None else chosen
            assert known.tolist() == [expected[i][name] is not None for i in wanted]
    for places in ([], [3], [17, 2, 9, 2, 0]):
        assert stored.take(np.array(places, np.intp)).to_pylist() == [expected[i] for i in places]


def test_of_many_jobs_that_could_not_be_read_few_are_objects(monkeypatch) -> None:
    monkeypatch.setattr(store, "MOST_ROWS", 50)
    row = build_unread_row(Job(None, ("a",), "", ""), "gone")
    peaks = []
    for many in (100, 2000):
        unread = Rows(build_unread_schema())
        tracemalloc.start()
        for i in range(many):
            unread.add(row | {"first_log": f"{i}"})
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert unread.table().nbytes < 60 * many
    assert peaks[1] < 2 * peaks[0]


def test_a_damaged_file_of_what_is_done_is_redone(tmp_path: Path) -> None:
    kept = RowCache(tmp_path)
    job = Job("1", ("a",), "", "key")
    kept.add({"key": build_unread_row(job, "why")})
    (tmp_path / "done" / "broken.json").write_text("{")
    (tmp_path / "done" / "old.json").write_text('{"version": 0, "rows": {"k": {}}}')
    assert kept_rows(tmp_path, ["key", "k"]) == {"key": build_unread_row(job, "why")}


def test_what_is_done_is_believed_only_where_every_value_is_of_its_column(tmp_path: Path) -> None:
    whole = build_unread_row(Job("1", ("a",), "", "key"), "why")
    wrong = {"ops": 2**63, "ranks": "8", "io_share": True, "first_log": None, "complete": 1}
    rows = {name: whole | {name: value} for name, value in wrong.items()}
    rows |= {"column": whole | {"more": 1}, "list": [], "whole": whole}
    folder = tmp_path / "done"
    folder.mkdir()
    (folder / "x.json").write_text(json.dumps({"version": 3, "rows": rows}))
    (folder / "deep.json").write_text("[" * 100_000)
    assert kept_rows(tmp_path, rows) == {"whole": whole}


@pytest.mark.parametrize("error", [ValueError("x"), MemoryError(), RecursionError(), KeyError(7)])
def test_any_error_while_a_job_is_read_is_its_row(monkeypatch, error: Exception) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(survey_rows, "build_trace", fail)
    row = survey_rows.read_row(Job("1", ("a",), "", "key"), LIMITS)
    assert row["job"] == "1"
    assert row["problem"].startswith("a: expected a file")


def test_a_job_that_takes_too_long_is_given_up_and_tried_again(tmp_path, monkeypatch) -> None:
    def forever(*_: object, **__: object) -> None:
        while True:
            pass

    monkeypatch.setattr(survey_rows, "build_trace", forever)
    job = Job("1", ("a",), "", "key")
    limits = Limits(seconds=0.05, nbytes=1 << 40)
    row = survey_rows.read_row(job, limits)
    assert row["problem"].endswith(survey_rows.LIMITED)
    cache = RowCache(tmp_path)
    cache.add({"key": row})
    assert kept_rows(tmp_path, ["key"]) == {}
    cache.settle()
    assert rows_of(cache, ["key"]) == [row]
    assert kept_rows(tmp_path, ["key"]) == {}


NIGHTS = [
    ([[0, 3, 6], [], [1, 2, 4], [5, 7]], False),
    ([[7], [2, 5, 6], [0], [1, 4, 3]], False),
    ([[0, 3, 6], [1, 2, 4, 5, 7]], True),
]
"""Which logs come in each night, and whether a cluster of Dask reads the last of them."""


@pytest.fixture(scope="module")
def night_logs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Logs of five jobs, two of which have a log more, and a file that is no log."""
    root = tmp_path_factory.mktemp("nights")
    paths = [root / f"me_x_id{i % 5}-{i}_1-1-1-1_1.darshan" for i in range(7)]
    for i, path in enumerate(paths):
        day = 1_700_000_000 + 40_000 * (i % 5)
        work = Workload(60 * (i + 1), ranks=1, files=3, seed=i, job=i % 5, traced=i % 2 == 0)
        write_log(path, work, Log(start=(day + i, 0), end=(day + 60 + i, 0)))
    bad = root / "bad_x_id9-9_1-1-1-1_1.darshan"
    bad.write_bytes(b"no log" * 10)
    return [*paths, bad]


@pytest.mark.parametrize(("nights", "dask"), NIGHTS)
def test_nights_in_any_order_leave_what_one_night_leaves(
    night_logs: list[Path], tmp_path: Path, monkeypatch, nights, dask: bool
) -> None:
    """So do nights that were cut short: what is not written yet is done by the next one."""
    if dask:
        pytest.importorskip("distributed", reason="an extra")
    monkeypatch.setattr(survey_module, "LOGS_A_BATCH", 2)
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    for i, night in enumerate(nights):
        for at in night:
            shutil.copy2(night_logs[at], logs)
        on_dask = dask and i == len(nights) - 1
        options = ExecutorOptions(workers=2) if on_dask else None
        with monkeypatch.context() as cut:
            cut.setattr(survey_module, "write_jobs", stop)
            with pytest.raises(KeyboardInterrupt):
                survey(logs, out)
        done = survey(logs, out, executor_options=options)
    shutil.rmtree(logs)
    logs.mkdir()
    for path in night_logs:
        shutil.copy2(path, logs)
    whole = survey(logs, tmp_path / "whole")
    assert len(whole.rows) == 6
    assert sum(row["logs"] for row in whole.rows) == 8
    for one, other in ((done.file, whole.file), (done.page, whole.page)):
        assert one.read_bytes() == other.read_bytes()


def stop(*_: object) -> None:
    raise KeyboardInterrupt


def test_one_bad_log_ends_nothing_else(folder: Path, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "good_x_id1-1_1-1-1-1_1.darshan").write_bytes(next(folder.glob("day0/*")).read_bytes())
    for i, log in enumerate((Log(metadata="fork_parent=²\n".encode()), Log(job=(1, 7, 2**31)))):
        (logs / f"bad_x_id{i}-{i}_1-1-1-1_1.darshan").write_bytes(log_bytes(log))
    os.mkfifo(logs / "pipe_x_id9-9_1-1-1-1_1.darshan")
    done = survey(logs, tmp_path / "out")
    found = {row["first_log"].partition("_")[0] for row in done.rows if row["problem"] is None}
    assert "good" in found
    assert any("2,147,483,648" in (row["problem"] or "") for row in done.rows)


def test_jobs_stand_in_the_order_that_their_table_names(done) -> None:
    (figure, *_) = page(fleet(done.rows), "x").figures
    assert figure.table is not None
    column = figure.table.sorted_by
    title = figure.table.columns[column].title
    assert title.startswith("I/O, all ranks (")
    found = [row[column] for row in figure.table.rows]
    assert found == sorted(found, reverse=True)
    assert "Sorted by I/O, all ranks" in figure.caption
    unit_s = {"ms": 1e-3, "s": 1, "min": 60, "h": 3600}[title.split("(")[1].strip(")")]
    times = [row["ranks"] * row["io_per_rank_mean_s"] for row in done.rows if row["ops"]]
    assert max(found) * unit_s == pytest.approx(max(times))


def test_jobs_without_a_trace_are_in_the_table_too(done) -> None:
    rows = [*done.rows, done.rows[-1] | {"io_per_rank_mean_s": None, "io_share": None, "job": "x"}]
    table = page(fleet(rows), "x").figures[0].table
    assert table is not None
    assert table.rows[-1][:4] == ("x", None, None, None)


def test_a_warning_of_every_job_is_said_once(done) -> None:
    read = [row for row in done.rows if row["ops"]] * 4
    read = [row | {"warnings": f"everywhere own{i % 2}"} for i, row in enumerate(read)]
    made = page(fleet([*read, read[0] | {"warnings": "own0"}]), "x")
    ((code, message, _),) = made.warnings
    assert code == "everywhere"
    assert message.startswith(f"{len(read)} of {len(read) + 1} jobs have this warning")
    (table,) = [f.table for f in made.figures if f.id == "worst"]
    assert table is not None
    assert {str(row[-3]) for row in table.rows} == {"own0", "own1"}


@pytest.mark.parametrize("names", [None, Pseudonyms()])
def test_the_jobs_with_most_io_have_reports(folder: Path, tmp_path: Path, names) -> None:
    made = survey(folder, tmp_path, reports=2, names=names)
    (table,) = [f.table for f in page(fleet(made.rows), "x", {0: "x"}).figures if f.id == "worst"]
    assert [path.name[:4] for path in made.reports] == ["001-", "002-"]
    assert sorted((tmp_path / "reports").iterdir()) == sorted(made.reports)
    text = made.page.read_text()
    for path, row in zip(made.reports, table.rows, strict=False):
        assert f'"reports/{path.name}"' in text
        assert str(row[0]) in path.name
        assert "I/O report" in path.read_text()
        assert (names is None) == ("me_x_id" in path.read_text())


def test_a_job_that_takes_too_long_has_no_report(folder: Path, tmp_path: Path) -> None:
    survey(folder, tmp_path)
    made = survey(folder, tmp_path, reports=1, limits=Limits(1e-6, 1 << 40))
    assert made.reports == ()
    assert not (tmp_path / "reports").exists()


def test_a_name_of_a_report_is_a_name_of_a_file() -> None:
    assert place_of(1, {"job": "../<b>\n12"}) == "reports/001-b-12.html"
    assert place_of(12, {"job": None}) == "reports/012-job.html"


def test_nothing_read_gives_a_page_too() -> None:
    job = Job(None, ("a",), "", "key")
    assert "not known" in page(fleet([build_unread_row(job, "why")]), "x").headline.title


def test_without_pyarrow_the_table_is_csv_and_the_page_the_same(
    done, folder: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    known = done.rows
    with_arrow = done.page.read_text()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    words = ["survey", str(folder), "-o", str(tmp_path / "S"), "--reports", "1"]
    assert main(words) == 0
    told = capsys.readouterr()
    assert told.err.count("\n") == 1
    assert "pip install 'vanidl-io[parquet]'" in told.err
    assert str(tmp_path / "S/jobs.csv") in told.out
    assert sorted(path.name for path in (tmp_path / "S").iterdir()) == [
        "fleet.html", "jobs.csv", "reports",
    ]  # fmt: skip
    with (tmp_path / "S/jobs.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert lines == [{k: _as_csv(v) for k, v in row.items()} for row in known]
    assert survey(folder, tmp_path / "again").page.read_text() == with_arrow


def _as_csv(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else json.dumps(value) if isinstance(value, list) else str(value)


def test_without_pyarrow_names_are_hidden_too(folder: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    made = survey(folder, tmp_path, names=Pseudonyms())
    assert "me_x" not in made.file.read_text()
    assert made.unread == 1
    monkeypatch.undo()
    with pytest.raises(UsageError, match="expected Parquet, found CSV"):
        made.rows  # noqa: B018 - which reads them


def test_a_plain_column_is_as_one_of_arrow() -> None:
    """What `Fleet` makes of a table without Arrow is what it makes of the same one with it."""
    rows = [
        build_unread_row(Job(None, (f"{i}",), "", "key"), "why")
        | {"problem": None if i % 3 else "why", "command": ("a", "b", None)[i % 3]}
        | {"start": f"2026-01-0{i + 1}T00:00:00", "ranks": i, "bytes_read": 2**60 + i}
        | {"io_per_rank_mean_s": None if i == 4 else 1.5 - i, "io_share": None}
        | {"finding_codes": None if i == 2 else ["x", "y"][: i % 3]}
        | {"finding_gains_s": None if i == 2 else [1.0, None][: i % 3]}
        for i in range(7)
    ]
    with_arrow, plain = fleet(rows), Fleet(PlainTable(rows))
    for each in (slice(None), np.array([True, False, True, True, True, False, True])):
        a, b = (f.only(np.ones(7, bool)[each]) if isinstance(each, slice) else f.only(each)
                for f in (with_arrow, plain))  # fmt: skip
        for name in ("ranks", "bytes_read", "io_per_rank_mean_s", "io_share"):
            np.testing.assert_array_equal(a.numbers(name), b.numbers(name))
            assert a.values(name) == b.values(name)
            np.testing.assert_array_equal(a.known(name), b.known(name))
        for name in ("command", "start"):
            np.testing.assert_array_equal(a.parts(name, str).group, b.parts(name, str).group)
            assert a.parts(name, str).names == b.parts(name, str).names
        np.testing.assert_array_equal(a.items("finding_codes")[0], b.items("finding_codes")[0])
        assert a.items("finding_codes")[1].to_pylist() == b.items("finding_codes")[1].to_pylist()
        np.testing.assert_array_equal(
            a.item_numbers("finding_gains_s"), b.item_numbers("finding_gains_s")
        )
        np.testing.assert_array_equal(a.days(), b.days())
        np.testing.assert_array_equal(order_by_io(a), order_by_io(b))
        assert a.rows([3, 1]) == b.rows([3, 1])


def test_the_help_says_what_comes_out() -> None:
    assert "one row per job" in COMMANDS["survey"]
    assert survey_rows.MORE[2] == ("findings", "int64")


def test_a_process_number_that_comes_again_joins_no_jobs(tmp_path: Path) -> None:
    # Every log of the generator names the same parent, which here is one of the jobs.
    parent = 12
    for i in range(3):
        day = 1_700_000_000 + 86_400 * i
        log = Log(start=(day, 0), end=(day + 60, 0))
        path = tmp_path / f"me_x_id{i}-{parent if i == 0 else i}_1-1-1-1_1.darshan"
        write_log(path, Workload(100, files=2, job=i), log)
    assert len(survey(tmp_path, tmp_path / "out").rows) == 3


def test_a_row_for_each_result_of_a_benchmark(tmp_path: Path) -> None:
    results = tmp_path / "results"
    slow = Plan(ranks=3, load=lambda rank, _, step: 0.3 * (rank == 1))
    write_result(results / "unet/run-1")
    write_result(results / "unet/run-2", slow)
    write_result(results / "a/b/c/d/e/f/other/run-1", Plan(later=True, memory_gib=64.0))
    done = survey(results, tmp_path / "out")
    rows = {row["first_log"].rpartition("/")[0]: row for row in done.rows}
    assert set(rows) == {"unet/run-1", "unet/run-2", "a/b/c/d/e/f/other/run-1"}
    assert all(row["problem"] is None for row in done.rows)
    assert rows["unet/run-2"]["largest_wait"] == "barrier"
    assert rows["unet/run-1"]["ranks"] == 2
    assert "data / memory of all hosts" in rows["a/b/c/d/e/f/other/run-1"]["rules_not_kept"]
    assert "Storage benchmarks" in done.page.read_text()
    assert survey(results, tmp_path / "out").kept == 3


def test_input_is_the_time_that_counters_say_of_reads(folder: Path, done) -> None:
    """Every file of these jobs is read by them or written by them, none both."""
    for row in done.rows:
        if row["problem"] is not None:
            assert row["input_s"] is None
            continue
        run = open_run(folder / row["first_log"])
        counted = summary_object(run)["io"]["counter_s"]["read_s"]
        assert row["input_s"] == pytest.approx(counted)
        assert sum(row["input_file_system_s"]) == pytest.approx(row["input_s"])
        hours = min(row["input_s"], row["ranks"] * row["run_time_s"]) / 3600
        assert row["input_rank_hours"] == pytest.approx(hours)
        assert row["input_node_hours"] == pytest.approx(hours * row["nodes"] / row["ranks"])
        assert row["user"] == "me"


def test_the_groups_of_each_kind_sum_to_all_input(done) -> None:
    rows = [row | {"user": f"u{i % 2}"} for i, row in enumerate(done.rows)]
    total = sum(row["input_node_hours"] or 0 for row in rows)
    for figure, (key, *_) in zip(group_figures(fleet(rows), {}), GROUPS, strict=False):
        assert figure.id == key
        assert figure.table is not None
        assert figure.table.columns[1].title == "input (node h)"
        assert sum(row[1] for row in figure.table.rows) == pytest.approx(total)
        titles = [column.title for column in figure.table.columns]
        assert ("users" in titles) is (key != "users")
        assert {len(row) for row in figure.table.rows} == {len(titles)}
    unknown = [row | {"nodes": None, "input_node_hours": None} for row in rows]
    table = group_figures(fleet(unknown), {})[0].table
    assert table is not None
    assert table.columns[1].title == "input (rank h)"
    assert {"node h", "rank h"} <= {name for term, _ in TERMS for name in term.split(", ")}
    days = draw_input_by_day(fleet(rows)).table
    assert days is not None
    assert sum(row[1] for row in days.rows) == pytest.approx(total)


def drawn_rows(many: int) -> list[Row]:
    """Jobs of some users, programs and file systems, some without one or the other."""
    draw = random.Random(5)
    empty = build_unread_row(Job("", ("x",), "", "key"), "")
    rows = []
    for i in range(many):
        systems = draw.sample(["nfs", "lustre", ""], draw.randrange(4))
        seconds = [draw.choice([0.0, draw.random()]) for _ in systems]
        codes = draw.sample("abcdef", draw.randrange(4))
        rows.append(empty | {
            "job": str(i), "problem": None, "user": draw.choice(["a", "b", "", None]),
            "command": draw.choice(["python x.py", "/y/python x.py --b", "z", None]),
            "ranks": 4, "run_time_s": draw.choice([None, 60.0]), "nodes": draw.choice([1, None]),
            "input_rank_hours": draw.choice([None, 1.0, draw.random()]),
            "input_s": sum(seconds), "input_file_systems": systems, "input_file_system_s": seconds,
            "finding_codes": draw.choice([None, codes]),
            "finding_gains_s": [draw.choice([None, draw.random()]) for _ in codes],
        })  # fmt: skip
    return [row if row["finding_codes"] is not None else row | {"finding_gains_s": None}
            for row in rows]  # fmt: skip


def groups_of(row: Row) -> dict[str, dict[str, float]]:
    """Name of the figure -> group -> share of the job's input."""
    program = {"z": "z", None: "not recorded"}.get(row["command"], "python x.py")
    total = row["input_s"]
    systems = zip(row["input_file_systems"], row["input_file_system_s"], strict=True)
    return {
        "users": {row["user"] or "not known": 1.0},
        "commands": {program: 1.0},
        "file-systems": {name or "not known": s / total for name, s in systems} if total else {},
    }


def test_groups_are_what_adding_up_job_by_job_gives() -> None:
    rows = drawn_rows(300)
    for figure in group_figures(fleet(rows), {})[:3]:
        lost: defaultdict[str, float] = defaultdict(float)
        had: defaultdict[str, float] = defaultdict(float)
        jobs: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
        for i, row in enumerate(rows):
            if row["input_rank_hours"] is not None:
                for name, share in groups_of(row)[figure.id].items():
                    lost[name] += share * row["input_rank_hours"]
                    had[name] += 4 * (row["run_time_s"] or 0) / 3600
                    jobs[name].append((share * row["input_rank_hours"], -i))
        expected = sorted(
            (-lost[n], n, sum(lost.values()), had[n], len(jobs[n]), -max(jobs[n])[1]) for n in lost
        )
        assert figure.table is not None
        found = [(-line[1], line[0], line[1] / line[2], line[1] / line[3], line[4], int(line[-1]))
                 for line in figure.table.rows]  # fmt: skip
        assert [line[1] for line in found] == [line[1] for line in expected]
        assert [line[4:] for line in found] == [line[4:] for line in expected]
        for a, b in zip(found, expected, strict=True):
            assert a[:1] + a[2:4] == pytest.approx(b[:1] + b[2:4])


def test_findings_are_what_adding_up_job_by_job_gives() -> None:
    rows = drawn_rows(300)
    found = group_figures(fleet(rows), {})[-1].table
    assert found is not None
    read = [row for row in rows if row["finding_codes"] is not None]
    lines = {line[0]: line[1:] for line in found.rows}
    for code in "abcdef":
        gains = [
            (None if gain is None else 4 * gain / 3600, int(row["job"]))
            for row in read
            for own, gain in zip(row["finding_codes"], row["finding_gains_s"], strict=True)
            if own == code
        ]
        bounded = [(gain, job) for gain, job in gains if gain is not None]
        saved, jobs, share, unbounded, most = lines[code]
        assert saved == pytest.approx(sum(gain for gain, _ in bounded))
        assert (jobs, share) == (len(gains), len(gains) / len(read))
        assert unbounded == len(gains) - len(bounded)
        assert int(most) == max(bounded)[1]


def sentences(rows: Sequence[Row]) -> str:
    """What the page says of jobs in words: headline, captions, pictures in words, hover texts."""
    made = page(fleet(rows), "x")
    figures = [f"{f.caption} {f.alt_text} {json.dumps(f.spec)}" for f in made.figures]
    return f"{made.headline} {' '.join(figures)}"


def test_one_job_is_not_several(done) -> None:
    (row, *_) = [row for row in done.rows if row["problem"] is None]
    for more in ({"io_share": 0.5}, {"input_node_hours": None}):
        said = sentences([row | more])
        assert not re.search(r"\b1 jobs\b|of 1 job spent 10 % of their|of 1 jobs? do\b", said)
        assert "1 job" in said
    two = sentences([row, row | {"io_share": 0.5, "input_node_hours": None}])
    assert "2 jobs" in two
    assert "1 of 2 jobs does not say on which nodes all its ranks ran" in two


def test_a_picture_of_bins_says_no_majority_that_there_is_not(done) -> None:
    rows = [done.rows[-1] | {"io_share": share} for share in (0.01, 0.11, 0.21, 0.22)]
    (figure,) = [f for f in page(fleet(rows), "x").figures if f.id == "share"]
    assert figure.alt_text == "Most often 20 to 25 %: 2 of 4 jobs."


def test_the_headline_tells_counters_from_nothing(done) -> None:
    row = done.rows[-1] | {"io_share": None}
    rows = [row | {"source": "counters"}] * 2 + [row | {"source": None}]
    rows += [row | {"source": "counters", "io_share": 0.5}]  # whose time is known
    said = str(page(fleet(rows), "x").headline)
    assert "Of 2 jobs only counters are known." in said
    assert "Of 1 job not even counters are known." in said


def test_a_log_that_is_named_itself_has_its_name(folder: Path, tmp_path: Path) -> None:
    (log,) = folder.glob("day0/*.darshan")
    (row,) = survey(log, tmp_path / "out").rows
    assert (row["first_log"], row["user"]) == (log.name, "me")
    (hidden,) = survey(log, tmp_path / "hidden", names=Pseudonyms()).rows
    assert "me_x" not in hidden["first_log"] != "."


def test_the_terminal_separates_thousands(
    folder: Path, tmp_path: Path, capsys, monkeypatch
) -> None:
    done = Survey(1, 1, 12_345, tmp_path, tmp_path)
    monkeypatch.setattr("vanidl.commands.survey.survey", lambda *_, **__: done)
    assert main(["survey", "x", "-o", str(tmp_path)]) == 1  # that one job could not be read
    assert "12,345 done before" in capsys.readouterr().out


def test_findings_say_what_they_save_over_all_jobs(done) -> None:
    rows = [row | {"nodes": 2, "finding_codes": ["a", "b"], "finding_gains_s": [1800.0, None]}
            for row in done.rows if row["problem"] is None]  # fmt: skip
    table = group_figures(fleet(rows), {0: "x"})[-1].table
    assert table is not None
    assert [line[:5] for line in table.rows] == [
        ("a", JOBS, JOBS, 1.0, 0),
        ("b", None, JOBS, 1.0, JOBS),
    ]


def test_a_week_is_compared_with_the_one_before(done) -> None:
    read = [row for row in done.rows if row["problem"] is None]
    assert draw_changes(fleet(read)).empty_reason
    later = [row | {"start": "2023-11-24T00:00:00Z", "user": "new"} for row in read[:2]]
    table = draw_changes(fleet([*read, *later])).table
    assert table is not None
    lines = {(line[0], line[1]): line[2:] for line in table.rows}
    jobs = lines["jobs", "all jobs"]
    assert (jobs[0].value, jobs[1].value) == (3, 4)  # the job of 11-18 is in the last week
    assert lines["input by user (node h)", "new"][2] == "new"


@pytest.mark.parametrize(
    ("command", "program"),
    [("/usr/bin/python3 -u /x/train.py --lr 1", "python3 train.py"), ("/a/b --c", "b"),
     ("python -m torchrun x.py", "python -m torchrun"), ("python -c 1", "python -c"),
     ("", "not recorded"), (None, "not recorded"), ("python", "python")],
)  # fmt: skip
def test_a_program_is_named_without_folders_and_options(command, program) -> None:
    assert extract_program(command) == program


def test_the_table_opens_in_pandas_with_units_of_its_columns(done) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_parquet(done.file)
    by_code = frame.explode(["finding_codes", "finding_gains_s"]).dropna(subset="finding_codes")
    assert len(by_code) == frame["findings"].sum()
    assert frame.groupby("user")["input_node_hours"].sum()["me"] > 0
    schema = parquet.read_schema(done.file)
    assert schema.field("input_node_hours").metadata[b"unit"] == b"h"
    assert all(schema.field(name).metadata[b"description"] for name in frame.columns)


def code_of(page: str, first_word: str) -> list[str]:
    """The blocks of code of a page of the documentation that begin with a word."""
    blocks = re.findall(r"(?:^ {4}.*\n)+", (ROOT / "docs" / page).read_text("utf-8"), re.MULTILINE)
    return [textwrap.dedent(block) for block in blocks if block.split()[0] == first_word]


def test_the_documented_queries_run_in_duckdb(done, monkeypatch) -> None:
    duckdb = pytest.importorskip("duckdb", reason="an extra of the tests")
    monkeypatch.chdir(done.file.parent)
    queries = [query.replace("survey/jobs", "jobs") for query in code_of("many_jobs.md", "SELECT")]
    users, findings, systems, weeks, jobs = (duckdb.sql(query).fetchall() for query in queries)
    read = [row for row in done.rows if row["problem"] is None]
    hours = sum(row["input_rank_hours"] for row in read)
    assert dict(users)["me"] == pytest.approx(hours)
    assert sum(count for _, count, _ in findings) == sum(row["findings"] for row in read)
    assert sum(of for _, of in systems) == pytest.approx(sum(r["input_s"] for r in read) / 3600)
    assert sum(of or 0 for _, of in weeks) == pytest.approx(hours)
    assert [job for job, *_ in jobs] == [
        row["job"] for row in sorted(read, key=lambda row: -row["io_per_rank_mean_s"])
    ]


def test_the_documented_lines_run_in_pandas(done, monkeypatch) -> None:
    monkeypatch.chdir(done.file.parent)
    (lines,) = code_of("many_jobs.md", "import")
    *others, last = lines.replace("survey/jobs", "jobs").strip().splitlines()
    names: dict[str, object] = {}
    exec("\n".join(others), names)
    hours = sum(row["input_rank_hours"] or 0 for row in done.rows)
    assert eval(last, names).sum() == pytest.approx(hours)


def test_columns_say_what_the_schema_says(done) -> None:
    documented = output_schema("survey")["properties"]
    columns = parquet.read_schema(done.file)
    assert columns.names == [name for name, *_ in (*COLUMNS, *MORE)]
    assert set(columns.names) == set(documented)
    kinds = {"string": "string", "int64": "integer", "double": "number", "bool": "boolean"}
    for column in columns:
        said, nested = documented[column.name], str(column.type).startswith("list")
        unit = column.metadata[b"unit"].decode()
        assert column.metadata[b"description"].decode() == said["description"]
        assert unit == said.get("unit", "")
        of = column.type.value_type if nested else column.type
        one_of = said.get("anyOf", [said])
        assert ("array" if nested else kinds[str(of)]) in str(one_of), column.name
        measured = str(of) in ("double", "int64") or str(column.type) == "list<element: double>"
        is_code = column.name == "exit_status"  # a number that measures nothing
        assert bool(unit) == (measured and not is_code), column.name


def test_a_survey_in_which_nothing_could_be_read_fails(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(store, "MOST_ROWS", 40)
    logs = tmp_path / "logs"
    logs.mkdir()
    for i in range(50):  # more than are objects at one time
        (logs / f"u_x_id{i}-{i}_1-1-1-1_1.darshan").touch()
    assert main(["survey", str(logs), "-o", str(tmp_path / "s")]) == 1
    assert "50 could not be read" in capsys.readouterr().out
    write_log(logs / "u_x_id9-9_1-1-1-1_2.darshan", Workload(10, ranks=1, files=1))
    assert main(["survey", str(logs), "-o", str(tmp_path / "s")]) == 0
