"""Files that are mapped or loaded past every tracer are named, with their sizes alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from vanidl.readers.format import Reading
from vanidl.readers.steps import FORMAT
from vanidl.record import steps

PROGRAM = """
import mmap, os, sys, pickle
folder = sys.argv[1]
with open(folder + "/plain.bin", "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
assert type(mapped) is mmap.mmap and isinstance(mapped, mmap.mmap)
assert mapped[:4] == b"1234" and len(mapped) == 3_000_000
anonymous = mmap.mmap(-1, 4096)
import numpy as np
view = np.load(folder + "/mapped.npy", mmap_mode="r")
assert isinstance(view, np.memmap) and view[5] == 5
assert np.load(folder + "/loaded.npy").sum() == 45
for _ in range(3):
    np.memmap(folder + "/mapped.npy", dtype=np.uint8, mode="r")
if len(sys.argv) > 2:
    import pyarrow as pa
    from safetensors.numpy import load_file
    with pa.memory_map(folder + "/plain.bin") as source:
        assert source.size() == 3_000_000
pid = os.fork()
if pid == 0:
    np.memmap(folder + "/plain.bin", dtype=np.uint8, mode="r")
    os._exit(0)
os.waitpid(pid, 0)
"""


def test_mapped_and_loaded_files_are_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "plain.bin").write_bytes(b"1234" + bytes(2_999_996))
    np.save(data / "mapped.npy", np.arange(10))
    np.save(data / "loaded.npy", np.arange(10))
    environment = os.environ | steps.make_environment(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(data)], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not list(tmp_path.rglob("*.steps-error"))
    files = tuple((tmp_path / steps.FOLDER).glob("*.steps"))
    records = FORMAT.read({"steps": files}, Reading(lambda *_: None))
    assert not records.profiles
    said = {notice.code: notice for notice in records.notices}
    assert set(said) == {"files_mapped", "files_loaded"}
    assert said["files_mapped"].message.startswith("2 files of 2.86 MiB in all were mapped")
    assert f"{data}/plain.bin: 2.86 MiB, {data}/mapped.npy: 208 B" in said["files_mapped"].message
    assert said["files_mapped"].severity == "warning"
    assert f"{data}/loaded.npy: 208 B" in said["files_loaded"].message
    assert said["files_loaded"].severity == "info"
