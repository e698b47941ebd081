"""The poster's five applications as vanidl recorded them: its answer says what the poster says.

tests/data/applications has each training on the emulated parallel file system, by

    export SCRATCH=DIR
    python -m tests.makers.neutral python -m benchmarks.papers.applications --keep /scratch

so that neither this machine nor what else it does is in a number.
"""

from __future__ import annotations

import contextlib
import functools
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
UNSAID = "the poster says nothing of it"
JUDGED = {
    "peaks of sizes": {
        "imagenet": ["bytes in requests of 256 KB"],
        "cosmictagger": ["bytes in requests of 6 KB", "bytes in requests of 2 KB"],
        "ffn": ["bytes in requests of 62 KB", "reads of 100 B a step"],
        "cosmoflow": ["bytes in requests of 256 KB"],
        "frnn": ["bytes in requests of 2 MB", "reads of some 100 B a step"],
    },
    "order": {
        "imagenet": ["requests in order within a file"],
        "cosmictagger": ["requests in order"],
        "ffn": ["requests that jump"],
        "cosmoflow": UNSAID,
        "frnn": ["files without order"],  # within one: test_signals_are_read_in_order_within_a_file
    },
    "hidden share": {name: ["I/O hidden behind compute"] for name in STUDIES},
    "samples per file": {
        "imagenet": ["samples of a file, fewest / most"],
        "cosmictagger": UNSAID,
        "ffn": ["data set read"],
        "cosmoflow": ["files read whole, a sample each"],
        "frnn": UNSAID,
    },
    "pipeline share": {
        "imagenet": ["pipeline, times its I/O"],
        "cosmictagger": UNSAID,
        "ffn": UNSAID,
        "cosmoflow": ["pipeline, times its I/O"],
        "frnn": UNSAID,
    },
}
"""What the poster has of its applications -> application -> the figures that hold vanidl to it."""


@pytest.fixture(scope="module")
def answers():
    return {name: _summarize(name) for name in STUDIES}


@functools.cache
def _open(name):
    return vanidl.open_run(RUNS / name)


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


@pytest.mark.parametrize("item", JUDGED)
@pytest.mark.parametrize("name", STUDIES)
def test_each_item_of_the_poster_is_judged(answers, name, item):
    if JUDGED[item][name] == UNSAID:
        return
    agrees = {row.figure: row.agrees for row in compare_with_poster(name, answers[name])}
    assert all(agrees[figure] for figure in JUDGED[item][name])


def test_every_judged_figure_belongs_to_an_item():
    for name, figures in STUDIES.items():
        judged = {each.name for each in figures if each.agrees}
        listed = [JUDGED[item][name] for item in JUDGED if JUDGED[item][name] != UNSAID]
        assert judged == {figure for figures in listed for figure in figures}


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
    trace = _open(name).trace
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


def test_signals_are_read_in_order_within_a_file():
    """FRNN's bytes, by operation: those that lie where the operation before in the file ended."""
    trace = _open("frnn").trace
    signals = np.array([path.endswith(".npz") for path in trace.files.path])
    in_order = total = 0
    for part in trace.io:
        of_signals = signals[part.file] & (part.op == READ) & (part.layer == "POSIX")
        for file in np.unique(part.file[of_signals]):
            rows = np.flatnonzero(of_signals & (part.file == file))
            rows = rows[np.argsort(part.start[rows], kind="stable")]
            ends = part.offset[rows] + part.nbytes[rows]
            follows = part.offset[rows][1:] == ends[:-1]
            in_order += int(part.nbytes[rows][1:][follows].sum())
            total += int(part.nbytes[rows].sum())
    assert in_order > 0.99 * total > 0


def test_reads_come_when_the_poster_says():
    """Before each step, or before the first step and on demand: from the frame of steps."""
    reads = {name: _open(name).frame("steps") for name in STUDIES}
    for name in ("cosmictagger", "ffn"):  # each before its step, none beside compute
        assert (reads[name]["in_wait_s"] > 0).mean() > 0.95
    for name in ("cosmictagger", "ffn", "frnn"):
        assert reads[name]["hidden_s"].sum() < 0.05 * reads[name]["busy_s"].sum()
    first, later = reads["frnn"]["bytes_read"].iloc[0], reads["frnn"]["bytes_read"].iloc[1:]
    assert first > 5 * later.mean() > 0
