"""Storage that may never answer is known by its mount, and is never waited for without end."""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path

import pytest

from vanidl.errors import VanidlError
from vanidl.parallel import children, storage

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw
23 22 0:40 / {0}/fuse rw - fuse.sshfs host: rw
24 22 0:41 / {0}/a\\040b rw shared:2 master:1 - nfs4 server:/x rw
25 22 0:42 / {0}/own rw - tmpfs none rw
26 22 0:43 / {0}/twice rw - lustre server rw
27 22 0:44 / {0}/twice rw - xfs /dev/sdb rw
"""


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> storage.RemoteMounts:
    """A machine with such mounts below the folder of the test."""
    (tmp_path / "mountinfo").write_text(MOUNTS.format(tmp_path))
    monkeypatch.setattr(storage, "_MOUNTS", tmp_path / "mountinfo")
    return storage.RemoteMounts()


def test_a_path_is_of_the_mount_from_elsewhere_that_holds_it(tmp_path: Path, mounts) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "fuse" / "inner")
    (tmp_path / "own" / "up").symlink_to("../link")
    (tmp_path / "round").symlink_to("round")
    for path, mount in {
        "fuse": "fuse", "fuse/x/y": "fuse", "fuseless": "", "a b/c": "a b", "own/x": "",
        "twice/x": "", "link": "fuse", "link/z": "fuse", "own/up/q": "fuse",
        "own/../fuse/x": "fuse", "round/x": "", "nothing/here": "",
    }.items():  # fmt: skip
        assert mounts.of(str(tmp_path / path)) == (mount and str(tmp_path / mount)), path
    assert mounts.is_fuse(str(tmp_path / "fuse"))
    assert not mounts.is_fuse(str(tmp_path / "a b"))


@pytest.mark.parametrize(
    ("upper", "inside", "kind"),
    [("ext", "x", b"ext4"), ("btr", "x", b"btrfs"), ("other", "x", b""), ("not here", "x", b""),
     ("", "x", b""), ("ext", "y", b"")],
)  # fmt: skip
def test_the_upper_layer_of_an_overlay_is_found_where_it_can_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upper: str, inside: str, kind: bytes
) -> None:
    """A folder that only has the name is another one: `other` was made at another time."""
    options = f"rw,lowerdir=/l,upperdir={tmp_path}/{upper}/u\\0540,workdir=/w" if upper else "rw"
    (tmp_path / "mountinfo").write_text(
        "22 1 8:1 / / rw - ext4 /dev/root rw\n"
        f"23 22 0:40 / {tmp_path}/m rw shared:1 - overlay none {options}\n"
        f"24 22 0:41 / {tmp_path}/btr rw - btrfs  rw\n"
        f"25 22 0:42 /below {tmp_path}/bound rw - overlay none {options}\n"
    )
    monkeypatch.setattr(storage, "_MOUNTS", tmp_path / "mountinfo")
    for name in ("m/x", "bound", "ext/u,0/x", "ext/u,0/below", "btr/u,0/x", "btr/u,0/below"):
        (tmp_path / name).mkdir(parents=True)
        os.utime(tmp_path / name, ns=(7, 7))
    (tmp_path / "other" / "u,0" / "x").mkdir(parents=True)
    (tmp_path / "m" / "y").mkdir()
    assert storage.find_upper_kind(tmp_path / "m" / inside) == kind
    assert storage.find_upper_kind(tmp_path) == b""  # on no overlay
    if inside == "x" and kind:
        assert storage.find_upper_kind(tmp_path / "bound") == kind


def test_a_child_that_is_asked_answers_or_is_left_behind(monkeypatch) -> None:
    assert storage.ask(lambda _: b"..it") == b"..it"
    assert storage.ask(lambda goes_on: goes_on() or b"") == b""

    def denied(_: object) -> bytes:
        raise OSError(errno.EDQUOT, "in other words")

    with pytest.raises(OSError, match=os.strerror(errno.EDQUOT)):
        storage.ask(denied)
    monkeypatch.setattr(storage, "ANSWER_S", 0.1)
    assert storage.ask(lambda _: time.sleep(600) or b"") is None
    os.waitpid(-1, 0)  # it was ended


def test_a_question_is_answered_by_any_word_of_the_system(tmp_path: Path) -> None:
    question = storage.Question([str(tmp_path), str(tmp_path / "nothing")])
    while not question.is_answered():
        time.sleep(0.01)
    assert not question.is_overdue


class Clock:
    """Time that goes on as the test says, and a child that does as it says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.ticks, self.waits, self.answers = 0.0, 0, False, True
        clock = self

        class Asked:
            def __init__(self, paths: object) -> None:
                self.began_s = clock.now_s

            def is_answered(self) -> bool:
                return clock.answers

            @property
            def is_overdue(self) -> bool:
                return not clock.answers and clock.now_s - self.began_s > storage.ANSWER_S

        monkeypatch.setattr(children.time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(children, "Question", Asked)
        monkeypatch.setattr(children, "descendants", lambda _: [1])
        monkeypatch.setattr(children, "processor_ticks", lambda _: self.ticks)
        monkeypatch.setattr(children, "waits_for_storage", lambda _: self.waits)
        self.storage = children._Storage(1, {"/m/RUN": "/m"})

    def goes_on(self, seconds: float) -> None:
        """So long, with a look every fifth of a second."""
        for _ in range(round(seconds * 5)):
            self.now_s += 0.2
            self.storage.look()


def test_storage_that_answers_is_waited_for(monkeypatch, capfd) -> None:
    clock = Clock(monkeypatch)
    clock.goes_on(100)  # nothing of the child waits
    clock.waits = True
    for _ in range(20):
        clock.ticks += 1
        clock.goes_on(7)
    assert capfd.readouterr().err == ""


def test_storage_that_answers_nothing_is_named_within_ten_seconds(monkeypatch) -> None:
    clock = Clock(monkeypatch)
    clock.goes_on(50)
    clock.answers = False
    with pytest.raises(VanidlError, match=r"/m/RUN: .* none at /m for 8 s"):
        clock.goes_on(10)


def test_one_read_that_is_not_answered_is_named_and_given_up(monkeypatch, capfd) -> None:
    clock = Clock(monkeypatch)
    clock.waits = True
    clock.goes_on(10)
    assert capfd.readouterr().err.startswith("vanidl: /m: no answer to a read or write for 8 s")
    clock.goes_on(15)
    with pytest.raises(VanidlError, match="waited 30 s"):
        clock.goes_on(10)
    assert capfd.readouterr().err == ""  # it is said once


def test_what_a_process_started_is_found_with_its_time() -> None:
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        assert child in storage.descendants(os.getpid())
        assert storage.processor_ticks([os.getpid()]) > 0
        assert storage.processor_ticks([2**30]) == 0
        assert not storage.waits_for_storage([child])
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
