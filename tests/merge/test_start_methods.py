"""Families, ranks and roles in runs as Darshan 3.4.7 records them.

tests/recording made the runs; what is kept of each are its processes and a few reads, which
become real log files here.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import DATA
from tests.makers import pytorch_traces
from tests.makers.darshan_logs import Log, Record, log_bytes
from vanidl import Run, open_run
from vanidl.merge.jobs import group_runs
from vanidl.readers import discover
from vanidl.readers.darshan import log as darshan_log
from vanidl.readers.pytorch import trace

DATA = DATA / "start_methods"
START_US = 1_700_000_000_000_000
FILE = 77

TRAINER, WORKER, AUXILIARY, UNASSIGNED = "trainer", "worker", "auxiliary", "unassigned"

# pid: role, rank, pid of the trainer whose family it counts for. What each process really
# was is known from the scripts in tests/recording; workers of several spawning trainers on
# one host cannot be told apart by anything that Darshan records.
EXPECTED = {
    "fork": {
        1000: (TRAINER, None, 1000),
        **dict.fromkeys((1001, 1002, 1003, 1004), (WORKER, None, 1000)),
    },
    "spawn": {
        1000: (TRAINER, None, 1000),
        1001: (AUXILIARY, None, 1000),
        **dict.fromkeys((1002, 1003, 1004, 1005), (WORKER, None, 1000)),
    },
    "forkserver": {
        1000: (TRAINER, None, 1000),
        **dict.fromkeys((1001, 1002), (AUXILIARY, None, 1000)),
        **dict.fromkeys((1003, 1004, 1005, 1006), (WORKER, None, 1000)),
    },
    "torchrun": {
        1000: (AUXILIARY, None, None),
        1001: (TRAINER, 0, 1001),
        1002: (TRAINER, 1, 1002),
    },
    "torchrun_module": {
        1000: (AUXILIARY, None, None),
        1001: (TRAINER, 0, 1001),
        1002: (TRAINER, 1, 1002),
    },
    "torchrun_fork": {
        1000: (AUXILIARY, None, None),
        1001: (TRAINER, 0, 1001),
        1002: (TRAINER, 1, 1002),
        **dict.fromkeys((1003, 1006), (WORKER, None, 1002)),
        **dict.fromkeys((1004, 1005), (WORKER, None, 1001)),
    },
    "torchrun_spawn": {
        1000: (AUXILIARY, None, None),
        1001: (TRAINER, 0, 1001),
        1002: (TRAINER, 1, 1002),
        **dict.fromkeys((1003, 1004), (AUXILIARY, None, None)),
        **dict.fromkeys((1005, 1006, 1007, 1008), (UNASSIGNED, None, None)),
    },
    "torchrun_forkserver": {
        1000: (AUXILIARY, None, None),
        1001: (TRAINER, 0, 1001),
        1002: (TRAINER, 1, 1002),
        **dict.fromkeys((1003, 1004, 1005, 1006), (AUXILIARY, None, None)),
        **dict.fromkeys((1007, 1008, 1009, 1010), (UNASSIGNED, None, None)),
    },
    "mp_spawn": {
        **dict.fromkeys((1000, 1001), (AUXILIARY, None, None)),
        1002: (TRAINER, 0, 1002),
        1003: (TRAINER, 1, 1003),
        **dict.fromkeys((1004, 1007), (WORKER, None, 1003)),
        **dict.fromkeys((1005, 1006), (WORKER, None, 1002)),
    },
    "subprocess": {1000: (TRAINER, None, 1000), 1001: (AUXILIARY, None, 1000)},
    **{
        f"pool_{python}_spawn": {
            1000: (TRAINER, None, 1000),
            1001: (AUXILIARY, None, 1000),
            **dict.fromkeys((1002, 1003), (WORKER, None, 1000)),
        }
        for python in ("3.10", "3.13")
    },
    **{
        f"pool_{python}_forkserver": {
            1000: (TRAINER, None, 1000),
            **dict.fromkeys((1001, 1002), (AUXILIARY, None, 1000)),
            **dict.fromkeys((1003, 1004), (WORKER, None, 1000)),
        }
        for python in ("3.10", "3.12", "3.13")
    },
}
CASES = sorted(EXPECTED)


def written(case: str, folder: Path) -> dict:
    """Writes the logs and profiles of a case; returns its description."""
    run = json.loads((DATA / f"{case}.json").read_text())
    for log in run["logs"]:
        name = f"user_python_id{log['job']}-{log['pid']}_11-14-0-{log['pid']}_1.darshan"
        (folder / name).write_bytes(log_bytes(as_log(log)))
    for seen in run["profiles"]:
        path = folder / f"node01_{seen['pid']}.1.pt.trace.json"
        pytorch_traces.write(path, as_trace(seen))
    return run


def as_log(log: dict) -> Log:
    parent = f"fork_parent={log['fork_parent']}\n" if log["fork_parent"] else ""
    reads = [(at, n, start / 1e6, end / 1e6, 1) for at, n, start, end in log["reads"]]
    start, end = (divmod(START_US + log[key], 1_000_000) for key in ("start_us", "end_us"))
    return Log(
        job=(1000, log["job"], 1),
        start=(start[0], start[1] * 1000),
        end=(end[0], end[1] * 1000),
        metadata=f"lib_ver=3.4.7\n{parent}".encode(),
        command=log["command"].encode(),
        names={FILE: b"/scratch/data/x.raw"},
        dxt={"DXT_POSIX": [[Record(FILE, 0, log["host"], [], reads)]]} if log["host"] else {},
    )


def as_trace(seen: dict) -> dict:
    begin, end = seen["steps_us"]
    own = {"pid": seen["pid"], "tid": seen["pid"]}
    spans = (("ProfilerStep#2", end - begin), (pytorch_traces.WAIT, (end - begin) / 2))
    events = [
        pytorch_traces.event(name, begin, length, "user_annotation", **own)
        for name, length in spans
    ]
    world = {"backend": "gloo", "rank": seen["rank"], "world_size": seen["world_size"]}
    more = {} if seen["rank"] is None else {"distributedInfo": world}
    return pytorch_traces.trace(events, baseTimeNanoseconds=START_US * 1000, **more)


@pytest.fixture
def run(case: str, tmp_path: Path) -> Run:
    written(case, tmp_path)
    return open_run(tmp_path)


def test_every_recorded_case_is_expected():
    assert sorted(path.stem for path in DATA.glob("*.json")) == CASES


@pytest.mark.parametrize("case", CASES)
def test_roles_ranks_and_families(run, case):
    processes = run.trace.processes
    found = {
        p.pid: (p.role, p.rank, None if p.trainer is None else processes[p.trainer].pid)
        for p in processes
    }
    assert found == EXPECTED[case]


@pytest.mark.parametrize("case", CASES)
def test_what_no_rank_holds_is_said_and_stays_in_the_totals(run, case):
    roles = [role for role, _, _ in EXPECTED[case].values()]
    unassigned = {w.code for w in run.coverage.warnings} & {"unassigned"}
    assert bool(unassigned) == (UNASSIGNED in roles)
    description = json.loads((DATA / f"{case}.json").read_text())
    reads = [row for log in description["logs"] for row in log["reads"]]
    assert run.summary.ops == len(reads) > 0
    assert run.summary.bytes_read == sum(nbytes for _, nbytes, _, _ in reads)
    assert len(run.trace.ranks) == roles.count(TRAINER)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("reverse", [False, True])
def test_the_logs_are_one_run_in_any_order(case, reverse, tmp_path):
    written(case, tmp_path)
    found = discover.find(tmp_path)
    logs = sorted(
        map(darshan_log.read_log, found.files["darshan"]), key=lambda log: log.pid, reverse=reverse
    )
    profiles = [trace.read_trace(path) for path in found.files.get("profiler", ())]
    assert len(group_runs(logs, profiles)) == 1


def test_two_launches_of_different_scripts_stay_two_runs(tmp_path):
    written("torchrun", tmp_path)
    found = discover.find(tmp_path)
    logs = [darshan_log.read_log(path) for path in found.files["darshan"]]
    (tmp_path / "other").mkdir()
    run = json.loads((DATA / "torchrun.json").read_text())
    for log in run["logs"]:
        shifted = {k: log[k] + 5000 for k in ("pid", "job", "start_us", "end_us")}
        command = log["command"].replace("train.py", "other.py")
        other = as_log({**log, **shifted, "command": command})
        path = tmp_path / "other" / f"user_python_id{shifted['job']}-{shifted['pid']}_1.darshan"
        path.write_bytes(log_bytes(other))
        logs.append(darshan_log.read_log(path))
    assert sorted(len(g.logs) for g in group_runs(logs, [])) == [3, 3]
