"""What the hooks of `vanidl record` left of a run: its journals, and notes of hooks that failed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

import numpy as np

from vanidl.encoding.budget import bounded_name, read_whole
from vanidl.errors import InputError
from vanidl.formatting.units import count as counted
from vanidl.formatting.units import nbytes, plural, seconds
from vanidl.model.trace import INFERENCE, UNSURE
from vanidl.model.warnings import WARNING, Notice
from vanidl.readers.format import Reading, Records, warn_of_unused
from vanidl.readers.records import ProfileTrace
from vanidl.readers.steps.fetches import build_fetch_table, find_workers, list_processes
from vanidl.readers.steps.journal import OPTIMIZER, OTHER_STEP, STEP, WAIT, Journal, read_journal
from vanidl.readers.steps.lines import build_sampled_parts, read_sources
from vanidl.readers.steps.loop import build_profile, find_other_loops
from vanidl.readers.steps.spans import SKIPPED
from vanidl.readers.steps.windows import split_passes

# Ranks of which nothing is there: how many there were, the launcher had told the others.

_MOST_RANKS_NAMED = 4


def read_steps(
    steps: Sequence[Path], failures: Sequence[Path], sources: Sequence[Path], reading: Reading
) -> Records:
    """What journals say, with the source of their lines, and notes of hooks that failed."""
    journals = reading.each("recorded steps", read_journal, steps)
    ceilings = tuple(_note_ceiling_run(journal) for journal in journals if journal.replayed)
    journals = [journal for journal in journals if not journal.replayed]
    journals = [split_passes(journal) for journal in journals]

    # Fetches and sampled lines of workers belong to the process that trains.
    workers = find_workers(journals)
    kept = reading.each("source lines", read_sources, sources)
    texts = {place: text for each in kept for place, text in each.items()}
    profiles = [
        replace(
            build_profile(journal),
            fetches=build_fetch_table(journal, workers),
            lines=build_sampled_parts(list_processes(journal, workers), texts),
        )
        for journal in journals
    ]

    # What is to be said of each, and of all.
    failed = reading.each("recorded steps", _read_failures, failures)
    notices = [notice for each in failed for notice in each]
    for journal, each in zip(journals, profiles, strict=True):
        notices += [
            *_note_profiled(journal),
            *_note_marked_steps(journal),
            *_warn_of_loops(journal, each),
        ]
        if len(each.start_ns) and not journal.ended:
            notices.append(_warn_of_cut(journal))
        if not len(each.start_ns):
            notices += warn_of_unused(journal.path, journal.losses)
    heard = tuple(each for each in profiles if len(each.start_ns))
    notices += warn_of_silent_ranks(heard)
    return Records(
        profiles=heard,
        notices=(*notices, *warn_of_unseen_files(journals), *ceilings),
    )


_MOST_REASON = 4000  # characters of a file


_MOST_FAILURES = 8


_MOST_LOOPS = 4  # of other threads, that are told of


def warn_of_silent_ranks(profiles: Sequence[ProfileTrace]) -> Iterator[Notice]:
    """A notice for each launch of which some ranks recorded steps and others did not.

    A rank writes what it gathered every second: one that was killed before leaves no event.
    Of ranks that do not know their number nothing is said.
    """
    launches: dict[int, set[int | None]] = defaultdict(set)
    for each in profiles:
        launches[each.world_size or 1].add(each.rank)
    for size, found in sorted(launches.items()):
        ranks = {rank for rank in found if rank is not None and rank < size}
        # Where a rank does not know its number, nobody knows which is silent.
        if len(ranks) == len(found) < size:
            missing = size - len(ranks)
            silent = (rank for rank in count() if rank not in ranks)
            named = [*islice(silent, min(missing, _MOST_RANKS_NAMED))]
            words = ", ".join(map(counted, named))
            more = f" and {counted(missing - len(named))} more" if missing > len(named) else ""
            yield Notice(
                "ranks_silent",
                f"Expected recorded steps of {counted(size)} ranks, found those of "
                f"{counted(len(ranks))}: rank{'s' if missing > 1 else ''} {words}{more} of "
                f"{counted(size)} left none, and every number is of the others. Such a rank was "
                "killed within a second of its first step, runs without the recorder, has no loop, "
                "or wrote into another RUN.",
            )


# Files that the program mapped into memory or loaded past every tracer, as warnings.

_MOST_FILES_NAMED = 3
_MATTERS_NBYTES = 1 << 20
_LARGEST_NBYTES = 1 << 60


def warn_of_unseen_files(journals: Sequence[Journal]) -> Iterator[Notice]:
    """One for each way to read a file past the tracers."""
    if sizes := _get_sizes(journals, "mapped"):
        total = sum(sizes.values())
        yield Notice(
            "files_mapped",
            f"{_count_files(sizes)} mapped into memory, as np.memmap, mmap, Arrow and safetensors "
            "do. What was read of them are page faults, which no tracer sees: these bytes are in "
            f"no number here, and waiting for them looks like decoding ({_name_largest(sizes)}).",
            WARNING if total >= _MATTERS_NBYTES else "info",
        )
    if sizes := _get_sizes(journals, "loaded"):
        yield Notice(
            "files_loaded",
            f"{_count_files(sizes)} read by np.load. Darshan before 3.5 and DFTracer do not see "
            "its reads, which are made inside the C library: where they are in no number here, "
            f"waiting for them looks like decoding ({_name_largest(sizes)}).",
            "info",
        )


def _count_files(sizes: Mapping[str, int]) -> str:
    """`2 files of 8 MiB in all were`."""
    verb = "was" if len(sizes) == 1 else "were"
    return f"{plural(len(sizes), 'file')} of {nbytes(sum(sizes.values()))} in all {verb}"


def _name_largest(sizes: Mapping[str, int]) -> str:
    """The largest, with their sizes."""
    largest = sorted(sizes, key=lambda path: (-sizes[path], path))[:_MOST_FILES_NAMED]
    more = ", ..." if len(sizes) > _MOST_FILES_NAMED else ""
    return ", ".join(f"{path}: {nbytes(sizes[path])}" for path in largest) + more


def _get_sizes(journals: Sequence[Journal], way: str) -> dict[str, int]:
    """The files and how large they are, each once whatever many processes read it."""
    sizes: dict[str, int] = {}
    for journal in journals:
        for text in journal.unseen:
            path, size = text.get("path"), text.get("size")
            if text["unseen"] != way or not isinstance(path, str) or type(size) is not int:
                continue
            if 0 <= size < _LARGEST_NBYTES:
                sizes[bounded_name(path)] = size
    return sizes


def _warn_of_cut(journal: Journal) -> Notice:
    return Notice(
        "steps_cut",
        f"{journal.path}: expected a mark where the recording ends, found none: the process was "
        "killed, left by os._exit or is still running. Its last second of steps and waits, at "
        "most, is missing.",
    )


def _note_ceiling_run(journal: Journal) -> Notice:
    return Notice(
        "ceiling_run",
        f"{journal.path}: expected steps of training, found those of vanidl ceiling, whose "
        "batches came from memory; they are in no number.",
        "info",
    )


def _note_profiled(journal: Journal) -> Iterator[Notice]:
    """What became of `vanidl record --profile` in a process."""
    windows = [
        f"{plural(text['steps'], 'step')} from number {text['first']} on"
        for text in journal.profiled
        if text["profile"] == "steps" and type(text.get("steps")) is type(text.get("first")) is int
    ]
    if windows:
        yield Notice(
            "steps_profiled",
            f"{journal.path}: PyTorch's profiler was on for {' and '.join(windows)} (--profile). "
            "It slows these steps, and writing its trace the one after them.",
            "info",
        )
    if any(text["profile"] == "own" for text in journal.profiled):
        yield Notice(
            "profile_gave_way",
            f"{journal.path}: the program runs a profiler of its own, so --profile switched none "
            "on.",
            "info",
        )


def _note_marked_steps(journal: Journal) -> Iterator[Notice]:
    """What a process marked itself."""
    kind = journal.events.kind
    steps, others, optimizer_steps = (
        int((kind == each).sum()) for each in (STEP, OTHER_STEP, OPTIMIZER)
    )
    if steps:
        beside = f"; {plural(optimizer_steps, 'step')} of optimizers beside them are not counted"
        yield Notice(
            "steps_marked",
            f"{journal.path}: its steps are those that the program marks with vanidl.step(): "
            f"{plural(steps, 'training step')}, {plural(others, 'other')}"
            f"{beside if optimizer_steps else ''}.",
            "info",
        )


def _warn_of_loops(journal: Journal, found: ProfileTrace) -> Iterator[Notice]:
    """What of a process's loops is in no number, or is not what it looks like."""
    settles = "vanidl record --train MODULE:FUNCTION, or vanidl.step() in the program, settles it"
    if others := find_other_loops(journal):
        steps = plural(sum(other.steps for other in others), "step")
        each = "; ".join(
            f"{plural(other.steps, 'step')} in {seconds(other.took_ns / 1e9)}, of which it waited "
            f"{seconds(other.waited_ns / 1e9)} for input"
            for other in others[:_MOST_LOOPS]
        )
        yield Notice(
            "loops_in_threads",
            f"{journal.path}: expected one thread that trains, found {len(others) + 1}. The "
            f"numbers are those of the thread with most steps; {steps} of "
            f"{plural(len(others), 'other thread')}, and the batches they took, are in none: "
            f"{each}{'; and more' if len(others) > _MOST_LOOPS else ''}.",
        )
    if found.purpose == INFERENCE:
        yield Notice(
            "no_gradient",
            f"{journal.path}: expected steps of training, found batches for which no gradient was "
            f"computed and no optimizer made a step: they are taken for inference. If they train, "
            f"{settles}.",
            "info",
        )
    if found.purpose == UNSURE:
        yield Notice(
            "training_unsure",
            f"{journal.path}: expected steps of training, found batches of a program that computes "
            "with no library whose gradients are recorded (PyTorch, JAX, TensorFlow). Each counts "
            f"as a step; {settles}.",
        )
    skipped = [k for k, loader in journal.loaders.items() if loader.get("role") == SKIPPED]
    waits = journal.events.loader[journal.events.kind == WAIT]
    if left := int(np.isin(waits, skipped).sum()):
        yield Notice(
            "batches_skipped",
            f"{journal.path}: {plural(left, 'batch', 'batches')} of the loader that trains were "
            "taken without a step, as a run does that is resumed, or that looks at its data first. "
            "They are in a window of their own (skipped), and in no step.",
            "info",
        )


def _read_failures(path: Path) -> tuple[Notice, ...]:
    """What a process left whose recording of something ended with an error: one a line."""
    try:
        text = read_whole(path)[:_MOST_REASON].decode(errors="replace")
    except OSError as error:
        raise InputError(f"{path}: permission denied or missing ({error.strerror})") from error
    return tuple(
        Notice(
            "steps_incomplete",
            f"{path}: recording ended in this process because of an error ({why}); the program "
            "went on. What that hook records is missing from then on.",
        )
        for why in text.splitlines()[:_MOST_FAILURES]
    )
