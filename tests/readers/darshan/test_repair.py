from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.makers.darshan_logs import (
    POSIX_COUNTERS,
    POSIX_TIMES,
    STDIO_COUNTERS,
    STDIO_TIMES,
    Log,
    log_bytes,
    random_records,
)
from vanidl.errors import InputError
from vanidl.readers.darshan.library import read_counters
from vanidl.readers.darshan.log import read_log
from vanidl.readers.darshan.repair import Prepared, in_zlib, prepared
from vanidl.readers.records import CounterFile


def log(version: str, order: str, compression: str) -> bytes:
    rng = np.random.default_rng(5)
    posix = [
        (
            7 + i,
            i,
            rng.integers(0, 2**40, POSIX_COUNTERS).tolist(),
            rng.random(POSIX_TIMES).tolist(),
        )
        for i in range(2)
    ]
    stdio = [(9, -1, range(STDIO_COUNTERS), [1.5] * STDIO_TIMES)]
    counters = {"POSIX": posix} if version == "3.00" else {"POSIX": posix, "STDIO": stdio}
    names = {7: b"/a", 8: b"/b", 9: b"/c"}
    dxt = {"DXT_POSIX": random_records(3)}
    return log_bytes(Log(version, order, compression, names=names, counters=counters, dxt=dxt))


def same(a: CounterFile, b: CounterFile) -> None:
    assert (a.losses, b.losses) == ((), ())
    assert [t.layer for t in a.layers] == [t.layer for t in b.layers]
    assert a.layers
    for mine, other in zip(a.layers, b.layers, strict=True):
        assert (mine.file.tolist(), mine.rank.tolist()) == (
            other.file.tolist(),
            other.rank.tolist(),
        )
        for name, values in mine.counters.items():
            assert np.array_equal(values, other.counters[name])
        for name, seconds in mine.seconds.items():
            assert np.array_equal(seconds, other.seconds[name])


@pytest.mark.usefixtures("darshan_library")
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("version", ["3.00", "3.10", "3.20", "3.21", "3.41"])
def test_counters_of_a_bz2_log_are_those_of_the_same_log_in_zlib(tmp_path, version, order):
    paths = {}
    for compression in ("zlib", "bz2"):
        paths[compression] = tmp_path / f"{compression}.darshan"
        paths[compression].write_bytes(log(version, order, compression))
    files = read_counters([str(path) for path in paths.values()])
    same(files[str(paths["bz2"])], files[str(paths["zlib"])])


def test_the_copy_is_a_whole_log_that_says_the_same(tmp_path):
    original = tmp_path / "bz2.darshan"
    original.write_bytes(log("3.41", "<", "bz2"))
    copy = Path(prepared(str(original), tmp_path).path)
    assert copy != original
    a, b = read_log(original), read_log(copy)
    assert (b.whole, b.operations) == (True, ())
    for field in ("version", "job_id", "start_ns", "end_ns", "command", "metadata", "mounts",
                  "names", "nprocs"):  # fmt: skip
        assert getattr(a, field) == getattr(b, field)


def test_other_logs_are_left_alone(tmp_path):
    for name, content in (("z", log("3.41", "<", "zlib")), ("x", b"no log"), ("e", b"")):
        path = tmp_path / name
        path.write_bytes(content)
        assert prepared(str(path), tmp_path) == Prepared(str(path))
    assert prepared(str(tmp_path / "none"), tmp_path) == Prepared(str(tmp_path / "none"))
    with pytest.raises(InputError):
        in_zlib(memoryview(b"no log"), "x")


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8, 0.97])
def test_a_cut_bz2_log_is_a_loss_and_no_error(tmp_path, share):
    content = log("3.41", "<", "bz2")
    path = tmp_path / "cut.darshan"
    path.write_bytes(content[: int(len(content) * share)])
    (file,) = read_counters([str(path)]).values()
    assert file.losses or file.layers
