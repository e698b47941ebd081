"""Advice names the data loader that the run used, and no other."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import vanidl
from tests.advice.labeled import RECIPES
from tests.makers import dlio_results
from tests.makers.training_jobs import trace_of
from vanidl.advice.frameworks import PYTORCH, TENSORFLOW, frameworks
from vanidl.analyses import analyse
from vanidl.model.trace import MPIIO
from vanidl.run import Run

WORDS = {
    PYTORCH: re.compile(r"torch|DataLoader\(|DistributedSampler|prefetch_factor"),
    TENSORFLOW: re.compile(r"\btf\.|TensorFlow"),
}


def of_mpi(trace):
    """The run as MPI would leave it behind: no trace of a framework but event files."""
    events = tuple(replace(p, source="tensorboard-events") for p in trace.profiles)
    names = tuple(name.replace("DataLoader", "Loader") for name in trace.spans.names)
    return replace(
        trace,
        profiles=events,
        spans=replace(trace.spans, names=names),
        counters={**trace.counters, MPIIO: next(iter(trace.counters.values()))},
    )


def of_tensorflow(trace):
    made = of_mpi(trace)
    paths = (*made.files.path[:-1], "/opt/tensorflow/python/keras/engine.py")
    return replace(made, files=replace(made.files, path=paths))


NAMES = ("one_reader", "shared_shuffle", "slow_first_batches", "long_checkpoints", "stuck_reads")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("used", "known"),
    [(lambda t: t, (PYTORCH,)), (of_mpi, ()), (of_tensorflow, (TENSORFLOW,))],
    ids=["torch", "mpi", "tensorflow"],
)
def test_advice_names_no_other_framework(name, used, known):
    trace = used(trace_of(RECIPES[name]))
    run = Run(trace, analyse(trace))
    texts = [(f.code, f.advice) for f in run.findings]
    texts += [(f.code, r.code + r.title) for d in run.diagnoses for f in d.findings
              for r in d.remedies if "vanidl_loaders" not in r.code]  # fmt: skip
    for code, text in texts:
        for framework, words in WORDS.items():
            if framework not in known:
                assert not words.search(text), (code, text)


@pytest.mark.parametrize("workers", [0, 2])
def test_only_workers_that_there_are_are_kept_over_epochs(workers):
    trace = trace_of(replace(RECIPES["slow_first_batches"], workers=workers))
    run = Run(trace, analyse(trace))
    texts = [f.detail + f.advice for f in run.findings if f.code == "slow_first_step"]
    texts += [d.title + "".join(r.code for r in d.remedies) for d in run.diagnoses
              if d.code == "warm_start"]  # fmt: skip
    assert len(texts) == 2
    assert all(("workers" in text) == (workers > 0) for text in texts)


def test_where_nothing_tells_both_are_named():
    trace = of_mpi(trace_of(RECIPES["small_reads"]))
    plain = replace(trace, counters={})
    assert frameworks(plain, []) == (PYTORCH, TENSORFLOW)
    assert frameworks(plain, ["/d/part-0.tfrecord"]) == (TENSORFLOW,)


@pytest.mark.parametrize("used", [PYTORCH, TENSORFLOW, "jax"])
def test_a_benchmark_says_whose_loader_it_ran(tmp_path, used):
    folder = dlio_results.write(tmp_path / "result")
    config = folder / "configs" / "config.yaml"
    settings = config.read_text().replace("framework: pytorch", f"framework: {used.lower()}")
    config.write_text(settings)
    run = vanidl.open_run(folder)
    assert frameworks(run.trace, []) == tuple(name for name in WORDS if name == used)
    texts = [f.advice for f in run.findings]
    assert texts
    for framework, words in WORDS.items():
        assert framework == used or not any(map(words.search, texts)), texts
