"""Advice names the data loader that the run used, and no other."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

import vanidl
from tests.advice.labeled import RECIPES
from tests.makers import dlio_results
from tests.makers.training_jobs import trace_of
from vanidl.advice import frameworks as words
from vanidl.advice.frameworks import PYTORCH, TENSORFLOW, infer_frameworks
from vanidl.analyses.results import analyse
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


def of_xplane(trace):
    """As TensorFlow's profiler would see it: a kernel of tf.data gives the batches."""
    made = of_mpi(trace)
    profiles = tuple(replace(p, source="xplane") for p in made.profiles)
    names = ("IteratorGetNextOp::DoCompute", *made.spans.names[1:])
    return replace(made, profiles=profiles, spans=replace(made.spans, names=names))


NAMES = ("one_reader", "shared_shuffle", "slow_first_batches", "long_checkpoints", "stuck_reads")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("used", "known"),
    [
        (lambda t: t, (PYTORCH,)),
        (of_mpi, ()),
        (of_tensorflow, (TENSORFLOW,)),
        (of_xplane, (TENSORFLOW,)),
    ],
    ids=["torch", "mpi", "tensorflow", "xplane"],
)
def test_advice_names_no_other_framework(name, used, known):
    trace = used(trace_of(RECIPES[name]))
    run = Run(trace, analyse(trace))
    texts = [(f.code, f.advice) for f in run.findings]
    texts += [(f.code, r.code + r.title) for d in run.diagnoses for f in d.findings
              for r in d.remedies if "vanidl_loaders" not in r.code]  # fmt: skip
    for code, text in texts:
        for framework, pattern in WORDS.items():
            if framework not in known:
                assert not pattern.search(text), (code, text)


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
    assert infer_frameworks(plain, []) == (PYTORCH, TENSORFLOW)
    assert infer_frameworks(plain, ["/d/part-0.tfrecord"]) == (TENSORFLOW,)


@pytest.mark.parametrize("used", [PYTORCH, TENSORFLOW, "jax"])
def test_a_benchmark_says_whose_loader_it_ran(tmp_path, used):
    folder = dlio_results.write(tmp_path / "result")
    config = folder / "configs" / "config.yaml"
    settings = config.read_text().replace("framework: pytorch", f"framework: {used.lower()}")
    config.write_text(settings)
    run = vanidl.open_run(folder)
    assert infer_frameworks(run.trace, []) == tuple(name for name in WORDS if name == used)
    texts = [f.advice for f in run.findings]
    assert texts
    for framework, pattern in WORDS.items():
        assert framework == used or not any(map(pattern.search, texts)), texts


# --- In the words of the framework that a loop is written in

FRAMEWORKS = (
    words.LIGHTNING, words.TRAINER, words.FASTAI, words.KERAS, words.GRAIN, words.JAX,
)  # fmt: skip
CHANGES = (words.AHEAD, words.KEEP)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_code_is_that_of_the_framework(framework: str) -> None:
    for change in CHANGES:
        code, _ = words.get_code(framework, change, 3)
        ast.parse(code.replace("(self, ...)", "(self)"))
        assert "{workers}" not in code
        assert "tf.data" not in code
        assert framework not in words.WITHOUT_TORCH or "DataLoader(" not in code
    assert all(words.get_code(framework, words.AHEAD, 3))
    assert words.get_title(framework, words.AHEAD)


def run(names: list[str], imported: list[str]) -> SimpleNamespace:
    spans = SimpleNamespace(names=names)
    return SimpleNamespace(spans=spans, profiles=[SimpleNamespace(frameworks=tuple(imported))])


TORCH_LOADER = "DataLoader 0 (Rows, training)"


@pytest.mark.parametrize(
    ("names", "imported", "framework"),
    [
        ([TORCH_LOADER], ["torch"], ""),
        ([TORCH_LOADER], ["torch", "lightning"], words.LIGHTNING),
        ([TORCH_LOADER], ["torch", "transformers"], words.TRAINER),
        ([TORCH_LOADER], ["torch", "fastai"], words.FASTAI),
        (["JAXEpochIterator 0 (PyDatasetAdapter, training)"], ["keras", "jax"], words.KERAS),
        (["MapDataset 0 (SourceMapDataset, training)"], ["jax", "grain"], words.GRAIN),
        (["Batches 0 (training)"], ["jax"], words.JAX),
        ([TORCH_LOADER], ["torch", "jax"], ""),  # a DataLoader that gives to JAX
        (["_BatchDataset 0 (training)"], ["tensorflow"], ""),
        (["_MapDataset 0 (training)"], ["keras", "jax", "tensorflow"], ""),  # not Grain's
        (["Batches 0 (training)"], [], ""),
    ],
)
def test_the_framework_of_a_loop(names: list[str], imported: list[str], framework: str) -> None:
    assert words.find_loop_framework(run(names, imported)) == framework  # type: ignore[arg-type]


def test_what_the_table_does_not_have_is_nothing() -> None:
    assert words.get_code("", words.AHEAD, 2) == ("", "")
    assert words.get_title("", words.AHEAD) == ""
