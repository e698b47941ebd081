"""The poster's five applications as vanidl recorded them: its answer says what the poster says.

tests/data/applications has each training on the emulated parallel file system, by

    export SCRATCH=DIR
    python -m tests.makers.neutral python -m benchmarks.papers.applications --keep /scratch

so that neither this machine nor what else it does is in a number.
"""

from __future__ import annotations

import contextlib
import io
import json
import re

import numpy as np
import pytest

pytest.importorskip("h5py", reason="h5py is not installed")

import vanidl
from benchmarks.papers.applications import STUDIES, SUMMARY_OPTIONS, compare_with_poster
from tests import DATA, ROOT
from vanidl.cli import main
from vanidl.model.trace import READ

RUNS = DATA / "applications"


@pytest.fixture(scope="module")
def answers():
    return {name: _summarize(name) for name in STUDIES}


def _summarize(name):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        main(["summary", str(RUNS / name), "--json", *SUMMARY_OPTIONS.get(name, ())])
    return json.loads(printed.getvalue())


def test_every_application_is_recorded():
    assert {path.name for path in RUNS.iterdir() if path.is_dir()} == set(STUDIES)


@pytest.mark.parametrize("name", STUDIES)
def test_vanidl_says_what_the_poster_says(answers, name):
    rows = list(compare_with_poster(name, answers[name]))
    assert [row.figure for row in rows if row.agrees is False] == []
    assert sum(row.agrees is True for row in rows) >= 2


@pytest.mark.parametrize("name", STUDIES)
def test_no_other_application_is_taken_for_it(answers, name):
    for other in STUDIES:
        if other != name:
            assert any(row.agrees is False for row in compare_with_poster(name, answers[other]))


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("imagenet", {256 << 10: 0.9}),
        ("cosmictagger", {2048: 0.1, 6144: 0.5}),
        ("ffn", {31 * 32 * 64: 0.9}),
        ("cosmoflow", {256 << 10: 0.9}),
        ("frnn", {(2 << 20) + 128: 0.9}),
    ],
)
def test_single_operations_have_the_sizes_of_the_poster(name, sizes):
    """The peaks again, from the operations themselves instead of the summary's modes."""
    trace = vanidl.open_run(RUNS / name).trace
    read = np.concatenate([_sizes_of_data(trace, part) for part in trace.io])
    for nbytes, least in sizes.items():
        assert read[read == nbytes].sum() > least * read.sum()


@pytest.mark.parametrize("name", STUDIES)
def test_the_page_names_no_machine(name):
    page = (ROOT / "reports" / f"poster_{name}.html").read_text(encoding="utf-8")
    assert f"/scratch/pfs/{name}" in page
    assert re.findall(r"/(?:home|root|mnt|Users)/[\w./-]*", page) == []


def _sizes_of_data(trace, part):
    """Sizes of the part's reads of the data set, which lies under pfs/."""
    of_data = np.array(["/pfs/" in path for path in trace.files.path])
    return part.nbytes[(part.op == READ) & of_data[part.file] & (part.layer == "POSIX")]


def test_reads_come_when_the_poster_says():
    """Before each step, or before the first step and on demand: from the frame of steps."""
    reads = {name: vanidl.open_run(RUNS / name).frame("steps") for name in STUDIES}
    for name in ("cosmictagger", "ffn"):  # each before its step, none beside compute
        assert (reads[name]["in_wait_s"] > 0).mean() > 0.95
    for name in ("cosmictagger", "ffn", "frnn"):
        assert reads[name]["hidden_s"].sum() < 0.05 * reads[name]["busy_s"].sum()
    first, later = reads["frnn"]["bytes_read"].iloc[0], reads["frnn"]["bytes_read"].iloc[1:]
    assert first > 5 * later.mean() > 0
