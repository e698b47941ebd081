"""Whether the first action names the cause: small trainings, each with one planted.

    python -m benchmarks.causes record [--work build/causes] [NAME...]
    python -m benchmarks.causes table [--work build/causes] [--vanidl PATH]
    python -m benchmarks.causes record|table --again   # other programs with some of these causes
    python -m benchmarks.causes record|table --reported   # after public reports, broken and fixed

`benchmarks/programs/planted.py` has the trainings: 31 causes behind a switch, 10 healthy ones.
`record` records each with the tracer and without; with `--off` each runs once without its cause as
well, to see what that costs. `table` asks for each recording which action comes first, which are
among the first three, and what healthy trainings are accused of; with `--vanidl` another version's
package is asked.
Limits: the cause first in 24 of 28, within three in 28, none alleged of a healthy one.

An action counts where its code is one of those that stand here beside the program, written down
with the programs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "benchmarks/programs"
BIN = Path(sys.executable).parent
TRACERS = ("vanidl", "none")
MOUNTS = {
    "slow_storage": ("--latency-ms", "8", "--bandwidth-mb", "100"),
    "slow_metadata": ("--metadata-ms", "3"),
    "saturated_storage": ("--latency-ms", "1", "--bandwidth-mb", "12"),
    "cold_then_warm": ("--latency-ms", "8", "--bandwidth-mb", "100", "--page-cache"),
    "too_few_workers": ("--latency-ms", "10", "--bandwidth-mb", "400"),
    "shuffle_window": ("--latency-ms", "4", "--bandwidth-mb", "100"),
    "one_reader": ("--latency-ms", "6", "--bandwidth-mb", "200"),
    "fsync": ("--sync-ms", "12"),
}
"""Of programs that run on the emulated file system: its options."""
RANKS = {"slow_rank": 2, "one_reader": 2, "even_ranks": 2}

ACTIONS: dict[str, tuple[str, ...]] = {
    "slow_storage": ("read_ahead", "storage_limit", "keep_data", "larger_requests"),
    "slow_metadata": ("fewer_files",),
    "saturated_storage": ("storage_limit", "keep_data"),
    "cold_then_warm": ("read_ahead", "first_epoch", "stage"),
    "too_few_workers": ("read_ahead",),
    "too_many_workers": ("more_cores",),
    "one_core": ("more_cores",),
    "gil_transform": ("decode", "unblock", "background_work"),
    "native_decode": ("decode",),
    "python_transform": ("decode",),
    "slow_sample": ("rare_stalls",),
    "serial_start": ("warm_start",),
    "workers_anew": ("warm_start",),
    "delivery": ("hand_over",),
    "worker_lock": ("unblock",),
    "slow_rank": ("divide_reading", "decode"),
    "one_reader": ("divide_reading",),
    "checkpoint": ("checkpoints",),
    "background_save": ("background_work", "checkpoints"),
    "fsync": ("syncs",),
    "log_each_step": ("logging", "loop_work"),
    "validation": ("validation",),
    "augment_in_loop": ("loop_work",),
    "python_metrics": ("loop_work",),
    "parquet_decode": ("decode", "larger_chunks"),
    "h5_chunk": ("chunks", "decode"),
    "reopened_archive": ("fewer_files", "decode"),
    "shuffle_window": ("rare_stalls", "windows"),
    "object_reads": ("unblock", "read_ahead"),
    "tracking_service": ("services", "loop_work"),
    "sleeping_service": ("unblock",),
    # Of reports: what was accepted there, or its equal.
    "csv_rewritten": ("logging", "loop_work"),
    "cropped_late": ("hand_over", "decode"),
    "workers_each_epoch": ("warm_start", "validation"),
}
REPORTS = ("csv_rewritten", "cropped_late", "workers_each_epoch")
FIXED = "_fixed"
"""Of a recording's name: without its cause."""
OF_RECORDING = "record_more"
"""What limits the numbers accuses no program."""
HEALTHY = (
    "in_memory", "workers_keep_up", "local_files", "held_h5", "stream_with_workers",
    "rare_checkpoint", "few_prints", "short_validation", "even_ranks", "computing",
)  # fmt: skip


@dataclass(frozen=True)
class Programs:
    """A file of programs: which have a cause, which are healthy, what they need."""

    file: Path
    causes: tuple[str, ...]
    healthy: tuple[str, ...]
    mounts: Mapping[str, tuple[str, ...]]
    made: str  # a file of its data, by which it is known whether these were made


FIRST = Programs(
    PROGRAMS / "planted.py", tuple(name for name in ACTIONS if name not in REPORTS), HEALTHY,
    MOUNTS, "narrow.h5",
)  # fmt: skip
REPORTED = Programs(PROGRAMS / "reported.py", REPORTS, (), {}, "made")
AGAIN = Programs(
    PROGRAMS / "planted_again.py",
    ("slow_storage", "slow_metadata", "python_transform", "native_decode", "delivery",
     "checkpoint", "fsync", "log_each_step", "augment_in_loop", "tracking_service",
     "background_save", "workers_anew", "validation", "sleeping_service"),
    ("arrays_ahead", "rare_logs", "kept_workers", "small_batches"),
    {"slow_storage": ("--latency-ms", "12", "--bandwidth-mb", "60"),
     "slow_metadata": ("--metadata-ms", "1"), "fsync": ("--sync-ms", "8")},
    "arrays/0.npy",
)  # fmt: skip

OTHERS = Programs(
    PROGRAMS / "others.py",
    ("packed_pictures", "read_each_epoch", "file_of_rows", "short_epochs", "noisy_batches"), (),
    {"read_each_epoch": ("--latency-ms", "8", "--bandwidth-mb", "100")}, "tokens.npy",
)  # fmt: skip
"""Outside of the planted causes: followed by `benchmarks.advice`, judged by no table here."""


def run(
    programs: Programs, name: str, work: Path, *, tracer: str | None, off: bool = False
) -> dict[str, float]:
    """What a program says of itself, recorded or not."""
    data = mounted = work / "data"
    before: list[str] = []
    if name in programs.mounts and not off:
        mounted = Path(tempfile.mkdtemp(prefix="mount-", dir=work))
        mount = [str(BIN / "python"), "-m", "vanidl_loaders", "mount", str(data), str(mounted)]
        before = [*mount, *programs.mounts[name], "--"]
    command = [str(BIN / "python"), str(programs.file), name, "--data", str(mounted)]
    if name in RANKS:
        launcher = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", str(RANKS[name])]
        command = [*launcher, *command[1:]]
    if off:
        command.append("--off")
    if tracer is not None:
        out = work / "runs" / f"{name}{FIXED if off else ''}.{tracer}"
        subprocess.run(["rm", "-rf", str(out)], check=True)
        command = [str(BIN / "vanidl"), "record", "--tracer", tracer, "-o", str(out), "--",
                   *command]  # fmt: skip
    done = subprocess.run(
        [*before, *command], capture_output=True, text=True, timeout=300, cwd=work,
        env=os.environ | {"HDF5_USE_FILE_LOCKING": "FALSE"}, check=False,
    )  # fmt: skip
    lines = re.findall(r'\{"program".*?\}', done.stdout)  # ranks may share a line
    if not lines:
        print(f"{name}: {done.stdout[-500:]} {done.stderr[-1500:]}", flush=True)
        return {}
    return dict(json.loads(lines[-1]))


def record(
    programs: Programs, work: Path, names: list[str], tracers: tuple[str, ...], *, off: bool
) -> None:
    """Records the programs, and notes what each took."""
    (work / "runs").mkdir(parents=True, exist_ok=True)
    if not (work / "data" / programs.made).exists():
        make = [str(BIN / "python"), str(programs.file), "make", "--data", str(work / "data")]
        subprocess.run(make, check=True)
    for name in names or [*programs.causes, *programs.healthy]:
        begin = time.monotonic()
        row = {tracer: run(programs, name, work, tracer=tracer).get("loop_s") for tracer in tracers}
        if programs is REPORTED:
            for tracer in tracers:
                run(programs, name, work, tracer=tracer, off=True)
        if name in programs.causes and off:
            row["off"] = run(programs, name, work, tracer=None, off=True).get("loop_s")
        with (work / "times.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps({"program": name, **row}) + "\n")
        print(f"{name} {row} in {time.monotonic() - begin:.0f} s", flush=True)


def told(run_: Path, package: str) -> tuple[list[tuple[str, float | None]], str]:
    """Code and most gain in seconds of the actions of a recording, in order, and the verdict."""
    command = [str(BIN / "python"), "-m", "vanidl", "summary", "--json", str(run_)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=package, check=False)
    if done.returncode:
        return [(f"error: {done.stderr[-300:]}", None)], ""
    said = json.loads(done.stdout)
    if "actions" in said:
        rows = [(a["code"], a["gain_s"][1] if a["gain_s"] else None) for a in said["actions"]]
    else:
        rows = [(d["code"], d.get("saved_share")) for d in said["diagnoses"]]
    return rows, said.get("verdict") or ""


def table(
    programs: Programs, work: Path, names: list[str], package: str, tracers: tuple[str, ...]
) -> None:
    """Prints what is said of each recording, and how often it is right."""
    for tracer in tracers:
        first = three = accused = 0
        causes = [name for name in names or programs.causes if name in programs.causes]
        for name in causes:
            rows, verdict = told(work / "runs" / f"{name}.{tracer}", package)
            codes = [code for code, _ in rows]
            is_first = bool(codes) and codes[0] in ACTIONS[name]
            within = bool(set(codes[:3]) & set(ACTIONS[name]))
            first, three = first + is_first, three + within
            mark = "first" if is_first else "three" if within else "-----"
            print(f"{tracer:7} {mark} {name:18} {rows[:4]} {verdict}", flush=True)
        healthy = [name for name in names or programs.healthy if name in programs.healthy]
        healthy += [f"{name}{FIXED}" for name in causes if programs is REPORTED]
        for name in healthy:
            rows, verdict = told(work / "runs" / f"{name}.{tracer}", package)
            is_accused = any(code != OF_RECORDING for code, _ in rows)
            accused += is_accused
            print(f"{tracer:7} {'ALLEG' if is_accused else 'fine '} {name:18} {rows[:4]} {verdict}",
                  flush=True)  # fmt: skip
        print(f"{tracer}: first {first} of {len(causes)}, within three {three}, "
              f"alleged {accused} of {len(healthy)}", flush=True)  # fmt: skip


def main() -> None:
    """Records, or prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("record", "table"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--work", type=Path, help="else build/causes, or build/causes_again")
    parser.add_argument("--vanidl", default=str(ROOT))
    parser.add_argument("--tracer", action="append")
    parser.add_argument("--again", action="store_true", help="of `planted_again.py`")
    parser.add_argument("--off", action="store_true", help="time each without its cause as well")
    parser.add_argument("--reported", action="store_true", help="of `reported.py`, fixed as well")
    options = parser.parse_intermixed_args()
    programs = AGAIN if options.again else REPORTED if options.reported else FIRST
    suffix = "_again" if options.again else "_reported" if options.reported else ""
    work = (options.work or ROOT / f"build/causes{suffix}").resolve()
    tracers = tuple(options.tracer or TRACERS)
    if options.what == "record":
        record(programs, work, options.names, tracers, off=options.off)
    else:
        table(programs, work, options.names, options.vanidl, tracers)


if __name__ == "__main__":
    main()
