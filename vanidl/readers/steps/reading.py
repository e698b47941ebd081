"""What the hooks of `vanidl record` left of a run: its journals, and notes of hooks that failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from vanidl.encoding.budget import read_whole
from vanidl.errors import InputError
from vanidl.formatting.units import plural, seconds
from vanidl.model.trace import INFERENCE, UNSURE
from vanidl.model.warnings import Notice
from vanidl.readers.format import Reading, Records, unused
from vanidl.readers.records import ProfileTrace
from vanidl.readers.steps.fetches import fetch_table, processes_of, workers_of
from vanidl.readers.steps.journal import (
    OPTIMIZER,
    OTHER_STEP,
    STEP,
    WAIT,
    Journal,
    read_journal,
)
from vanidl.readers.steps.lines import read_sources, sampled_parts
from vanidl.readers.steps.loaders import SKIPPED
from vanidl.readers.steps.loop import other_loops, profile
from vanidl.readers.steps.passes import told_apart
from vanidl.readers.steps.ranks import silent_ranks
from vanidl.readers.steps.unseen import notices

_MOST_REASON = 4000  # characters of a file
_MOST_FAILURES = 8
_MOST_LOOPS = 4  # of other threads, that are told of


def read(
    steps: Sequence[Path], failures: Sequence[Path], sources: Sequence[Path], reading: Reading
) -> Records:
    """What journals say, with the source of their lines, and notes of hooks that failed."""
    journals = reading.each("recorded steps", read_journal, steps)
    ceilings = tuple(_ceiling_run(journal) for journal in journals if journal.replayed)
    journals = [journal for journal in journals if not journal.replayed]
    journals = [told_apart(journal) for journal in journals]
    workers = workers_of(journals)
    kept = reading.each("source lines", read_sources, sources)
    texts = {place: text for each in kept for place, text in each.items()}
    profiles = [
        replace(
            profile(journal),
            fetches=fetch_table(journal, workers),
            lines=sampled_parts(processes_of(journal, workers), texts),
        )
        for journal in journals
    ]
    failed = reading.each("recorded steps", _failures, failures)
    said = [notice for each in failed for notice in each]
    for journal, each in zip(journals, profiles, strict=True):
        said += [*_profiled(journal), *_marked(journal), *_loops(journal, each)]
        if len(each.start_ns) and not journal.ended:
            said.append(_cut(journal))
        if not len(each.start_ns):
            said += unused(journal.path, journal.losses)
    heard = tuple(each for each in profiles if len(each.start_ns))
    said += silent_ranks(heard)
    return Records(
        profiles=heard,
        notices=(*said, *notices(journals), *ceilings),
    )


def _cut(journal: Journal) -> Notice:
    return Notice(
        "steps_cut",
        f"{journal.path}: expected a mark where the recording ends, found none: the process was "
        "killed, left by os._exit or is still running. Its last second of steps and waits, at "
        "most, is missing.",
    )


def _ceiling_run(journal: Journal) -> Notice:
    return Notice(
        "ceiling_run",
        f"{journal.path}: expected steps of training, found those of vanidl ceiling, whose "
        "batches came from memory; they are in no number.",
        "info",
    )


def _profiled(journal: Journal) -> Iterator[Notice]:
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


def _marked(journal: Journal) -> Iterator[Notice]:
    """What a process marked itself."""
    kind = journal.events.kind
    steps, others, found = (int((kind == each).sum()) for each in (STEP, OTHER_STEP, OPTIMIZER))
    if steps:
        beside = f"; {plural(found, 'step')} of optimizers beside them are not counted"
        yield Notice(
            "steps_marked",
            f"{journal.path}: its steps are those that the program marks with vanidl.step(): "
            f"{plural(steps, 'training step')}, {plural(others, 'other')}"
            f"{beside if found else ''}.",
            "info",
        )


def _loops(journal: Journal, found: ProfileTrace) -> Iterator[Notice]:
    """What of a process's loops is in no number, or is not what it looks like."""
    settles = "vanidl record --train MODULE:FUNCTION, or vanidl.step() in the program, settles it"
    if others := other_loops(journal):
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


def _failures(path: Path) -> tuple[Notice, ...]:
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
