"""The dataset as it lies here: found, sized, opened only when asked, tied to the reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.dataset.test_formats import tfrecord_bytes
from tests.makers.records import Io, darshan_log
from vanidl.analyses.results import analyse
from vanidl.dataset import locate
from vanidl.dataset.locate import read_user_data
from vanidl.errors import UsageError
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import assemble
from vanidl.model.run_facts import DataOptions
from vanidl.model.trace import Trace


def trace_of(ios: list[Io], names: dict[int, str]) -> Trace:
    return assemble(Group((darshan_log(ios, names=names),), ()), {})


def with_user_data(trace: Trace, options: DataOptions) -> Trace:
    from dataclasses import replace

    known, notices = read_user_data(trace, options)
    assert not [n for n in notices if n.severity == "warning"], notices
    return replace(trace, user_data=known)


def test_without_being_asked_nothing_is_touched(tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"no record")
    trace = trace_of([Io(0, 1, 0, 9)], {1: str(path)})
    known, notices = read_user_data(trace, DataOptions())
    assert (known.sizes, known.facts, known.on_disk, notices) == ({}, {}, None, ())


def test_files_are_found_by_the_end_of_their_path(tmp_path):
    for part in ("train/a.bin", "test/a.bin", "train/never.bin"):
        (tmp_path / part).parent.mkdir(exist_ok=True)
        (tmp_path / part).write_bytes(b"x" * len(part))
    names = {1: "/scratch/data/train/a.bin", 2: "/scratch/data/test/a.bin"}
    trace = trace_of([Io(0, 1, 0, 5, 1), Io(2, 3, 0, 5, 2)], names)
    data = analyse(with_user_data(trace, DataOptions((str(tmp_path),)))).dataset
    assert {f.path: f.size for f in data.files} == {names[1]: 11, names[2]: 10}
    assert [p.rsplit("/", 1)[-1] for p in data.never.on_disk] == ["never.bin"]
    assert data.share_of == "size on disk"
    assert data.ranks[0].share == pytest.approx(10 / 21)


def test_names_that_fit_several_files_are_left_unknown(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.bin").write_bytes(b"x")
    trace = trace_of([Io(0, 1, 0, 5)], {1: "/scratch/a.bin"})
    data = analyse(with_user_data(trace, DataOptions((str(tmp_path),)))).dataset
    assert data.files[0].size is None


def test_inspected_tfrecords_give_samples_and_a_certain_cause(tmp_path):
    content = tfrecord_bytes([b"x" * 4096] * 256)
    (tmp_path / "p.tfrecord").write_bytes(content)
    size, step = len(content), 262_144
    ios = [
        Io(i * 10, i * 10 + 5, at, min(step, size - at))
        for i, at in enumerate(range(0, size, step))
    ]
    trace = trace_of(ios, {1: "/scratch/p.tfrecord"})
    data = analyse(with_user_data(trace, DataOptions((str(tmp_path),), inspect=True))).dataset
    assert (data.samples.source, data.samples.total, data.files[0].samples) == ("files", 256, 256)
    top = data.modes[0]
    assert (top.low, top.certain) == (262_144, True)
    assert "TFRecord" in top.cause


def test_inspected_chunks_are_the_cause_of_their_reads(tmp_path):
    h5py = pytest.importorskip("h5py", reason="optional: the formats extra")
    path = tmp_path / "t.h5"
    with h5py.File(path, "w") as file:
        x = file.create_dataset("x", (32, 64), "f8", chunks=(1, 64), compression="gzip")
        x[:] = np.random.default_rng(0).poisson(2, x.shape)
        chunks = [x.id.get_chunk_info(i) for i in range(32)]
    ios = [Io(i * 10, i * 10 + 5, c.byte_offset, c.size) for i, c in enumerate(chunks)]
    trace = trace_of(ios, {1: "/scratch/t.h5"})
    (mode,) = analyse(
        with_user_data(trace, DataOptions((str(tmp_path),), inspect=True))
    ).dataset.modes
    assert mode.certain
    assert "stored chunk of /x (deflate)" in mode.cause
    assert (mode.reads, mode.share_of_bytes) == (32, 1)


def test_given_record_size_counts_samples():
    trace = trace_of([Io(0, 1, 0, 1000), Io(2, 3, 0, 1000)], {1: "/scratch/t.bin"})
    data = analyse(with_user_data(trace, DataOptions(record_bytes=100))).dataset
    assert (data.samples.total, data.samples.source) == (10, "given")


@pytest.mark.parametrize(
    "options", [DataOptions(record_bytes=0), DataOptions(("/no/such/folder",)),
                DataOptions(samples_per_step=-1)],
)  # fmt: skip
def test_options_that_make_no_sense(options):
    with pytest.raises(UsageError, match="expected"):
        read_user_data(trace_of([Io(0, 1, 0, 5)], {1: "/a"}), options)


def test_a_file_that_cannot_be_opened_is_a_notice(tmp_path):
    (tmp_path / "p.tfrecord").write_bytes(b"cut" * 20)
    trace = trace_of([Io(0, 1, 0, 5)], {1: "/scratch/p.tfrecord"})
    known, notices = read_user_data(trace, DataOptions((str(tmp_path),), inspect=True))
    assert not known.facts
    assert [n.code for n in notices] == ["not_inspected"]


def test_a_dataset_may_be_one_file_and_hidden_ones_are_none_of_it(tmp_path):
    for name in ("a.bin", ".a.bin.swp", "b.bin"):
        (tmp_path / name).write_bytes(b"xyz")
    trace = trace_of([Io(0, 1, 0, 3)], {1: "/scratch/a.bin"})
    alone, _ = read_user_data(trace, DataOptions((str(tmp_path / "a.bin"),)))
    folder, _ = read_user_data(trace, DataOptions((str(tmp_path),)))
    assert alone.sizes == folder.sizes == {"/scratch/a.bin": 3}
    assert (alone.on_disk, folder.on_disk) == ((), (str(tmp_path / "b.bin"),))


def test_a_folder_of_too_many_files_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(locate, "MOST_LISTED", 2)
    for name in ("a", "b", "c"):
        (tmp_path / name).touch()
    with pytest.raises(UsageError, match="more than 2 files"):
        read_user_data(trace_of([Io(0, 1, 0, 5)], {1: "/a"}), DataOptions((str(tmp_path),)))


def test_without_a_folder_the_path_of_the_job_itself_is_inspected(tmp_path, monkeypatch):
    monkeypatch.setattr(locate, "MOST_INSPECTED", 1)
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", np.zeros((7, 2)))
    paths = {1: str(tmp_path / "a.npy"), 2: str(tmp_path / "b.npy"), 3: str(tmp_path / "gone.npy")}
    trace = trace_of([Io(i, i + 1, 0, 5, i) for i in paths], paths)
    known, notices = read_user_data(trace, DataOptions(inspect=True))
    assert known.sizes == {paths[i]: Path(paths[i]).stat().st_size for i in (1, 2)}
    assert {path: facts.samples for path, facts in known.facts.items()} == {paths[1]: 7}
    assert [n.message for n in notices] == ["--inspect opened 1 of 2 dataset files."]


def test_files_that_lie_elsewhere_are_not_inspected():
    trace = trace_of([Io(0, 1, 0, 5)], {1: "/no/such/folder/a.bin"})
    known, (notice,) = read_user_data(trace, DataOptions(inspect=True))
    assert not known.facts
    assert "no dataset file of the run lies here" in notice.message


def test_a_file_is_opened_by_its_true_path_and_shown_by_another(tmp_path):
    folder = tmp_path / "token=abc\x1b[1m"
    folder.mkdir()
    paths = [folder / "a.npy", tmp_path / "token=other\x1b[1m" / "a.npy"]
    np.save(paths[0], np.zeros(10))
    trace = trace_of([Io(0, 1, 0, 9, 1), Io(2, 3, 0, 9, 2)], {1: str(paths[0]), 2: str(paths[1])})
    shown = f"{tmp_path}/token=***/a.npy"
    assert set(trace.files.path) == {shown, f"{tmp_path}/token=***2/a.npy"}
    known, notices = read_user_data(trace, DataOptions(inspect=True))
    assert notices == ()
    assert known.sizes == {shown: paths[0].stat().st_size}
    assert known.facts[shown].samples == 10
    assert known.facts[shown].path == shown
