"""`record`: a command in, a RUN folder out."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from vanidl.errors import UsageError, VanidlError
from vanidl.model.run_facts import Ending
from vanidl.parallel.children import interpreter_command
from vanidl.readers.run_folder import NO_TRACER, RECORD_NAME, RunRecord, write_record
from vanidl.record import darshan, dftracer, processes, steps
from vanidl.record import tracer as own
from vanidl.record.alive import sign_of_life
from vanidl.record.free_space import FLOOR_NBYTES, FreeSpace
from vanidl.record.launch import Ended, pass_signals_on, run
from vanidl.record.memory import MemoryLooks, count_memory_kills
from vanidl.record.processes import Watch
from vanidl.record.recorder import AUTO, ENDED, TRACERS, Recorder, Tracer
from vanidl.record.run_record import describe_run, keep_source_lines, take_last_error
from vanidl.record.spool import Spool
from vanidl.record.states import Sampler, sampling
from vanidl.record.steps import Replay
from vanidl.schema.dataclass import dataclass


def no_tracer(why: str = " (--tracer none)") -> Tracer:
    """No system tracer: steps, input waits and object storage alone. No process lacks its log."""
    remark = f"I/O through files (POSIX, STDIO, MPI-IO) was not recorded{why}."
    return Tracer(NO_TRACER, "", {}, lambda pids: dict.fromkeys(pids, ENDED), (remark,))


RECORDERS = (
    own.RECORDER,
    darshan.RECORDER,
    dftracer.RECORDER,
)
"""Every tracer. `auto` takes the first that is here of those that a program does not notice."""
_NO_RECORDER = Recorder(NO_TRACER, is_here=lambda _: True, prepare=lambda *_: no_tracer())

FOLDER_VARIABLE = "VANIDL_RUN"
"""The command finds the RUN folder here, to put profiler output into it."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded run: where it is, how it ended, and what was seen of it."""

    folder: Path
    exit_status: int  # 128 + N where signal N ended the command
    tracer: str
    cpu_s: float  # of the command and all descendants that it waited for
    run: RunRecord  # as in run.json
    problem: str = ""  # why there is no run.json
    unheard: tuple[str, ...] = ()  # what may be missing of processes, and why; in the record, too

    @property
    def ending(self) -> Ending:
        """How the command ended, and what is known of why."""
        return self.run.ending


def record(
    command: Sequence[str],
    folder: str | Path,
    *,
    tracer: str = "auto",
    darshan_lib: str | None = None,
    events: int | None = None,
    with_steps: bool = True,
    waits: Sequence[str] = (),
    trains: Sequence[str] = (),
    profile_steps: int | None = None,
    replay: Replay | None = None,
    keep_free_nbytes: int = FLOOR_NBYTES,
    in_place: bool = False,
    calls_on: str | Path | None = None,
    tell: Callable[[str], None] | None = None,
) -> Recorded:
    """Runs a command under a tracer; `folder`, which must be new or empty, is a RUN then.

    `auto` takes vanidl's own tracer, where that was not compiled Darshan, where there is none
    either no tracer; with `darshan_lib` it takes Darshan. Of each process `events` calls are
    recorded one by one, by vanidl's own tracer, in a folder of `calls_on` until the command ends.
    Steps and input waits of its Python processes are recorded unless `with_steps` is False; `waits`
    names iterators to wait for beside those that are known, as `MODULE:NAME`. With `profile_steps`
    PyTorch's profiler is switched on for so many of them, in the processes that train. With
    `replay` batches come from memory after a warm-up:
    the run is no training, and its record says so. Where the disk of RUN
    has less than `keep_free_nbytes` free, recording stops, and the record says so. A RUN on a FUSE
    file system is recorded elsewhere and moved there in the end, unless `in_place`. `tell` gets,
    before the command starts, a sentence on what the tracer can do to it, if there is one.

    Raises:
        UsageError: no command, an unknown tracer, a folder in use, a name that is none, steps to
            profile without steps.
        InputError: the tracer is not here.
        CommandError: the command cannot be started.
        VanidlError: the storage of `folder` does not answer.
    """
    # Where it is recorded, and by what: whatever is refused from here on leaves no folder.
    _refuse_misuse(command, profile_steps, events, with_steps=with_steps)
    whole = Path(os.path.abspath(folder))  # noqa: PTH100 - resolving would look it up
    spool = Spool.of(whole, command, in_place=in_place)
    root = spool.folder
    with _without_traces(spool.drop):
        chosen = _choose_tracer(tracer, root, darshan_lib, calls_on)
    if events is not None:
        chosen = replace(chosen, environment={**chosen.environment, own.EVENTS: str(events)})
    with _without_traces(spool.drop, chosen.drop):
        more = (
            steps.make_environment(root, waits, profile_steps, replay, trains) if with_steps else {}
        )

    # What looks at the run from outside.
    journals = root / steps.FOLDER if with_steps else None
    memory = MemoryLooks(root)
    space = FreeSpace(root, keep_free_nbytes, journals, chosen.stop)
    if space.first_look():
        chosen.drop()
        chosen = no_tracer()
        memory.stop()
    if chosen.harm and tell is not None:
        tell(chosen.harm)
    used = next((one for one in RECORDERS if one.name == chosen.name), None)
    call_ns = None if used is None else time_call_ns(used, darshan_lib)
    environment = _merge_environment(chosen, root, more)

    with (
        sampling(root, wanted=with_steps and not space.stopped_ns) as sampler,
        pass_signals_on() as signals,
        sign_of_life(root, lambda: _look(space, sampler, memory)),
    ):
        # The command, from its start to its end.
        killed_before = count_memory_kills()
        with _without_traces(spool.drop, chosen.drop):
            ended = run(command, environment, signals, lambda w: _sample(w, sampler, memory))
        memory.close()

        # What is known of it: from the tracer's logs, from what its processes left or did not.
        if journals is not None:
            keep_source_lines(journals, ended.start_ns)
        missing = [] if sampler is None or not sampler.remark else [sampler.remark]
        said = _explain_missing(ended, environment, root) if with_steps else []
        said += steps.explain_names_not_found(root, waits, trains) if with_steps else []
        said += processes.explain_still_running(FOLDER_VARIABLE, str(root))
        result = _run_record(command, chosen, ended)
        result = replace(
            result,
            ceiling=replay is not None,
            memory_kills=_count_new_kills(killed_before, count_memory_kills()),
            last_error=take_last_error(root / steps.FOLDER),
            stopped=space.remark(ended.start_ns, chosen.goes_on),
            tracer_call_ns=call_ns,
            losses=(*result.losses, *missing, *said),
        )
        problem = _keep_record(root / RECORD_NAME, result)

    # RUN, where that is not where it was recorded.
    not_moved = spool.hand_over()
    without = chosen.remarks if tracer == AUTO and chosen.name == NO_TRACER else ()
    return Recorded(
        folder=root if not_moved else spool.run,
        exit_status=ended.exit_status,
        tracer=chosen.name,
        cpu_s=ended.cpu_s,
        run=result,
        problem=not_moved or problem,
        unheard=(*filter(None, [result.stopped]), *said, *without),
    )


def _look(space: FreeSpace, sampler: Sampler | None, memory: MemoryLooks) -> None:
    """Looks at the space of RUN, and stops what is not stopped by it."""
    if space.look():
        memory.stop()
        if sampler is not None:
            sampler.stop()


def _sample(watch: Watch, sampler: Sampler | None, memory: MemoryLooks) -> None:
    """Has the processes sampled that were seen, and their memory looked at."""
    memory.look(watch.seen.values())
    if sampler is not None:
        sampler.add(watch.seen.values())


def _run_record(command: Sequence[str], tracer: Tracer, ended: Ended) -> RunRecord:
    """The record of the command, whatever has become of the storage that holds what it left."""
    try:
        return describe_run(command, tracer, ended)
    except OSError as error:
        loss = (
            f"RUN could not be looked at once the command had ended ({error.strerror or error}): "
            "which processes left no log is not known."
        )
        blind = replace(
            tracer,
            found=lambda pids: dict.fromkeys(pids, ENDED),
            remarks=(*tracer.remarks, loss),
        )
        return describe_run(command, blind, ended)


def _count_new_kills(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(after - before, 0)


def _explain_missing(ended: Ended, environment: Mapping[str, str], root: Path) -> list[str]:
    """Why steps of some processes may be missing."""
    seen = ended.watch.seen
    sentences = list(processes.explain_missing_steps(seen, environment))
    with suppress(OSError):  # what that means the record says
        sentences += processes.explain_tasks_elsewhere(seen, root / steps.FOLDER)
    return sentences


def _refuse_misuse(
    command: Sequence[str], profile_steps: int | None, events: int | None, *, with_steps: bool
) -> None:
    if not command:
        raise UsageError("record: expected a command after --, found none.")
    if events is not None and events < 1:
        raise UsageError(f"record: expected at least one call to record, found --events {events}.")
    if profile_steps is not None and (profile_steps < 1 or not with_steps):
        raise UsageError(
            f"record: expected at least one step to profile, and steps recorded, found "
            f"--profile {profile_steps}{'' if with_steps else ' with --no-steps'}."
        )


def _keep_record(path: Path, result: RunRecord) -> str:
    """Writes the record; why that failed, "" where it did not: the command has run by then."""
    try:
        write_record(path, result)
    except VanidlError as error:
        return str(error)
    return ""


@contextmanager
def _without_traces(*drops: Callable[[], None]) -> Iterator[None]:
    """Where the command does not start, nothing stays of what was made for it."""
    try:
        yield
    except VanidlError:
        for drop in drops:
            drop()
        raise


def _choose_tracer(
    name: str, root: Path, darshan_lib: str | None, calls_on: str | Path | None
) -> Tracer:
    if name not in TRACERS:
        raise UsageError(f"--tracer {name}: expected one of {', '.join(TRACERS)}.")
    chosen: Recorder | None
    if name == AUTO:
        ours = (own.RECORDER,) if darshan_lib is None else ()
        candidates = (*ours, darshan.RECORDER)
        chosen = next((recorder for recorder in candidates if recorder.is_here(darshan_lib)), None)
    else:
        chosen = next(one for one in (*RECORDERS, _NO_RECORDER) if one.name == name)
        if darshan_lib is not None and not chosen.takes_library:
            raise UsageError(f"--darshan-lib {darshan_lib}: makes no sense with --tracer {name}.")
    # Only vanidl's own can write elsewhere first.
    if calls_on is not None:
        if chosen is not own.RECORDER:
            used = chosen.name if chosen else NO_TRACER
            raise UsageError(f"--calls-on {calls_on}: makes no sense with --tracer {used}.")
        return own.make_tracer(root, Path(calls_on))
    if chosen is None:
        why = "vanidl's own was not compiled when it was installed, and no libdarshan.so was found"
        return no_tracer(f": {why}")
    return chosen.prepare(root, darshan_lib)


def _merge_environment(tracer: Tracer, root: Path, more: Mapping[str, str]) -> Mapping[str, str]:
    changed = {**os.environ, **tracer.environment, **more, FOLDER_VARIABLE: str(root)}
    return {key: value for key, value in changed.items() if value is not None}


# What a call costs more under a tracer, timed before a command starts.

_READS = """
import os, time
file, best = os.open({path!r}, os.O_RDONLY), 1e12
for _ in range(15):
    began = time.perf_counter_ns()
    for _ in range(2000): os.pread(file, 1, 0)
    best = min(best, (time.perf_counter_ns() - began) / 2000)
print(best)
"""
_PROBE_S = 20  # at most, before nothing is known


def time_call_ns(recorder: Recorder, library: str | None = None) -> float | None:
    """What a call costs more under a tracer than without; None where that cannot be told.

    Reads of a byte of a file of their own, the fastest of 15 x 2,000, in a process each: so many
    that room for what is recorded is made among them. What the tracer writes of them goes.
    """
    took_ns: list[float] = []
    with suppress(OSError, ValueError, VanidlError, subprocess.SubprocessError):
        with tempfile.TemporaryDirectory(prefix="vanidl-probe-") as place:
            data = Path(place) / "data"
            data.write_bytes(b"\0" * 4096)
            tracer = recorder.prepare(Path(place) / "run", library)
            command = interpreter_command(f"exec({_READS.format(path=str(data))!r})")
            # Without the tracer, then with it.
            for added in ({}, tracer.environment):
                changed = {**os.environ, **added}
                done = subprocess.run(
                    command,
                    env={name: value for name, value in changed.items() if value is not None},
                    stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=_PROBE_S,
                )  # fmt: skip
                took_ns.append(float(done.stdout))
        return max(took_ns[1] - took_ns[0], 0.0)
    return None
