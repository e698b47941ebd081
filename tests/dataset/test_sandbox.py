"""Data files that end the libraries of their formats, or ask for all memory."""

from __future__ import annotations

import io
import json
import os
import signal
import struct
import sys
import zipfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from vanidl.dataset import sandbox
from vanidl.dataset.registry import inspect_file
from vanidl.dataset.sandbox import inspect_files
from vanidl.errors import InputError
from vanidl.model.run_facts import FileFacts

# What the child of `sandbox` does, done in this process.


@pytest.fixture
def answered(tmp_path, monkeypatch):
    """A function paths -> answers; neither the memory nor the time of this process ends."""
    monkeypatch.setattr(sandbox, "_limit_child", lambda nbytes: None)
    monkeypatch.setattr(signal, "alarm", lambda seconds: 0)

    def answers(paths):
        path = tmp_path / "answers"
        streams = os.dup(1), path.open("wb")
        monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps([str(path) for path in paths])))
        os.dup2(streams[1].fileno(), 1)
        try:
            sandbox.answer_paths(1 << 30, 5)
        finally:
            os.dup2(streams[0], 1)
            os.close(streams[0])
            streams[1].close()
        return [json.loads(line) for line in path.read_bytes().splitlines()]

    return answers


def test_a_line_for_each_file(tmp_path, answered, monkeypatch):
    good, bad, foreign = (tmp_path / name for name in ("a.npy", "b.npy", "c.txt"))
    np.save(good, np.zeros((3, 4), np.float32))
    bad.write_bytes(b"no array")
    foreign.write_bytes(b"text")
    facts, error, none = answered([good, bad, foreign])
    assert facts == json.loads(json.dumps(asdict(inspect_file(good))))
    assert "b.npy" in error["error"]
    assert none is None
    monkeypatch.setattr(sandbox, "MOST_ANSWER_BYTES", 10)
    assert "more of itself" in answered([good])[0]["error"]


def test_a_missing_package_is_the_users_to_mend(tmp_path, answered, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    (tmp_path / "a.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    (answer,) = answered([tmp_path / "a.h5"])
    assert "h5py" in answer["usage"]


def whole(folder: Path, name: str = "whole.npy") -> Path:
    np.save(folder / name, np.zeros((3, 4), np.float32))
    return folder / name


def npy(shape: str) -> bytes:
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(head)) + head


def broken_npz(path: Path, method: int) -> None:
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a.npy", npy("(3,)") + bytes(range(256)) * 40)
    raw = bytearray(path.read_bytes())
    raw[50:80] = bytes(30)
    path.write_bytes(raw)


def test_facts_come_back_as_they_were(tmp_path):
    path = whole(tmp_path)
    (facts,) = inspect_files([path])
    assert (facts.path, facts.format, facts.samples) == (str(path), "NPY", 3)
    assert facts.arrays[0].shape == (3, 4)
    assert inspect_files([tmp_path / "x.unknown"]) == [None]
    assert inspect_files([]) == []


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_damaged_archives_are_notices(tmp_path, method):
    broken_npz(tmp_path / "b.npz", method)
    bad, good = inspect_files([tmp_path / "b.npz", whole(tmp_path)])
    assert isinstance(bad, InputError)
    assert "b.npz" in str(bad)
    assert good.samples == 3


@pytest.mark.parametrize("shape", [f"({10**30},)", "(-5,)", f"({'1,' * 40})", f"{'(' * 200}"])
def test_shapes_are_not_believed(tmp_path, shape):
    (tmp_path / "c.npy").write_bytes(npy(shape))
    (found,) = inspect_files([tmp_path / "c.npy"])
    assert isinstance(found, InputError) or found.samples == 1


def test_groups_within_each_other_by_the_thousand(tmp_path, monkeypatch):
    h5py = pytest.importorskip("h5py", reason="optional: the formats extra")
    with h5py.File(tmp_path / "deep.h5", "w") as file:
        group = file
        for _ in range(3000):
            group = group.create_group("g")
    monkeypatch.setattr(sandbox, "FILE_SECONDS", 2)  # HDF5 looks for each from the first one on
    (deep,) = inspect_files([tmp_path / "deep.h5"])
    assert deep is not None


LEFT = f"import signal, time; assert 0 < signal.alarm(1) <= {sandbox.FILE_SECONDS}"
"""The alarm is set, and comes in a second; other files have as long as ever."""


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os.abort()", "signal 6"),
        (f"{LEFT}; time.sleep(60)", f"more than {sandbox.FILE_SECONDS} s"),
        ("bytearray(1 << 50)", "needs more"),
        ("import os; os._exit(7)", "status 7"),
        ("print('noise')", ""),
    ],
)
def test_a_file_that_ends_the_child_is_named_and_the_rest_is_read(
    tmp_path, monkeypatch, code, said
):
    """`nonsense.npy` makes the child do what a library did."""
    hook = (
        "import vanidl.dataset.registry as d; keep = d.inspect_file\n"
        f"def odd(path):\n    if 'nonsense' in path.name:\n        {code}\n    return keep(path)\n"
        "import vanidl.dataset.sandbox as c; c.inspect_file = odd\n"
    )
    monkeypatch.setattr(sandbox, "_CHILD", f"exec({hook!r}); " + sandbox._CHILD)
    paths = [whole(tmp_path), whole(tmp_path, "nonsense.npy"), whole(tmp_path, "last.npy")]
    first, odd, last = inspect_files(paths)
    assert (first.samples, last.samples) == (3, 3)
    if said:
        assert isinstance(odd, InputError)
        assert said in str(odd)
        assert "nonsense.npy" in str(odd)
    else:
        assert odd.samples == 3


def test_hostile_files_of_the_reproducers(shared: Path):
    folder = shared / "data/hostile"
    paths = [folder / "npy/c.npy", folder / "npz/b.npz", folder / "pq/d.parquet"]
    if not all(map(os.path.exists, paths)):
        pytest.skip("the reproducers lie beside the repository")
    npy, npz, parquet = inspect_files(paths)
    assert isinstance(npy, InputError)
    assert isinstance(npz, InputError)
    assert isinstance(parquet, InputError | FileFacts)  # pyarrow 26 aborts, 25 reads it
