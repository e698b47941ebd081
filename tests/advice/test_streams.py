"""More workers for a stream: only with the word that each would yield all of it."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.advice.labeled import RECIPES, made
from vanidl.advice.changes import EVERY_WORKER
from vanidl.advice.facts import Facts
from vanidl.advice.frameworks import PYTORCH
from vanidl.advice.proof import format_ab_line
from vanidl.model.trace import ITERABLE, MAP
from vanidl.run import Run

RUNS = sorted(RECIPES)
MORE = re.compile(
    r"more workers|more DataLoader workers|num_workers=N|Read ahead with (?!1 )\d", re.IGNORECASE
)
"""Advice to take more workers than one, or than the run has."""


def of_kind(name: str, kind: str) -> Run:
    run = made(name)
    profiles = tuple(
        replace(profile, dataset_kind=kind, marks_loop=True) for profile in run.trace.profiles
    )
    return Run(replace(run.trace, profiles=profiles), run.results)


@pytest.mark.parametrize("name", RUNS)
def test_a_stream_is_split_before_workers_are_advised(name):
    run = of_kind(name, ITERABLE)
    if not run.trace.profiles or PYTORCH not in Facts(run.trace, run.results).frameworks:
        pytest.skip("no loop of PyTorch's loaders was recorded")
    for finding in run.findings:
        assert EVERY_WORKER in finding.advice or not MORE.search(finding.advice)
    for diagnosis in run.diagnoses:
        more = MORE.search(diagnosis.title)
        assert more is None or "that split the dataset between them" in diagnosis.title
        for remedy in diagnosis.remedies:
            if remedy.title == PYTORCH and "num_workers" in remedy.code:
                assert EVERY_WORKER in remedy.explanation or "prefetch_factor=8" in remedy.code
    for row in run.what_if.rows if run.what_if else ():
        if row.lever == "workers" and row.amount > 1:
            assert row.name.endswith("each with its part of the stream")


def test_the_code_that_splits_gives_each_sample_to_one_worker():
    run = of_kind("in_process_slow_storage", ITERABLE)
    (first,) = [d for d in run.diagnoses if d.code == "read_ahead"]
    assert first.title.startswith("Read ahead with ")
    assert first.title.endswith(" DataLoader workers that split the dataset between them")
    code = next(r.code for r in first.remedies if r.title == PYTORCH)
    split, loader = code.split("\n\n", 1)
    assert loader.startswith("loader = DataLoader(")
    workers = [None, *(SimpleNamespace(id=i, num_workers=3) for i in range(3))]
    found = []
    for info in workers:
        data = SimpleNamespace(get_worker_info=lambda info=info: info)
        given = {
            "torch": SimpleNamespace(utils=SimpleNamespace(data=data)),
            "itertools": __import__("itertools"),
            "decode": lambda row: row,
        }
        exec(split, given)
        rows = SimpleNamespace(rows=lambda: iter(range(20)))
        found.append(list(given["__iter__"](rows)))
    assert found[0] == list(range(20))
    assert sorted(found[1] + found[2] + found[3]) == found[0]


def test_nothing_of_the_kind_is_said_of_samples_by_index_and_no_untruth_where_it_is_not_known():
    for name in RUNS:
        for kind in (MAP, ""):
            run = of_kind(name, kind)
            texts = [finding.advice for finding in run.findings]
            texts += [r.explanation for d in run.diagnoses for r in d.remedies]
            assert EVERY_WORKER not in " ".join(texts)
    remedies = {}
    for kind in (MAP, ""):
        (first,) = [
            d for d in of_kind("in_process_slow_storage", kind).diagnoses if d.code == "read_ahead"
        ]
        assert first.title.startswith("Read ahead with ")
        remedies[kind] = next(r for r in first.remedies if r.title == PYTORCH)
    assert remedies[MAP].code == remedies[""].code
    assert "An IterableDataset has to split" in remedies[""].explanation
    assert "IterableDataset" not in remedies[MAP].explanation


def test_the_command_of_a_stream_is_not_given_more_workers():
    run = of_kind("in_process_slow_storage", ITERABLE)
    job = replace(run.trace.job, command="python train.py --workers 0")
    best = max(run.what_if.rows, key=lambda row: row.lever == "workers")
    remedies = run.diagnoses[0].remedies
    line = format_ab_line(replace(run.trace, job=job), best, remedies)
    assert line.count("--workers 0") == 2
    by_index = of_kind("in_process_slow_storage", MAP).trace
    assert line != format_ab_line(replace(by_index, job=job), best, remedies)
