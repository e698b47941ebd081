"""What the library records of a program is what the program knows that it did."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from benchmarks.truth import harm
from tests.makers.recorded_calls import (
    RecordedCalls,
    all_calls,
    library,
    read_calls,
    run_traced,
)
from vanidl.errors import CommandError, InputError, UsageError
from vanidl.record import record


def traced(tmp_path: Path, code: str, **variables: str) -> list[RecordedCalls]:
    """What was recorded of Python code that runs in `tmp_path`."""
    program = f"import os; os.chdir({str(tmp_path)!r})\n{code}"
    run_traced([sys.executable, "-I", "-c", program], tmp_path / "calls", **variables)
    return list(all_calls(tmp_path / "calls"))


def test_offsets_follow_reads_seeks_and_copies_of_a_descriptor(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(1000))
    (calls,) = traced(
        tmp_path,
        "fd = os.open('a.bin', os.O_RDONLY); os.read(fd, 100); copy = os.dup(fd)\n"
        "os.read(copy, 50); os.lseek(fd, 700, 0); os.read(copy, 400); os.pread(fd, 10, 5)\n"
        "os.read(fd, 1)",
    )
    path = str(tmp_path / "a.bin")
    reads = [
        (c.offset, c.result, c.size) for c in calls.calls if c.path == path and c.kind >> 4 == 1
    ]
    assert reads == [(0, 100, 100), (100, 50, 50), (700, 300, 400), (5, 10, 10), (1000, 0, 1)]
    assert calls.damaged == 0
    assert calls.header["end"] > calls.header["start"]


def test_a_child_that_moves_a_shared_position_is_seen_by_its_parent(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(1000))
    parent, child = traced(
        tmp_path,
        "fd = os.open('a.bin', os.O_RDONLY); os.read(fd, 100)\n"
        "pid = os.fork()\n"
        "if not pid: os.read(fd, 30); os._exit(0)\n"
        "os.waitpid(pid, 0); os.read(fd, 7)",
    )
    path = str(tmp_path / "a.bin")
    assert [c.offset for c in parent.calls if (c.name, c.path) == ("read", path)] == [0, 130]
    assert [(c.path, c.offset) for c in child.calls if c.name == "read"] == [(path, 100)]
    assert child.header["parent"] == parent.header["pid"]
    assert child.header["how"] == 1


@pytest.mark.parametrize(
    ("code", "children"),
    [
        ("", 1),
        ("os.waitpid(child(), 0)", 1),
        ("os.waitpid(child(), 0); child()", 2),
        ("import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); child()", 2),
    ],
)
def test_a_process_says_whether_children_were_left_to_wait_for(tmp_path, code, children) -> None:
    # The pipe is closed by the end of the child alone, which then is one to wait for.
    parent, *_ = traced(
        tmp_path,
        "def child():\n"
        "    read, write = os.pipe(); pid = os.fork()\n"
        "    if not pid: os._exit(0)\n"
        "    os.close(write); os.read(read, 1)\n"
        "    try: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)\n"
        "    except ChildProcessError: pass\n"
        "    return pid\n" + code,
    )
    assert parent.header["children"] == children


def test_wide_characters_count_as_the_bytes_of_the_file(tmp_path: Path) -> None:
    if not shutil.which("cc"):
        pytest.skip("no C compiler for the program")
    harm.build(tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    run_traced([str(tmp_path / "harm"), "wide streams"], tmp_path / "calls", work)
    (calls,) = all_calls(tmp_path / "calls")
    written, read = calls.written(), calls.read()
    sizes = {name: (work / name).stat().st_size for name in ("wide", "formatted", "printed")}
    if not sizes["wide"]:
        pytest.skip("no locale with wide characters")
    assert {name: written[str(work / name)] for name in sizes} == sizes
    # Read whole in three ways, then its first line but for the end of that.
    first = len("0 \u00e9\u4e2d".encode())
    assert read[str(work / "wide")] == 3 * sizes["wide"] + first


def test_failed_calls_keep_their_reason(tmp_path: Path) -> None:
    (calls,) = traced(
        tmp_path,
        "for call in (os.stat, os.unlink, os.listdir, os.rmdir, open):\n"
        "    try: call('nothing')\n"
        "    except FileNotFoundError: pass\n",
    )
    missing = [(c.name, c.result) for c in calls.calls if c.path == str(tmp_path / "nothing")]
    assert missing == [(name, -2) for name in ("stat", "unlink", "opendir", "unlink", "open")]


def test_beyond_the_limit_totals_stay_exact(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(range(256)) * 40)
    reads, limit = 9_000, 3_000
    (calls,) = traced(
        tmp_path,
        "fd = os.open('a.bin', os.O_RDONLY)\n"
        f"for i in range({reads}): os.pread(fd, 1 + i % 2000, i % 5)",
        VANIDL_TRACER_EVENTS=str(limit),
    )
    path = str(tmp_path / "a.bin")
    (record,) = [r for r in calls.counters if calls.names.get(int(r["file"])) == path]
    single = [c for c in calls.calls if c.path == path and c.name == "pread"]
    assert limit <= len(single) < limit + 2 * 1638
    assert len(single) + record["reads"] == reads
    asked = [1 + i % 2000 for i in range(reads)]
    assert calls.read()[path] + record["bytes_read"] == sum(asked)
    rest = Counter(n > 100 for n in asked[len(single) :])
    beyond = Counter(1 if n > 1024 else 0 for n in asked[len(single) :])
    assert record["read_sizes"][0] == rest[False]
    assert record["read_sizes"][2] == beyond[1]
    assert calls.header["reason"] == 1
    assert calls.header["missing_since"] >= single[-1].start


def test_descriptors_that_are_closed_at_once_leave_every_event(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(1000))
    (calls,) = traced(
        tmp_path,
        "fd = os.open('a.bin', os.O_RDONLY); os.closerange(3, 4096)\n"
        "assert os.open('a.bin', os.O_RDONLY) == fd\n"
        "for i in range(3, 300): os.dup2(fd, i)\n"
        "os.read(200, 10)",
    )
    assert calls.read("a.bin").total() == 10
    assert not (tmp_path / "a.bin").read_bytes().strip(b"\0")


def test_calls_lie_elsewhere_until_the_end(tmp_path: Path) -> None:
    library()
    (tmp_path / "a.bin").write_bytes(bytes(5000))
    local = tmp_path / "local"
    local.mkdir()
    code = (
        f"import os; open({str(tmp_path / 'a.bin')!r}, 'rb').read()\n"
        f"print(len(os.listdir(os.listdir({str(local)!r}) and os.environ['VANIDL_TRACER'])))"
    )
    command = [sys.executable, "-c", code]
    done = record(command, tmp_path / "RUN", tracer="vanidl", with_steps=False, calls_on=local)
    assert (done.exit_status, [p.state for p in done.run.processes]) == (0, ["recorded"])
    assert not list(local.iterdir())
    (calls,) = map(read_calls, (tmp_path / "RUN" / "calls").glob("*.calls.gz"))
    assert calls.read("a.bin") == {str(tmp_path / "a.bin"): 5000}


def test_where_the_folder_is_not_calls_go_to_the_run(tmp_path: Path) -> None:
    (calls,) = traced(
        tmp_path, "os.stat('.')",
        VANIDL_TRACER="/nothing/there", VANIDL_TRACER_OTHERWISE=str(tmp_path / "calls"),
    )  # fmt: skip
    assert "stat" in [call.name for call in calls.calls]


def test_a_folder_for_calls_that_is_none_is_refused(tmp_path: Path) -> None:
    library()
    for tracer, error in (("vanidl", InputError), ("none", UsageError)):
        with pytest.raises(error, match="--calls-on"):
            record(["true"], tmp_path / f"RUN-{tracer}", tracer=tracer, calls_on="/nothing/there")
        assert not (tmp_path / f"RUN-{tracer}").exists()


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (["/no/such/program"], {}),
        (["true"], {"waits": ["not a name"]}),
        (["true"], {"keep_free_nbytes": 1 << 62}),  # nothing is recorded from the beginning
    ],
)
def test_where_the_tracer_does_not_run_no_folder_for_its_calls_stays(
    tmp_path: Path, command: list[str], options: dict[str, Any]
) -> None:
    library()
    (tmp_path / "local").mkdir()
    with suppress(CommandError, UsageError):
        record(command, tmp_path / "RUN", tracer="vanidl", calls_on=tmp_path / "local", **options)
    assert not list((tmp_path / "local").iterdir())
    assert (tmp_path / "RUN" / "run.json").exists() == ("keep_free_nbytes" in options)
    assert (tmp_path / "RUN").exists() == ("keep_free_nbytes" in options)
