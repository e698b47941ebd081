"""A RUN that is being recorded: its files as they appear and grow. Nothing is written to it.

Clocks jump, and differ between hosts. So whatever is waited for here is measured by the monotonic
clock of this process: that a file has grown, that the recorder has touched its sign of life.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from vanidl.errors import InputError
from vanidl.formatting.from_logs import clean_path
from vanidl.formatting.names import elided
from vanidl.formatting.units import seconds
from vanidl.model.run_facts import Ending
from vanidl.readers.objects.operations import LiveOperations
from vanidl.readers.run_folder import RECORD_NAME as RUN_JSON
from vanidl.readers.run_folder import read_record
from vanidl.readers.steps.live import LiveJournal
from vanidl.record.alive import NAME as SIGN_OF_LIFE
from vanidl.record.alive import Life, Recorder, anyone_lives, look_at, read_recorder
from vanidl.record.free_space import STOP
from vanidl.record.steps import FOLDER
from vanidl.watch.resources import LiveMemory, ProcessReads
from vanidl.watch.state import (
    STALL_S,
    Condition,
    RankState,
    ReadState,
    RunState,
    State,
    Waited,
    WorkerState,
    judge_activity,
    judge_condition,
)

RECENT_S = 10.0
"""What "now" is: long against the second that a process gathers events for."""
GONE_S = 60.0
"""Without any sign of life from another host for so long, a run is taken for dead."""
_MOST_FILES = 20_000
_ROWS_A_LOOK = 1_000_000  # 32 MB: what one look reads at most
_MOST_IDLE = 16  # looks after which a file that does not grow is looked at again
_MOST_LOADERS = 20  # of a rank that are told apart
_MOST_PROBLEMS = 3

_Sample = tuple[float, int, int]  # time, steps or bytes, ns of wait


class Recent:
    """Counts over the last seconds."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()

    def add(self, now_s: float, number: int, wait_ns: int = 0) -> None:
        """Counts at that time."""
        if self._samples and number < self._samples[-1][1]:
            self._samples.clear()  # counted again
        self._samples.append((now_s, number, wait_ns))
        while len(self._samples) > 2 and now_s - self._samples[1][0] >= RECENT_S:
            self._samples.popleft()

    def per_s(self) -> tuple[float, float] | None:
        """Of both counts, the second in seconds; None until two times are known."""
        if len(self._samples) < 2:
            return None
        (begin, first, first_ns), (end, last, last_ns) = self._samples[0], self._samples[-1]
        if end <= begin:
            return None
        return (last - first) / (end - begin), (last_ns - first_ns) / 1e9 / (end - begin)


class _File:
    """One file of a run.

    That of a process that does not train is looked at less often once it does not grow.
    """

    def __init__(self, path: Path) -> None:
        self.recent = Recent()
        self.journal = LiveJournal(path) if path.suffix == ".steps" else None
        self.objects = None if self.journal else LiveOperations(path)
        self.problem = ""
        self.news_ns = 0  # when rows were last found, by the monotonic clock; 0: never
        self._first: tuple[int, float] | None = None  # the first news, and how old they were
        self._idle = self._wait = 0

    def read(self, most_rows: int, at_ns: int, *, ended: bool) -> int:
        """Reads what is new; how many rows of a journal."""
        if self.problem or (self._wait and not ended):
            self._wait -= 1
            return 0
        try:
            if self.objects is not None:
                self.objects.read()
                return 0
            rows = self.journal.read(most_rows, ended=ended) if self.journal else 0
        except InputError as error:
            self.problem = elided(str(error))
            return 0
        self.news_ns = at_ns if rows or not self.news_ns else self.news_ns
        # A file that has stood still for long is looked at less often, unless its process trains.
        self._idle = 0 if rows else min(self._idle + 1, _MOST_IDLE)
        trains = self.journal is not None and self.journal.totals.steps > 0
        self._wait = self._idle - 1 if self._idle > 4 and not trains else 0
        return rows

    def silent_s(self, end_ns: int, now_ns: int, at_ns: int) -> float:
        """Since the last event; how old the first news are is taken from the clocks of hosts."""
        if self._first is None:
            self._first = self.news_ns, max(now_ns - end_ns, 0) / 1e9
        older_s = self._first[1] if self.news_ns == self._first[0] else 0.0
        return older_s + (at_ns - self.news_ns) / 1e9


class WatchedRun:
    """The files of one RUN and what they say so far.

    Args:
        folder: the RUN, which need not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, _File] = {}
        self._reads = ProcessReads(folder / FOLDER)
        self._recent = {source: Recent() for source in ("calls", "storage", "objects")}
        self._memory = LiveMemory(folder)
        self._recorder: Recorder | None = None
        self._sign: tuple[int, int] = (0, 0)  # when the recorder wrote it, when that was found
        self._said = (-1, 0)  # the look of the recorder that it tells of, and when that was found
        self._state, self._state_ns = State.STARTING, 0  # since when it is in that
        self._trained_ns = 0  # when a process that trains was last there

    @property
    def is_there(self) -> bool:
        """Whether anything has been recorded, or is about to be."""
        return bool(self._files) or self._recorder is not None or self.has_ended

    @property
    def has_ended(self) -> bool:
        """Whether the recorder has written what it leaves at the end."""
        return (self.folder / RUN_JSON).is_file()

    def look(self, now_ns: int, monotonic_ns: int | None = None) -> RunState:
        """Reads what has been written until that time, and says what it is in all.

        Args:
            now_ns: time since the epoch.
            monotonic_ns: of the clock of that name; without, `now_ns` is one that does not jump.
        """
        ended, at_ns = self.has_ended, now_ns if monotonic_ns is None else monotonic_ns
        # The recorder counts its own looks: one that changed was alive since the last look,
        # whatever the clocks of the two hosts say.
        self._recorder = read_recorder(self.folder) or self._recorder
        if self._recorder is not None and self._recorder.looks != self._said[0]:
            self._said = self._recorder.looks, at_ns
        self._find_files()
        # So many rows a look: a journal that is far behind does not hold up the screen.
        left = _ROWS_A_LOOK
        for file in self._files.values():
            if left > 0 or ended:
                left -= file.read(max(left, 0), at_ns, ended=ended)
        journals = [file.journal for file in self._files.values() if file.journal]
        if not ended:
            self._reads.look(journal.process for journal in journals if journal.process)
        return RunState(
            name=elided(clean_path(self.folder.absolute().name)),
            condition=Condition(State.ENDED) if ended else self._judge_condition(at_ns),
            ranks=tuple(self._list_ranks(now_ns, at_ns, ended=ended)),
            workers=tuple(self._list_workers()),
            reads=tuple(self._list_reads(at_ns / 1e9, ended=ended)),
            journals=len(journals),
            problems=tuple(self._list_problems()),
            is_behind=left <= 0 and any(journal.is_behind for journal in journals),
            is_exact=all(journal.is_exact for journal in journals),
            memory=self._memory.look(at_ns / 1e9),
            ending=self._read_ending() if ended else None,
        )

    def _judge_condition(self, at_ns: int) -> Condition:
        """What the run does, and for how long."""
        lives, activities = {}, []
        for name, file in self._files.items():
            journal = file.journal
            if journal is None or not journal.process:
                continue
            if journal.has_ended and not journal.totals.steps:
                continue
            seen = look_at(journal.process, self.folder / FOLDER)
            if journal.has_ended:
                if seen and not seen.is_gone:
                    self._trained_ns = at_ns  # its own end may take long
                continue
            lives[name] = seen
            life = seen or self._find_relayed_life(journal.process)
            if journal.has_stopped and life is None:
                continue  # elsewhere, and nothing more will come
            if journal.totals.steps or journal.totals.by_loader:
                label = _label_process(journal)
                activities.append(judge_activity(label, journal, life, at_ns, file.news_ns))
        why = self._explain_death(at_ns, list(lives.values()))
        condition = Condition(State.DEAD, why=why) if why else judge_condition(activities)
        if condition.state is not State.STARTING:
            self._trained_ns = at_ns
        elif self._trained_ns and at_ns - self._trained_ns < STALL_S * 1e9:
            condition = Condition(State.TRAINING, why="at its end")
        if condition.state is not self._state or not self._state_ns:
            self._state, self._state_ns = condition.state, at_ns
        if condition.state in (State.WAITING, State.STALLED):
            return condition
        return replace(condition, for_s=(at_ns - self._state_ns) / 1e9)

    def _find_relayed_life(self, process: Mapping[str, Any]) -> Life | None:
        """What the recorder, which is beside a process, has said of it; None where it has not."""
        recorder, pid = self._recorder, process.get("pid")
        if recorder is None or process.get("host") != recorder.host or type(pid) is not int:
            return None
        life = recorder.lives.get(pid)
        return life and life.aged(self._said[1])

    def _explain_death(self, at_ns: int, lives: Sequence[Life | None]) -> str:
        """Why the run is taken for dead, "" where it is not.

        Args:
            at_ns: of the monotonic clock.
            lives: of the processes that have not said that they end; None of one elsewhere.
        """
        recorder = self._recorder
        if any(life and not life.is_gone for life in lives):
            return ""
        # On this host the recorder can be looked at; once it is gone, processes may still run.
        if recorder is not None and recorder.is_here:
            if recorder.is_alive or self.has_ended or anyone_lives(self.folder):
                return ""
            if all(lives) or self._measure_silence_s(at_ns) >= GONE_S:
                return f"no process of it lives, and its recorder {recorder.pid} is gone"
            return ""
        # Without a recorder, or with one on another host, only silence tells.
        if recorder is None and lives and all(lives) and self._measure_silence_s(at_ns) >= STALL_S:
            return "no process of it lives, and it has no recorder"
        if recorder is not None and self._measure_silence_s(at_ns) >= GONE_S:
            return (
                f"no sign of life for {seconds(self._measure_silence_s(at_ns))}, from another host"
            )
        return ""

    def _measure_silence_s(self, at_ns: int) -> float:
        """Since anything of the run was seen to change."""
        with suppress(OSError):
            touched = (self.folder / SIGN_OF_LIFE).stat().st_mtime_ns
            if touched != self._sign[0]:
                self._sign = touched, at_ns
        latest = max(file.news_ns for file in self._files.values()) if self._files else 0
        return (at_ns - max(latest, self._sign[1])) / 1e9

    def _read_ending(self) -> Ending | None:
        """How the command ended; None where the recorder's record cannot be read."""
        try:
            return read_record(self.folder / RUN_JSON).ending
        except InputError:
            return None

    def _find_files(self) -> None:
        for folder in (self.folder / FOLDER, self.folder):
            try:
                names = sorted(os.listdir(folder))  # noqa: PTH208 - every second
            except OSError:
                continue
            for name in names:
                known = name in self._files or len(self._files) >= _MOST_FILES
                if name.endswith((".steps", ".objects")) and not known:
                    self._files[name] = _File(folder / name)

    def _list_problems(self) -> Iterator[str]:
        if (self.folder / FOLDER / STOP).exists():
            yield "recording was stopped, as the disk of RUN is about to be full"
        problems = [file.problem for file in self._files.values() if file.problem]
        yield from problems[:_MOST_PROBLEMS]

    def _list_ranks(self, now_ns: int, at_ns: int, *, ended: bool) -> Iterator[RankState]:
        rows = [file for file in self._files.values() if file.journal and file.journal.process]
        for file in sorted(rows, key=lambda file: _get_sort_key(file.journal)):
            journal = file.journal
            # A process that neither trains nor waits is no rank.
            if journal is None or not (journal.totals.steps or journal.totals.by_loader):
                continue
            totals = journal.totals
            file.recent.add(at_ns / 1e9, totals.steps, totals.wait_ns)
            now = None if ended else file.recent.per_s()
            loaders = sorted(totals.by_loader.items())[:_MOST_LOADERS]
            yield RankState(
                label=_label_process(journal),
                steps=totals.steps,
                steps_s=totals.step_ns / 1e9,
                wait_s=(totals.step_wait_ns if totals.steps else totals.wait_ns) / 1e9,
                window_s=totals.window_ns / 1e9,
                silent_s=file.silent_s(totals.end_ns, now_ns, at_ns),
                now_steps_per_s=now[0] if now else None,
                now_wait_share=min(now[1], 1.0) if now else None,
                loaders=tuple(Waited(journal.name(k), n, ns / 1e9) for k, (n, ns) in loaders),
                validation_steps=totals.other_steps,
            )

    def _list_workers(self) -> Iterator[WorkerState]:
        for file in self._files.values():
            journal = file.journal
            if journal and journal.process and journal.fetched.batches:
                trains = journal.totals.steps or journal.totals.by_loader
                pid = journal.process.get("pid")
                label = f"{_label_process(journal)} itself" if trains else f"worker {pid}"
                fetched = journal.fetched
                yield WorkerState(elided(label), fetched.batches, fetched.ns / 1e9)

    def _list_reads(self, now_s: float, *, ended: bool) -> Iterator[ReadState]:
        objects = [file.objects for file in self._files.values() if file.objects]
        known: dict[str, int] = {}
        if self._reads.processes:
            known |= {"calls": self._reads.called, "storage": self._reads.stored}
        if objects:
            known["objects"] = sum(each.nbytes for each in objects)
        for source, nbytes in known.items():
            self._recent[source].add(now_s, nbytes)
            per_s = None if ended else self._recent[source].per_s()
            yield ReadState(source, nbytes, per_s[0] if per_s else None)


def _get_sort_key(journal: LiveJournal | None) -> tuple[int, str]:
    process = (journal.process if journal else None) or {}
    rank = process.get("rank")
    return (rank if type(rank) is int else -1), journal.path.name if journal else ""


def _label_process(journal: LiveJournal) -> str:
    process = journal.process or {}
    rank, pid = process.get("rank"), process.get("pid")
    return f"rank {rank}" if type(rank) is int else elided(f"process {pid}")
