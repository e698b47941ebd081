"""Runs of known truth without some of their evidence: cells hold the truth and widen.

    python -m tests.breakdown.laws [--removals 200] [--seed 0] [--only WORD] [--again]

Records `benchmarks/programs/known_waits.py`, which times its own calls, under other settings,
storage and tracers into build/laws, where that was not done before (Darshan where DARSHAN_LIB names
it); then removes evidence of each run and of the logs in tests/data and ../shared/data at random,
and looks at every window that both trees have. A line a run, and each kind of violation with an
example. Half an hour in all.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests import ROOT, SHARED
from tests.breakdown.removals import remove_some
from tests.breakdown.truth import PARTS, Truth
from vanidl.analyses.results import analyse
from vanidl.breakdown import Breakdown, assumptions, attribute_time
from vanidl.breakdown.account import PHASE, RUN
from vanidl.breakdown.causes import STORAGE
from vanidl.breakdown.rank_accounts import divide_rank
from vanidl.breakdown.rank_cells import Windows
from vanidl.breakdown.sources.states import compute_wilson_interval
from vanidl.breakdown.windows import INPUT_WAIT, WORK
from vanidl.model.selection import Selection, fitted, select
from vanidl.model.states import SAMPLED
from vanidl.model.trace import Trace
from vanidl.run import open_run

FOLDER = ROOT / "build/laws"
PROGRAM = ROOT / "benchmarks/programs/known_waits.py"
ASSUMED = frozenset({assumptions.NOT_MAPPED, assumptions.ONE_CLOCK, assumptions.ONE_THREAD})
"""What holds for these programs; whatever else may be assumed is left out, or may be wrong."""

TIMER_NS, CALL_NS, SHARE = 500_000, 40_000, 0.03
"""By how much a timer in Python may be off: of a window, a call, the window's length."""
ROUNDED_NS = 100
COUNTED = 1e-3


@dataclass(frozen=True)
class Program:
    """One recording."""

    workers: int = 0
    prefetch: int = 2
    tracer: str = "vanidl"
    options: tuple[str, ...] = ()
    mount: tuple[str, ...] | None = None  # options of the emulated storage; None: a local folder

    @property
    def name(self) -> str:
        """Of its folder."""
        words = [self.tracer, f"{self.workers}x{self.prefetch}", *self.options, *(self.mount or ())]
        words += ["local"] if self.mount is None else []
        return "-".join(word.strip("-") for word in words)

    @property
    def assume(self) -> frozenset[str]:
        """What holds for it: Darshan may miss its calls of `stat`."""
        misses = self.tracer == "darshan" and self.options == STATS
        return ASSUMED - {assumptions.NOT_MAPPED} if misses else ASSUMED


SLOW = ("--latency-ms", "4", "--metadata-ms", "1")
FAST = ("--latency-ms", "1")
STEADY = ("--log-kb", "64", "--sync")
STATS = ("--stats", "8", "--reads", "1")
AHEAD = ("--read-ahead", "--reads", "1", "--log-kb", "4")
PROGRAMS = (
    *(Program(workers, mount=SLOW) for workers in range(5)),
    *(Program(workers, mount=SLOW, options=STEADY) for workers in (0, 2)),
    *(Program(workers, prefetch, mount=FAST) for workers, prefetch in ((1, 1), (1, 4), (2, 4))),
    *(Program(w, options=STATS, mount=SLOW) for w in (0, 1, 3)),
    *(Program(w, options=("--decode-ms", "40"), mount=FAST) for w in (0, 2)),
    *(Program(w, options=("--reads", "6", "--decode-ms", "2"), mount=SLOW) for w in (0, 1, 4)),
    Program(3, options=("--any-order",), mount=SLOW),
    Program(0), Program(2), Program(0, options=STEADY),
    *(Program(0, tracer=tracer, options=AHEAD, mount=SLOW)
      for tracer in ("vanidl", "dftracer", "darshan")),
    *(Program(w, tracer="none", mount=SLOW) for w in (0, 2)),
    *(Program(w, tracer="dftracer", mount=SLOW) for w in (0, 2)),
    *(Program(w, tracer="darshan", mount=SLOW) for w in (0, 1, 2)),
    *(Program(w, tracer="darshan", options=STEADY, mount=SLOW) for w in (0, 2)),
    *(Program(w, tracer="darshan", options=STATS, mount=SLOW) for w in (0, 1)),
)  # fmt: skip


@dataclass
class Found:
    """What became of the removals from one run."""

    windows: int = 0
    held: int = 0  # cells against the truth
    nested: int = 0  # cells against those with all evidence
    broken: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def breaks(self, law: str, why: str) -> None:
        """One more violation."""
        self.broken[law] += 1
        self.examples.setdefault(law, why)


@dataclass(frozen=True)
class Known:
    """One run with all of its evidence."""

    trace: Trace
    windows: dict[int, Windows]  # by position of the rank
    account: Breakdown
    truth: Truth | None = None
    assume: frozenset[str] = ASSUMED


def open_known(path: Path, truth: Truth | None = None, assume: frozenset[str] = ASSUMED) -> Known:
    """A recorded run, and its truth where that is known."""
    trace = open_run(path).trace
    windows, account = account_for(trace, assume)
    threaded = truth is not None and truth.readers
    if threaded or any(calls.is_threaded for calls in account.served.values()):
        # With less evidence nothing may show the other threads: that there are none is wrong here.
        assume -= {assumptions.ONE_THREAD}
        windows, account = account_for(trace, assume)
    return Known(trace, windows, account, truth, assume)


def account_for(trace: Trace, assume: frozenset[str]) -> tuple[dict[int, Windows], Breakdown]:
    """The windows of each rank, and the account, of what is left of a run."""
    results, chosen = analyse(trace), select(trace, fitted(Selection(), trace))
    found = {p: divide_rank(chosen, results, p, assume) for p in range(len(trace.ranks))}
    known = {position: windows for position, windows in found.items() if windows is not None}
    return known, attribute_time(chosen, results, assume)


def check_removals(known: Known, count: int, seed: int) -> Found:
    """So many removals from one run; the first is of nothing."""
    found, random, delays = Found(), np.random.default_rng(seed), Delays(known.trace)
    for k in range(count + 1):
        trace, names = remove_some(known.trace, random) if k else (known.trace, ())
        by_rank, account = account_for(trace, known.assume)
        removed = ", ".join(names) or "nothing"
        moved = "clocks" in names
        for position, windows in by_rank.items():
            found.windows += len(windows)
            if known.truth is not None:
                _check_truth(found, known.truth, delays, windows, removed)
            if position in known.windows:
                check_nested(found, known.windows[position], windows, removed, moved=moved)
        if not moved:
            _check_account(found, known, trace, account, removed)
    return found


class Delays:
    """How long the threads that processes began with waited for a core, as the kernel counted.

    Between the timers of a call and those of its tracer a thread may lose its core: on a busy
    machine neither is the truth of that time.
    """

    def __init__(self, trace: Trace) -> None:
        first = [t.samples for t in trace.states.threads if t.is_first and len(t.samples)]
        self.times = [samples.time for samples in first]
        self.waited = [np.append(0, np.cumsum(np.diff(s.delay_us))) * 1e3 for s in first]

    def within(self, start_ns: int, end_ns: int) -> float:
        """Of all threads, in ns, between the samples around a time."""
        total = 0.0
        for times, waited in zip(self.times, self.waited, strict=True):
            begin = max(int(np.searchsorted(times, start_ns, side="right")) - 1, 0)
            end = min(int(np.searchsorted(times, end_ns)), len(times) - 1)
            total += max(float(waited[end] - waited[begin]), 0.0)
        return total


def _check_truth(
    found: Found, truth: Truth, delays: Delays, windows: Windows, removed: str
) -> None:
    of_steps = np.flatnonzero((windows.step >= 0) & np.isin(windows.part, (INPUT_WAIT, WORK)))
    for i in of_steps.tolist():
        start, end = int(windows.start_ns[i]), int(windows.end_ns[i])
        known = truth.of(start, end)
        slack = TIMER_NS + CALL_NS * known.calls + SHARE * (end - start)
        slack += delays.within(truth.asked_ns(start), end)
        total = STORAGE, sum(known.low.values()), min(sum(known.high.values()), end - start)
        parts = [(f"{STORAGE}.{part}", known.low[part], known.high[part]) for part in PARTS]
        for name, low, high in (total, *parts):
            if name not in windows.low:
                continue
            least, most = int(windows.low[name][i]), int(windows.high[name][i])
            found.held += 1
            if least > high + slack or most < low - slack:
                side, length_ms = "above" if least > high else "beneath", (end - start) / 1e6
                found.breaks(
                    f"{side} the truth: {name} without {removed}",
                    f"step {windows.step[i]} part {windows.part[i]} of {length_ms:.2f} ms: "
                    f"[{least / 1e6:.3f}, {most / 1e6:.3f}] ms, "
                    f"truth [{low / 1e6:.3f}, {high / 1e6:.3f}]",
                )


def check_nested(found: Found, whole: Windows, rest: Windows, removed: str, *, moved: bool) -> None:
    """Of windows that both have, that in which more is known lies within the other.

    Where a clock was moved both ends have moved too, and must not have moved apart.
    """
    keys = [_keys(windows) for windows in (whole, rest)]
    _, a, b = np.intersect1d(*keys, return_indices=True)
    for name in whole.low.keys() & rest.low.keys():
        low, high = (whole.high, whole.low) if moved else (whole.low, whole.high)
        off = np.maximum(rest.low[name][b] - low[name][a], high[name][a] - rest.high[name][b])
        if "." in name:  # calls of two threads at once are of one part, or of both
            off -= (COUNTED * whole.length_ns[a]).astype(np.int64)
        found.nested += len(a)
        for i in np.flatnonzero(off > ROUNDED_NS).tolist():
            x, y = a[i], b[i]
            found.breaks(
                f"narrower: {name} without {removed}",
                f"step {whole.step[x]} part {whole.part[x]} phase {whole.phase[x]}: "
                f"[{rest.low[name][y] / 1e6:.3f}, {rest.high[name][y] / 1e6:.3f}] ms, with all "
                f"evidence [{whole.low[name][x] / 1e6:.3f}, {whole.high[name][x] / 1e6:.3f}]",
            )


def _keys(windows: Windows) -> NDArray[np.void]:
    """Phase, step, part, times and length of each window, as one value."""
    columns = (windows.phase, windows.step, windows.part, windows.start_ns, windows.end_ns,
               windows.length_ns)  # fmt: skip
    table = np.ascontiguousarray(np.stack(columns, axis=1))
    return table.view([("", table.dtype)] * len(columns)).ravel()


def _check_account(found: Found, known: Known, trace: Trace, rest: Breakdown, removed: str) -> None:
    """Of the run and its phases."""
    whole = known.account
    sampling_ns = _bound_sampling_error_ns(whole, trace)
    for name in whole.columns.keys() & rest.columns.keys():
        window, _, cause = name.partition("/")
        # Calls of two threads at once are in two parts: how much of each counts is not compared.
        if "." in cause or (window != RUN and not (window == PHASE and "/" not in cause)):
            continue
        a, b = whole.columns[name], rest.columns[name]
        # Counters add up what traces unite: of a process that calls one at a time nearly the same.
        slack = COUNTED * a.high + sampling_ns * (window == RUN)
        narrower = a.high - b.high
        if window == RUN and cause == STORAGE:
            # With less evidence nothing may show that it came without calls, or some are missing.
            narrower[list(whole.unseen - rest.unseen)] = 0
        off = np.maximum(b.low - a.low, narrower) - slack
        found.nested += len(off)
        if off.max(initial=0) > ROUNDED_NS * (1 + int(whole.steps.max(initial=0))):
            i = int(off.argmax())
            found.breaks(
                f"narrower: {name} without {removed}",
                f"[{b.low[i] / 1e6:.3f}, {b.high[i] / 1e6:.3f}] ms, with all evidence "
                f"[{a.low[i] / 1e6:.3f}, {a.high[i] / 1e6:.3f}]",
            )


def _bound_sampling_error_ns(whole: Breakdown, trace: Trace) -> NDArray[np.float64]:
    """By how much sampled cells of a run may move, of each rank, where samples weigh otherwise.

    They weigh as much as the windows that they lie in: without steps these are others, and what
    the same samples stand for differs by their sampling error, to 98 %; that of a half is the
    largest. 0 where nothing was sampled, or no longer is.
    """
    error_ns = np.zeros(len(whole.ranks))
    if not any(SAMPLED in column.evidence for column in whole.columns.values()):
        return error_ns
    first = {  # those that came late say nothing
        (t.host, t.pid): int((~t.samples.late).sum()) for t in trace.states.threads if t.is_first
    }
    for i, process in enumerate(trace.processes[p] for p in trace.ranks):
        if samples := first.get((process.host, process.pid or -1), 0):
            low, high = compute_wilson_interval(0.5, samples)
            error_ns[i] = (high - low) / 2 * whole.window_ns
    return error_ns


def record(program: Program) -> Path | None:
    """The folder of a recording, made where it is not there; None where it cannot be made."""
    folder = FOLDER / program.name
    if (folder / "done").exists():
        return folder
    if not _can_record(program):
        return None
    if (folder / "mount").is_mount():  # what lies there would go with it
        raise SystemExit(f"{folder}/mount: expected a folder, found a mount: take it away.")
    shutil.rmtree(folder, ignore_errors=True)
    data = FOLDER / "data"
    if not (data / "15.bin").exists():
        data.mkdir(parents=True, exist_ok=True)
        for k in range(16):
            (data / f"{k}.bin").write_bytes(os.urandom(1 << 20))
    place = data if program.mount is None else folder / "mount"
    place.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable, "-m", "vanidl", "record", "-o", folder / "run", "--tracer", program.tracer,
        *(["--darshan-lib", os.environ["DARSHAN_LIB"]] if program.tracer == "darshan" else []),
        *(["--wait", "__main__:Ahead"] if "--read-ahead" in program.options else []), "--",
        sys.executable, PROGRAM, place, folder / "truth", "--workers", program.workers,
        "--prefetch", program.prefetch, *program.options,
    ]  # fmt: skip
    if program.mount is not None:
        mount = [sys.executable, "-m", "vanidl_loaders", "mount", data, place, *program.mount]
        command = [*mount, "--", *command]
    done = subprocess.run([*map(str, command)], capture_output=True, timeout=900, cwd=FOLDER)
    if done.returncode:
        raise SystemExit(f"{program.name}: {done.stderr.decode()[-2000:]}")
    (folder / "done").touch()
    return folder


def _can_record(program: Program) -> bool:
    tracers = {
        "darshan": lambda: "DARSHAN_LIB" in os.environ,
        "dftracer": lambda: importlib.util.find_spec("dftracer") is not None,
    }
    has_fuse = Path("/dev/fuse").exists() and shutil.which("fusermount3") is not None
    has_tracer = tracers.get(program.tracer, lambda: True)()
    return has_tracer and (program.mount is None or has_fuse)


def logs_at_hand() -> list[Path]:
    """Recorded runs whose truth is not known."""
    marks = (found for name in ("darshan", "steps") for found in (ROOT / "tests/data").rglob(name))
    return sorted({found.parent for found in marks}) + sorted(
        path.parent for path in SHARED.glob("data/recorded/*/darshan") if path.parent.is_dir()
    )


def main() -> int:
    """Records, removes, and says what broke."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--removals", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--again", action="store_true", help="record again")
    options = parser.parse_args()
    total, missing, checked = Found(), [], 0
    programs = [program for program in PROGRAMS if options.only in program.name]
    for program in programs:
        if options.again:
            shutil.rmtree(FOLDER / program.name, ignore_errors=True)
        folder = record(program)
        if folder is None:
            missing.append(program.name)
            continue
        ahead = "--read-ahead" in program.options
        truth = Truth(folder / "truth", program.workers, program.prefetch, read_ahead=ahead)
        checked += 1
        known = open_known(folder / "run", truth, program.assume)
        _say(program.name, known, options, total)
    for path in logs_at_hand():
        if options.only in path.name:
            _say(path.name, open_known(path), options, total)
    _tell(
        f"{checked} runs of known truth, {total.held:,} cells against it, {total.nested:,} against "
        f"those with all evidence: {sum(total.broken.values()):,} broke a law"
    )
    for name in missing:
        _tell(f"not recorded here: {name}")
    for law, count in total.broken.most_common():
        _tell(f"{count:6,}  {law}: {total.examples[law]}")
    return bool(total.broken)


def _say(name: str, known: Known, options: argparse.Namespace, total: Found) -> None:
    begin = time.monotonic()
    found = check_removals(known, options.removals, options.seed)
    total.windows += found.windows
    total.held += found.held
    total.nested += found.nested
    total.broken += found.broken
    total.examples |= {law: f"{name}: {why}" for law, why in found.examples.items()}
    _tell(
        f"{name}: {found.windows:,} windows, {sum(found.broken.values()):,} broke a law, "
        f"{time.monotonic() - begin:.0f} s"
    )
    for law, count in found.broken.items():
        _tell(f"{count:8,}  {law}: {found.examples[law]}")


def _tell(line: str) -> None:
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
