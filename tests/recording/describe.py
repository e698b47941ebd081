"""A recorded run -> a small neutral description of its processes, for tests/data/start_methods.

Nothing of the machine is kept: host, pids, paths and the clock are replaced, and of the
operations only a few on the data file.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from vanidl.model.trace import SpanKind
from vanidl.readers import discover
from vanidl.readers.darshan import log as darshan_log
from vanidl.readers.pytorch import trace
from vanidl.readers.records import ProfileTrace, TracerLog

ROWS = 4


def describe(folder: str) -> dict:
    """Logs and profiles of a run; times in microseconds since the first start."""
    found = discover.find(Path(folder))
    logs = [darshan_log.read_log(path) for path in found.files["darshan"]]
    logs.sort(key=lambda log: log.start_ns)
    profiles = [trace.read_trace(p) for p in found.files.get("profiler", ())]
    pids = sorted({log.pid for log in logs} | {p.pid for p in profiles})
    pid = {old: 1000 + i for i, old in enumerate(pids)}
    start_ns = logs[0].start_ns
    return {
        "logs": [_log(log, pid, start_ns) for log in logs],
        "profiles": [_profile(p, pid, start_ns) for p in profiles],
    }


def _log(log: TracerLog, pid: dict, start_ns: int) -> dict:
    return {
        "pid": pid[log.pid],
        "job": pid[int(log.job_id)],
        "fork_parent": pid.get(log.parent_pid),
        "host": "node01" if log.host else "",
        "start_us": (log.start_ns - start_ns) // 1000,
        "end_us": (log.end_ns - start_ns) // 1000,
        "command": _neutral(log.command),
        "reads": _reads(log),
    }


def _neutral(command: str) -> str:
    """The command with every path of this machine replaced."""
    command = re.sub(r"'sys_path': \[[^\]]*\]", "'sys_path': ['/scratch/code']", command)
    command = re.sub(r"'main_path': '[^']*'", "'main_path': '/scratch/code/train.py'", command)
    command = re.sub(r"\S*/bin/(python[\d.]*|torchrun)", r"/scratch/venv/bin/\1", command)
    command = re.sub(r"[^\s']*/(\w+\.py)", r"/scratch/code/\1", command)
    command = re.sub(r"--tb \S+", "--tb /scratch/tb", command)
    return re.sub(r"\S*/?data/(\w+\.raw)", r"/scratch/data/\1", command)


def _reads(log: TracerLog) -> list[list[int]]:
    """[offset, bytes, start, end] of the first reads of the data file; times since the start."""
    rows: list[list[int]] = []
    for table in log.operations:
        names = [log.names.get(int(f), "") for f in table.record_file]
        for i, record in enumerate(table.record.tolist()):
            if names[record].endswith(".raw") and table.op[i] == 0:
                times = table.start_ns[i] // 1000, table.end_ns[i] // 1000 + 1
                rows.append([int(v) for v in (table.offset[i], table.nbytes[i], *times)])
    return rows[:ROWS]


def _profile(profile: ProfileTrace, pid: dict, start_ns: int) -> dict:
    steps = profile.kind == SpanKind.STEP
    bounds = profile.start_ns[steps].min(), profile.end_ns[steps].max()
    return {
        "pid": pid[profile.pid],
        "rank": profile.rank,
        "world_size": profile.world_size,
        "steps_us": [int(t - start_ns) // 1000 for t in bounds],
    }


def _text(run: dict) -> str:
    """JSON with one log or profile a line."""
    lists = (
        f' "{name}": [\n  ' + ",\n  ".join(json.dumps(item) for item in items) + "\n ]"
        for name, items in run.items()
    )
    return "{\n" + ",\n".join(lists) + "\n}\n"


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        sys.stdout.write(_text(describe(argument)))
