"""What the child of `sandbox` does, done in this process."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from dataclasses import asdict

import numpy as np
import pytest

from vanidl.dataset import inspect_file, sandbox_child


@pytest.fixture
def answered(tmp_path, monkeypatch):
    """A function paths -> answers; neither the memory nor the time of this process ends."""
    monkeypatch.setattr(sandbox_child, "_limit", lambda nbytes: None)
    monkeypatch.setattr(signal, "alarm", lambda seconds: 0)

    def answers(paths):
        path = tmp_path / "answers"
        streams = os.dup(1), path.open("wb")
        monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps([str(path) for path in paths])))
        os.dup2(streams[1].fileno(), 1)
        try:
            sandbox_child.main(1 << 30, 5)
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
    monkeypatch.setattr(sandbox_child, "MOST_ANSWER_BYTES", 10)
    assert "more of itself" in answered([good])[0]["error"]


def test_a_missing_package_is_the_users_to_mend(tmp_path, answered, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    (tmp_path / "a.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    (answer,) = answered([tmp_path / "a.h5"])
    assert "h5py" in answer["usage"]
