"""The part of a workload that is about training: epochs and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vanidl.breakdown.stages import Phase
from vanidl.export.dlio.entries import ASSUMED, MEASURED, Entry
from vanidl.export.dlio.fetched import Fetched
from vanidl.formatting.units import plural
from vanidl.run import Run

_TRAIN, _SAVE, _MODEL = "train", "checkpoint", "model"
_READ_ONCE = 1.2
_WRITES_NOT_SEEN = "writes_not_seen"  # a warning of the recording


def epochs(run: Run, fetched: Fetched | None) -> Entry:
    """How often training goes through the dataset."""
    if fetched is not None:
        note = f"the loader {fetched.name} was gone through so often"
        return Entry(_TRAIN, "epochs", fetched.epochs, MEASURED, note)
    phases, data = run.phases, run.dataset
    if phases is not None and phases.epochs:
        return Entry(
            _TRAIN, "epochs", len(phases.epochs), MEASURED, f"by: {phases.epochs[0].evidence}"
        )
    if data is not None and data.reread_factor is not None and data.reread_factor < _READ_ONCE:
        return Entry(_TRAIN, "epochs", 1, MEASURED, "hardly any byte was read twice")
    why = phases.no_epochs if phases is not None else "no read of the dataset was recorded"
    return Entry(_TRAIN, "epochs", 1, ASSUMED, f"one, as {why or 'epochs are not known'}")


def saves_of(run: Run) -> tuple[Phase, ...]:
    """The checkpoints that were seen."""
    return run.phases.checkpoints if run.phases is not None else ()


def checkpoints(run: Run) -> Iterator[Entry]:
    """Whether, when and how much is saved."""
    saves = saves_of(run)
    if not saves:
        unseen = any(notice.code == _WRITES_NOT_SEEN for notice in run.coverage.warnings)
        why = ", but not every write was: see below" if unseen else ""
        note = f"no write of a checkpoint was seen{why}"
        yield Entry("workflow", "checkpoint", False, ASSUMED if unseen else MEASURED, note)
        return
    yield Entry("workflow", "checkpoint", True, MEASURED, f"{plural(len(saves), 'save')}")
    known = [save.bytes_written for save in saves if save.bytes_written is not None]
    sizes = f"{min(known):,} to {max(known):,}" if known else "unknown"
    size = round(sum(known) / len(known)) if known else 0
    note = f"mean bytes of a save ({sizes}); DLIO writes them as one tensor from rank 0"
    yield Entry(_MODEL, "model_size_bytes", size, MEASURED, note)
    yield Entry(_SAVE, "checkpoint_folder", "checkpoints/recorded", ASSUMED,
                "put it on the file system that the run wrote to")  # fmt: skip
    yield from _times(run, saves)


def _times(run: Run, saves: tuple[Phase, ...]) -> Iterator[Entry]:
    """Every so many epochs; or every so many steps, where an epoch has several."""
    found = run.phases.epochs if run.phases is not None else ()
    starts = np.array([epoch.start_s for epoch in found])
    number = np.searchsorted(starts, [save.start_s for save in saves], side="right")
    if len(found) and (np.diff(number) > 0).all():
        first = max(int(number[0]), 1)
        apart = round(float(np.median(np.diff(number)))) if len(number) > 1 else len(found)
        note = f"saves lie in epochs {', '.join(map(str, number[:8].tolist()))}"
        yield Entry(_SAVE, "checkpoint_after_epoch", first, MEASURED, note)
        yield Entry(_SAVE, "epochs_between_checkpoints", apart, MEASURED, "median of the same")
        return
    if run.steps is None or run.steps.table.undated_s is not None:
        yield Entry(_SAVE, "epochs_between_checkpoints", 1, ASSUMED,
                    "neither epochs nor steps tell when saves were made")  # fmt: skip
        return
    table = run.steps.table
    begun = np.sort(table.start_s[table.rank == table.rank[0]])
    steps = np.searchsorted(begun, [save.start_s for save in saves])
    apart = max(round(float(np.median(np.diff(steps, prepend=0)))), 1)
    yield Entry(_SAVE, "steps_between_checkpoints", apart, MEASURED, "median steps between saves")
