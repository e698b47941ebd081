"""What actions say: titles that fit on one screen, parallel reads of as many files."""

from __future__ import annotations

import ast
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.advice import labeled
from vanidl.advice import actions
from vanidl.analyses.results import analyse
from vanidl.model.warnings import Notice
from vanidl.report.brief import WIDTH
from vanidl.run import Run

TITLES = [
    node.args[0].value
    for node in ast.walk(ast.parse(Path(actions.__file__).read_text()))
    if isinstance(node, ast.Call)
    and getattr(node.func, "id", "") == "Advice"
    and node.args
    and isinstance(node.args[0], ast.Constant)
]


def test_titles_are_there() -> None:
    assert len(TITLES) > 20


@pytest.mark.parametrize("title", TITLES)
def test_a_title_fits_into_a_line_behind_its_number(title: str) -> None:
    assert len(f"1. {title}") <= WIDTH


@pytest.mark.parametrize("tracer", ["vanidl", "darshan"])
def test_what_no_call_reads_is_recorded_by_reading_it(tracer: str) -> None:
    """Beside a tracer of all calls mapped files are what is missing; else it is the log."""
    trace = labeled.made("reads_not_seen").trace
    mapped_file = Notice("reads_not_seen", "1 data file was mapped, and no call read of it.")
    trace = replace(trace, job=replace(trace.job, tracer=tracer), warnings=(mapped_file,))
    run = Run(trace, analyse(trace))
    titles = {finding.code: each.title for each in run.diagnoses for finding in each.findings}
    mapped = "Read mapped files with read or pread, to have their reads recorded"
    assert (titles["reads_not_seen"] == mapped) == (tracer == "vanidl")


def read_in_parallel(files: int, lever: str, amount: int) -> str:
    run = SimpleNamespace(results=SimpleNamespace(dataset=SimpleNamespace(files=range(files))))
    best = SimpleNamespace(lever=lever, amount=amount)
    return actions._make_parallel_reads(actions.Context(run, (), best)).code  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("files", "lever", "amount", "reads", "splits"),
    [
        (1, "workers", 4, 4, True),  # one file is read by one thread
        (3, "workers", 4, 4, True),
        (4, "workers", 4, 4, False),
        (1, "ahead", 2, 16, False),  # no number was predicted
    ],
)
def test_as_many_files_are_read_at_once_as_was_predicted(
    files: int, lever: str, amount: int, reads: int, splits: bool
) -> None:
    code = read_in_parallel(files, lever, amount)
    assert f"num_parallel_reads={reads})" in code
    assert ("TFRecordWriter" in code) == splits


def test_the_code_that_writes_more_files_gives_each_record_to_one_of_them() -> None:
    written: dict[str, list[int]] = {}

    @contextmanager
    def open_part(name: str):
        written[name] = []
        yield SimpleNamespace(write=written[name].append)

    class Records(list[SimpleNamespace]):
        def shard(self, count: int, index: int) -> Records:
            return Records(self[index::count])

    records = Records(SimpleNamespace(numpy=lambda k=k: k) for k in range(10))
    data = SimpleNamespace(TFRecordDataset=lambda files: records)
    tf = SimpleNamespace(data=data, io=SimpleNamespace(TFRecordWriter=open_part))
    split = read_in_parallel(1, "workers", 4).split("\n\n")[0]
    exec(split, {"tf": tf, "files": ()})
    assert list(written) == [f"part-{i}.tfrecord" for i in range(4)]
    assert sorted(k for part in written.values() for k in part) == list(range(10))
