"""A run with known parameters gives a workload with exactly these; what is not known stays so."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.makers.records import JOB_START_NS, Io, Span, darshan_log, profile
from vanidl.analyses.results import analyse
from vanidl.cli import main
from vanidl.export import dlio
from vanidl.export.dlio.training import (
    ASSUMED,
    GIVEN,
    MEASURED,
    UNKNOWN,
    Entry,
    compute_gamma_quantiles,
    compute_normal_quantiles,
    fit_distribution,
    mark_unknown,
    render_entries,
)
from vanidl.export.registry import export
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import assemble
from vanidl.model.selection import Selection
from vanidl.model.trace import FETCH_COLUMNS, Fetches, SpanKind, Trace, make_fetches
from vanidl.run import Run

yaml = pytest.importorskip("yaml", reason="workloads are read back by PyYAML")

MS = 1_000_000


@dataclass(frozen=True)
class Job:
    """What a made-up training does; times in ms."""

    files: int = 8
    per_file: int = 2
    record: int = 50_000
    batch: int = 4
    workers: int = 2
    epochs: int = 3
    compute: tuple[int, ...] = (30,)  # of the steps in turn
    saves: tuple[int, ...] = ()  # epochs that end with one
    saved: int = 300_000
    suffix: str = ".npy"
    description: bool = False  # a small file of another kind is read, too

    @property
    def steps(self) -> int:
        return self.epochs * self.files * self.per_file // self.batch

    @property
    def size(self) -> int:
        """Of a file: what DLIO's generator adds to NPY is a header of 128 bytes."""
        return self.per_file * self.record + (128 if self.suffix == ".npy" else 0)


def trace_of(job: Job, *, fetched: bool = True, waits: bool = True) -> Trace:
    ios, spans, rows, names = [], [], [], {}
    at, per_epoch = 100, job.steps // job.epochs
    for step in range(job.steps):
        epoch, number = divmod(step, per_epoch)
        for sample in range(number * job.batch, (number + 1) * job.batch):
            file, place = divmod(sample, job.per_file)
            names[file + 1] = f"/data/set/part-{file:03}{job.suffix}"
            low = 0 if place == 0 else job.size - job.record * (job.per_file - place)
            high = job.size - job.record * (job.per_file - place - 1)
            ios.append(Io(at * MS, (at + 1) * MS, low, high - low, file + 1))
            at += 1
        wait = (at - job.batch) * MS, at * MS
        rows.append((step, epoch, number, *wait))
        if waits:
            spans.append(Span(SpanKind.INPUT_WAIT, *wait))
        compute = job.compute[step % len(job.compute)]
        spans.append(Span(SpanKind.STEP, wait[0], (at + compute) * MS, step))
        at += compute
        if number == per_epoch - 1:
            if epoch + 1 in job.saves:
                names[1000 + epoch] = f"/data/out/model_{epoch}.ckpt"
                ios.append(Io(at * MS, (at + 5) * MS, 0, job.saved, 1000 + epoch, 1))
            at += 400
    if job.description:
        names[999] = "/data/set/index.json"
        ios.append(Io(50 * MS, 51 * MS, 0, 900, 999))
    log = darshan_log(ios, names=names, length_ns=(at + 100) * MS)
    trace = assemble(Group((log,), (profile(spans),)), {}, ())
    return replace(trace, fetches=_fetches(job, rows)) if fetched else trace


def _fetches(job: Job, rows: list[tuple[int, ...]]) -> Fetches:
    step, epoch, number, low, high = (np.array(c, np.int64) for c in zip(*rows, strict=True))
    same = np.zeros(len(step), np.int64)
    low, high = low + JOB_START_NS, high + JOB_START_NS
    columns = {
        "trainer": same, "process": same, "name": same, "epoch": epoch, "batch": number,
        "worker": number % job.workers if job.workers else same - 1, "samples": same + job.batch,
        "begin": low, "collate": high, "end": high, "wait_begin": low, "wait_end": high,
        "ahead": same - 1, "in_order": same - 1, "pid": same - 1, "nbytes": same - 1,
    }  # fmt: skip
    assert set(columns) == set(FETCH_COLUMNS)
    return make_fetches(columns, ("DataLoader 0 (Samples)",))


def run_of(trace: Trace) -> Run:
    return Run(trace, analyse(trace), Selection())


def values(run: Run) -> dict[str, Any]:
    return {f"{e.section}.{e.key}": e.value for e in dlio.build_workload(run)}


def sources(run: Run) -> dict[str, str]:
    return {f"{e.section}.{e.key}": e.source for e in dlio.build_workload(run)}


JOBS = (
    Job(),
    Job(files=12, per_file=1, batch=3, workers=4, epochs=2, record=7_001),
    Job(per_file=4, batch=2, workers=0, saves=(1, 2, 3), suffix=".h5"),
    Job(epochs=4, saves=(2, 4), description=True),
)


@pytest.mark.parametrize("job", JOBS)
def test_a_known_run_gives_its_own_parameters(job):
    found = values(run_of(trace_of(job)))
    assert found["dataset.num_files_train"] == job.files
    assert found["dataset.num_samples_per_file"] == job.per_file
    assert found["dataset.record_length_bytes"] == job.record
    assert found["dataset.record_dims"] == (job.record,)
    assert found["dataset.format"] == {".npy": "npy", ".h5": "hdf5"}[job.suffix]
    assert found["reader.batch_size"] == job.batch
    assert found["reader.read_threads"] == job.workers
    assert found["train.epochs"] == job.epochs
    assert found["train.computation_time"] == pytest.approx(0.030)
    assert found["train.computation_time_stdev"] == pytest.approx(0, abs=1e-9)
    assert found["workflow.checkpoint"] == bool(job.saves)
    if job.saves:
        assert found["model.model_size_bytes"] == job.saved
        assert found["checkpoint.checkpoint_after_epoch"] == job.saves[0]
        apart = found["checkpoint.epochs_between_checkpoints"]
        assert apart == job.saves[1] - job.saves[0]
    assert not [
        name for name, source in sources(run_of(trace_of(job))).items() if source == UNKNOWN
    ]


def test_what_was_not_recorded_must_be_set(tmp_path):
    run = run_of(trace_of(Job(), fetched=False, waits=False))
    unset = {name for name, source in sources(run).items() if source == UNKNOWN}
    assert unset == {
        "dataset.num_samples_per_file", "dataset.record_length_bytes", "reader.batch_size",
        "train.computation_time",
    }  # fmt: skip
    assert values(run)["reader.read_threads"] == 0
    written = export(run, "dlio", tmp_path / "w.yaml")
    assert dict(written)["to be set"].split(", ") == sorted(
        unset, key=lambda n: list(sources(run)).index(n)
    )
    loaded = yaml.safe_load((tmp_path / "w.yaml").read_text())
    assert loaded["reader"]["batch_size"] == "${oc.decode:${oc.env:DLIO_BATCH_SIZE}}"


def test_nothing_recorded_is_all_to_be_set(tmp_path):
    run = run_of(assemble(Group((darshan_log([]),), ()), {}, ()))
    unset = {name for name, source in sources(run).items() if source == UNKNOWN}
    assert unset >= {
        "dataset.format", "dataset.num_files_train", "dataset.num_samples_per_file",
        "dataset.record_length_bytes", "reader.batch_size", "reader.read_threads",
        "train.computation_time",
    }  # fmt: skip
    assert sources(run)["train.epochs"] == ASSUMED
    export(run, "dlio", tmp_path / "w.yaml")
    assert yaml.safe_load((tmp_path / "w.yaml").read_text())["workflow"]["train"] is True


def test_what_the_user_states_comes_first():
    trace = trace_of(Job())
    stated = replace(trace.user_data, samples_per_step=16, record_bytes=25_000)
    run = run_of(replace(trace, user_data=stated))
    assert values(run)["reader.batch_size"] == 16
    assert values(run)["dataset.num_samples_per_file"] == 4
    assert (
        sources(run)["reader.batch_size"] == sources(run)["dataset.num_samples_per_file"] == GIVEN
    )


def moments(drawn, deviation=0.0):
    """Mean and standard deviation of what DLIO draws."""
    if not isinstance(drawn, dict):
        return drawn, deviation
    if drawn["type"] == "uniform":
        return (drawn["min"] + drawn["max"]) / 2, (drawn["max"] - drawn["min"]) / 12**0.5
    return drawn["shape"] * drawn["scale"], drawn["shape"] ** 0.5 * drawn["scale"]


@pytest.mark.parametrize("compute", [(30,), (20, 30, 40), (5, 5, 5, 300), (1, 2, 90, 4, 700)])
def test_the_distribution_has_the_moments_of_the_steps(compute):
    job = Job(files=32, compute=compute)
    each = np.array([compute[i % len(compute)] for i in range(job.steps)][1:]) / 1000
    found = values(run_of(trace_of(job)))
    drawn = found["train.computation_time"], found.get("train.computation_time_stdev", 0.0)
    assert moments(*drawn) == pytest.approx((each.mean(), each.std()), abs=1e-9)


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("normal", lambda rng: rng.normal(0.3, 0.02, 1000)),
        ("normal", lambda rng: rng.gamma(400, 1e-3, 1000)),  # hardly to be told from normal
        ("uniform", lambda rng: rng.uniform(0.1, 0.5, 1000)),
        ("gamma", lambda rng: rng.gamma(5, 0.05, 1000)),
        ("gamma", lambda rng: rng.exponential(0.2, 1000)),
    ],
)
def test_the_distribution_is_the_one_that_fits(name, draw):
    assert fit_distribution(draw(np.random.default_rng(3))).name == name


@pytest.mark.parametrize(("decoding_ms", "left_ms"), [(2, 0.0), (30, 28.8)])
def test_decoding_counts_beyond_what_the_reader_needs(decoding_ms, left_ms):
    job = Job(per_file=1, batch=1, record=200_000, workers=1)
    trace = trace_of(job)
    fetches = trace.fetches
    later = fetches.begin + (decoding_ms + 1) * MS  # a sample's read takes 1 ms
    columns = {name: getattr(fetches, name) for name in FETCH_COLUMNS}
    columns |= {"collate": later, "end": later}
    known = replace(trace.processes[0], log="log")
    run = run_of(
        replace(trace, processes=(known,), fetches=make_fetches(columns, trace.fetches.names))
    )
    assert sources(run)["reader.preprocess_time"] == ASSUMED
    assert values(run)["reader.preprocess_time"] * 1e3 == pytest.approx(left_ms)


def test_files_of_different_sizes_have_a_spread():
    trace = trace_of(Job(per_file=1, batch=1, suffix=".h5"))
    paths = [p for p in trace.files.path if p.endswith(".h5")]
    sizes = {path: 40_000 + 5_000 * i for i, path in enumerate(sorted(paths))}
    run = run_of(replace(trace, user_data=replace(trace.user_data, sizes=sizes)))
    found = values(run)
    assert found["dataset.record_length_bytes"] == np.mean(list(sizes.values()))
    assert found["dataset.record_length_bytes_stdev"] == round(np.std(list(sizes.values())))
    assert "dataset.record_dims" not in found  # DLIO refuses both


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (Job(files=12), "takes 8 of the 12 files"),
        (Job(files=8, per_file=2, batch=4), "2 times the bytes"),
        (Job(description=True), "not counted: 1 file of another kind (.json; 900 B)"),
    ],
)
def test_what_the_benchmark_does_otherwise_is_said(tmp_path, job, says):
    export(run_of(trace_of(job)), "dlio", tmp_path / "w.yaml")
    text = " ".join((tmp_path / "w.yaml").read_text().replace("#", " ").split())
    assert says in text


def test_its_commands_link_the_runs_own_files_as_dlio_lists_them(tmp_path, monkeypatch):
    job = Job(suffix=".h5")
    trace = trace_of(job)
    names = [path.replace("/data/set", str(tmp_path / "the set")) for path in trace.files.path]
    files = replace(trace.files, path=tuple(names))
    for path in map(Path, names):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.name)
    export(run_of(replace(trace, files=files)), "dlio", tmp_path / "w.yaml")
    lines = [line[2:] for line in (tmp_path / "w.yaml").read_text().splitlines()]
    first, last = lines.index("  mkdir -p own/train own/valid"), lines.index(
        "  export VANIDL_DLIO_ARRAY=NAME")  # fmt: skip
    subprocess.run(["sh", "-c", "\n".join(lines[first:last])], cwd=tmp_path, check=True)
    linked = sorted((tmp_path / "own/train").iterdir())
    assert [path.suffix for path in linked] == [".hdf5"] * job.files
    assert [path.read_text() for path in linked] == sorted(
        Path(name).name for name in names if name.endswith(".h5")
    )
    assert "reader.reader_classname=vanidl_loaders.dlio.OwnFilesReader" in " ".join(lines)


def test_the_command_writes_it(tmp_path, capsys):
    run = Path(__file__).parents[1] / "data" / "ddp_two_hosts"
    out = tmp_path / "workload.yaml"
    assert main(["export", str(run), "--to", "dlio", "-o", str(out), "--anonymize"]) == 0
    assert "measured" in capsys.readouterr().out
    assert {"dataset", "reader", "train", "workflow"} <= set(yaml.safe_load(out.read_text()))


scalars = st.one_of(
    st.booleans(), st.integers(), st.floats(0, 1e9), st.sampled_from(["off", "no", "1e3", "a: b"])
)


@settings(max_examples=30)
@given(st.dictionaries(st.sampled_from("abcdef"), scalars), st.text())
def test_yaml_reads_what_was_written(pairs, note):
    entries = [Entry("section", k, v, MEASURED, note) for k, v in pairs.items()]
    text = render_entries([note], [*entries, mark_unknown("other", "size", note)], [note])
    loaded = yaml.safe_load(text)
    assert loaded.get("section", {}) == {
        k: round(v, 9) if isinstance(v, float) else v for k, v in pairs.items()
    }
    assert loaded["other"]["size"].endswith("DLIO_SIZE}}")


@pytest.mark.parametrize("shape", [0.02, 0.3, 1.0, 4.0, 90.0, 1e4, 1e7])
def test_quantiles_of_distributions_are_scipys(shape):
    special = pytest.importorskip("scipy.special", reason="SciPy is the oracle")
    share = (np.arange(2_000) + 0.5) / 2_000
    gamma, expected = compute_gamma_quantiles(shape, share), special.gammaincinv(shape, share)
    assert float(np.abs(gamma - expected).mean()) <= 1e-4 * shape**0.5
    assert compute_normal_quantiles(3.0, shape, share) == pytest.approx(
        3 + shape * special.ndtri(share)
    )
