from __future__ import annotations

import errno
import math
import os
import re
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from vanidl_loaders.emulated_fs.faults import OPERATIONS, Fault, parse_fault, plant
from vanidl_loaders.emulated_fs.model import Cost
from vanidl_loaders.emulated_fs.mount import EmulatedStorage, check_available
from vanidl_loaders.errors import MissingError, UsageError


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("read=EIO", Fault("read", errno.EIO)),
        ("write=EDQUOT@0.01", Fault("write", errno.EDQUOT, rate=0.01)),
        ("any=ESTALE+100", Fault("any", errno.ESTALE, after=100)),
        ("stat=hang30@0.5+2", Fault("stat", hang_s=30.0, rate=0.5, after=2)),
        ("open=hang", Fault("open", hang_s=math.inf)),
        ("read=short", Fault("read", short=True)),
    ],
)
def test_faults_as_they_are_written(text, fault):
    assert parse_fault(text) == fault


@pytest.mark.parametrize(
    "text",
    ["", "read", "read=", "read=ENOTHING", "sing=EIO", "read=EIO@0", "read=EIO@2", "read=EIO@-1",
     "stat=short", "read=hang-1", "read=EIO+", "READ=EIO", "read=eio"],
)  # fmt: skip
def test_what_is_none_is_refused(text):
    with pytest.raises(UsageError, match="expected OPERATION=FAULT"):
        parse_fault(text)


class Counted:
    def __init__(self):
        self.reads = []

    def read(self, path, size, offset, fh):
        self.reads.append(size)
        return b"x" * size

    def write(self, path, data, offset, fh):
        return len(data)


def test_a_rate_is_kept_and_comes_again():
    def failures():
        operations, failed = Counted(), []
        plant(operations, ["read=EIO@0.1"])
        for k in range(2000):
            with suppress(OSError):
                operations.read("/a", 1, 0, 0)
                continue
            failed.append(k)
        assert len(operations.reads) == 2000 - len(failed)
        return failed

    assert 150 < len(failures()) < 250  # 200 expected, 13 of deviation
    assert failures() == failures()


def test_the_first_ones_are_spared_and_others_are_not_touched():
    operations = Counted()
    plant(operations, ["read=EIO+3"])
    for _ in range(3):
        operations.read("/a", 1, 0, 0)
    with pytest.raises(OSError, match="Input/output"):
        operations.read("/a", 1, 0, 0)
    assert operations.write("/a", b"abc", 0, 0) == 3


def test_short_ones_move_half():
    operations = Counted()
    plant(operations, ["read=short", "write=short"])
    assert operations.read("/a", 9, 0, 0) == b"xxxx"
    assert operations.read("/a", 1, 0, 0) == b"x"
    assert operations.write("/a", b"abcdef", 0, 0) == 3


def test_every_operation_can_be_named():
    for name in OPERATIONS:
        assert set(parse_fault(f"{name}=EIO").methods) <= set(parse_fault("any=EIO").methods)


@pytest.fixture
def source(tmp_path):
    try:
        check_available()
    except MissingError as error:
        pytest.skip(str(error))
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "a").write_bytes(os.urandom(10_000))
    return folder


@pytest.mark.parametrize(
    ("fault", "number"),
    [("open=EACCES", errno.EACCES), ("read=ESTALE", errno.ESTALE), ("stat=EIO", errno.EIO)],
)
def test_a_mount_fails_as_it_is_told(source, tmp_path, fault, number):
    said = re.escape(os.strerror(number))
    with (
        EmulatedStorage(source, tmp_path / "m", cost=Cost(), faults=[fault]) as storage,
        pytest.raises(OSError, match=said),
    ):
        (storage.target / "a").read_bytes()


def test_short_reads_of_a_mount_lose_nothing(source, tmp_path):
    faults = ["read=short@0.5", "write=short@0.5"]
    with EmulatedStorage(source, tmp_path / "m", cost=Cost(), faults=faults) as storage:
        content = (source / "a").read_bytes()
        assert (storage.target / "a").read_bytes() == content
        (storage.target / "b").write_bytes(content)
        assert (source / "b").read_bytes() == content


def test_what_hangs_ends_with_the_mount(source, tmp_path):
    """The reader gets an error then: nothing is left behind."""
    words = [sys.executable, "-c", "import sys; open(sys.argv[1], 'rb').read(1)"]
    storage = EmulatedStorage(source, tmp_path / "m", cost=Cost(), faults=["read=hang"])
    with storage:
        reader = subprocess.Popen([*words, str(storage.target / "a")], stderr=-1)
        time.sleep(0.5)
        assert reader.poll() is None
    assert reader.wait(30) != 0
    reader.communicate()


def test_a_fault_that_is_none_is_refused_before_mounting(source, tmp_path):
    with (
        pytest.raises(UsageError),
        EmulatedStorage(source, tmp_path / "m", cost=Cost(), faults=["read=EIO", "x"]),
    ):
        pass
