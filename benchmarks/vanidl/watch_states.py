"""What `vanidl watch` says a training does, against what it does: fourteen scenarios.

A training with PyTorch (`benchmarks/programs/watched_training.py`) is brought into each state,
stopped and killed, while `vanidl watch --plain` runs beside it. Of each state the table has how
long it took until that was said, and how many of the lines after 15 s of it say another one. A
training has stalled, by definition, 15 s after its last event; the time is from then on. Where more
is said (a wait of input that hangs is first a wait) each is a row.

    python -m benchmarks.vanidl.watch_states [SCENARIO ...]

Exit status 1 where a state is said later than within 15 s, a line says another one, or the exit
status of `vanidl watch` is not what it should be.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measure import ROOT
from vanidl.watch.state import STALL_S

PROGRAM = ROOT / "benchmarks" / "programs" / "watched_training.py"
LIMIT_S = 15.0
STEP_S = 0.5  # with all that it takes on a busy machine
AT_ONCE = 2
LONGEST_S = 150.0
_LINE = re.compile(r"(?:\d\d:\d\d:\d\d  |RUN: )(\w+)")


@dataclass
class Watched:
    """One training that is watched: what it noted, what was said, and when."""

    folder: Path
    how: str
    said: list[tuple[float, str]] = field(default_factory=list)
    done: list[tuple[str, float]] = field(default_factory=list)  # by this script

    def start(self) -> None:
        """Starts the recorder and who watches."""
        python = [sys.executable, "-m", "vanidl"]
        self.run, self.notes = self.folder / "RUN", self.folder / "notes"
        self.watcher = subprocess.Popen(
            [*python, "watch", str(self.run), "--plain", "--every", "1"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        command = [sys.executable, str(PROGRAM), self.how, str(self.notes)]
        self.recorder = subprocess.Popen(
            [*python, "record", "--tracer", "none", "-o", str(self.run), "--", *command],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.watcher.stdout is not None
        for line in self.watcher.stdout:
            if found := _LINE.match(line):
                self.said.append((time.monotonic(), found[1]))

    def noted(self) -> list[tuple[str, float, int]]:
        """(state, time, process) of what the program has noted."""
        lines = self.notes.read_text().splitlines() if self.notes.exists() else []
        return [(line.split()[0], float(line.split()[1]), int(line.split()[2])) for line in lines]

    def until(self, state: str, more_s: float) -> list[int]:
        """Waits until the training is in a state, and longer; the processes that noted it."""
        end_s = time.monotonic() + LONGEST_S
        while time.monotonic() < end_s:
            pids = [pid for noted, _, pid in self.noted() if noted == state]
            if pids:
                time.sleep(more_s)
                return sorted({pid for noted, _, pid in self.noted() if noted == state})
            time.sleep(0.1)
        raise TimeoutError(f"{self.how}: not {state} within {LONGEST_S:g} s")

    def did(self, state: str) -> None:
        """This script has brought it into a state."""
        self.done.append((state, time.monotonic()))

    def end(self) -> int:
        """Waits for who watches; its exit status."""
        try:
            status = self.watcher.wait(LONGEST_S)
        finally:
            for child in (self.watcher, self.recorder):
                child.kill()
                child.wait()
            self.reader.join()
            for _, _, pid in self.noted():
                _kill(pid)
        return status

    def truth(self) -> list[tuple[str, float]]:
        """(state, when it began) in the order of time; the end of the list is the end."""
        noted = [(state, at) for state, at, _ in self.noted()]
        rows = sorted([*noted, *self.done], key=lambda row: row[1])
        found: list[tuple[str, float]] = []
        for state, at in rows:
            if found and found[-1][0] == state:
                continue
            found.append((state, at))
            if state in ("stalling", "waiting"):
                found.append(("stalled", at + STALL_S))
        return [row for k, row in enumerate(found) if not _is_overtaken(found, k)]


def _is_overtaken(rows: list[tuple[str, float]], k: int) -> bool:
    """Whether a stall that was to come did not, as something happened before."""
    return rows[k][0] == "stalled" and k + 1 < len(rows) and rows[k + 1][1] <= rows[k][1]


def _kill(pid: int, number: int = signal.SIGKILL) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _nothing(watched: Watched) -> None:
    watched.recorder.wait(LONGEST_S)
    watched.did("ended")


def _stopped(watched: Watched) -> None:
    (pid,) = watched.until("training", 3)
    _kill(pid, signal.SIGSTOP)
    watched.did("stalling")
    time.sleep(STALL_S + 12)
    _kill(pid, signal.SIGCONT)
    watched.did("training")
    _nothing(watched)


def _hung(watched: Watched) -> None:
    watched.until("waiting", STALL_S + 12)
    _kill(watched.noted()[0][2])
    _nothing(watched)


def _killed(watched: Watched) -> None:
    (pid,) = watched.until("training", 5)
    _kill(pid)
    _nothing(watched)


def _all_killed(watched: Watched) -> None:
    (pid,) = watched.until("training", 5)
    watched.recorder.kill()
    watched.recorder.wait()
    _kill(pid)
    watched.did("dead")


def _recorder_killed(watched: Watched) -> None:
    (pid,) = watched.until("training", 5)
    watched.recorder.kill()
    watched.recorder.wait()
    time.sleep(10)
    _kill(pid)
    watched.did("dead")


def _rank_killed(watched: Watched) -> None:
    pids = watched.until("training", 5)
    _kill(pids[-1])
    watched.did("stalling")
    time.sleep(STALL_S + 12)
    _kill(watched.noted()[0][2])
    watched.did("ended")
    _nothing(watched)


@dataclass(frozen=True)
class Scenario:
    """What the program does, what is done to it, and how it is over."""

    how: str
    act: Callable[[Watched], None] = _nothing
    status: int = 0


SCENARIOS = {
    "a long start": Scenario("starts"),
    "training to a good end": Scenario("ends"),
    "a validation whose batch takes 22 s": Scenario("validates"),
    "a save of 25 s": Scenario("saves"),
    "a sample that takes 13 s": Scenario("waits"),
    "a loader that hangs": Scenario("hangs", _hung, 3),
    "a program that sleeps for 30 s": Scenario("sleeps"),
    "SIGSTOP, SIGCONT": Scenario("runs", _stopped),
    "a program that fails": Scenario("fails", status=3),
    "the program killed": Scenario("runs", _killed, 3),
    "program and recorder killed": Scenario("runs", _all_killed, 4),
    "the recorder killed, later the program": Scenario("runs", _recorder_killed, 4),
    "one of two ranks killed": Scenario("ranks", _rank_killed, 3),
    "the clock jumps back by an hour": Scenario("jumps"),
}


@dataclass(frozen=True)
class Row:
    """One state of one scenario."""

    state: str
    lasted_s: float
    after_s: float | None  # until it was said; None: never
    lines: int
    wrong: int


def rows(watched: Watched) -> Iterator[Row]:
    """What was said of each state that lasted longer than it may take to say it."""
    truth = [row for row in watched.truth() if row[0] != "stalling"]
    if truth[-1][0] == "ended":  # its record is there before its recorder has gone
        truth[-1] = ("ended", truth[-1][1] - 1)
    for (state, begin), (_, end) in zip(truth, [*truth[1:], ("", float("inf"))], strict=True):
        mine = [(at, said) for at, said in watched.said if begin <= at < end]
        first = next((at for at, said in mine if said == state), None)
        # A stall begins with the last event, which was a step before it was noted.
        later = [said for at, said in mine if begin + LIMIT_S <= at < end - 2 * STEP_S]
        after_s = None if first is None else first - begin
        last = min(end, watched.said[-1][0]) if watched.said else begin
        yield Row(state, last - begin, after_s, len(mine), sum(s != state for s in later))


def measure(name: str) -> tuple[str, list[Row], int]:
    """One scenario: its rows, and the exit status of who watched."""
    scenario = SCENARIOS[name]
    with tempfile.TemporaryDirectory() as folder:
        watched = Watched(Path(folder), scenario.how)
        watched.start()
        try:
            scenario.act(watched)
        finally:
            status = watched.end()
        return name, list(rows(watched)), status


def main() -> int:
    """Prints the table; exit status 1 where something is late or wrong."""
    names = sys.argv[1:] or list(SCENARIOS)
    wrong = 0
    print(f"{'scenario':<42}{'state':<12}{'lasted':>8}{'said after':>12}{'other lines':>13}")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for name, found, status in pool.map(measure, names):
            label = name
            for row in found:
                after = "never" if row.after_s is None else f"{row.after_s:.1f} s"
                late = row.after_s is None or row.after_s > LIMIT_S
                bad = (late and row.lasted_s > LIMIT_S) or row.wrong > 0
                wrong += bad
                print(
                    f"{label:<42}{row.state:<12}{row.lasted_s:>6.1f} s{after:>12}"
                    f"{row.wrong:>6} of {row.lines:<4}{'WRONG' if bad else ''}"
                )
                label = ""
            expected = SCENARIOS[name].status
            bad = status != expected
            wrong += bad
            print(f"{'':<42}exit status {status}{f', expected {expected}' if bad else ''}")
    print(f"{len(names)} scenarios, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
