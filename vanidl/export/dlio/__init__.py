"""A run as a workload of DLIO, the benchmark of storage: `--to dlio -o workload.yaml`.

Each value is measured, given by the user, or a named default; what is not known and matters must
be set before DLIO runs. Keys are those of DLIO 2.0.0 and of its main branch of June 2026.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from vanidl.export.dlio import dataset, head, reader, training
from vanidl.export.dlio.computation import computation
from vanidl.export.dlio.dataset import DataFacts
from vanidl.export.dlio.entries import ASSUMED, GIVEN, MEASURED, UNKNOWN, Entry, rendered
from vanidl.export.dlio.fetched import Fetched, fetched
from vanidl.files.atomic import write_whole
from vanidl.formatting.units import plural
from vanidl.run import Run


def write(run: Run, path: Path) -> list[tuple[str, str]]:
    """Writes the workload; how many values are of which source."""
    loader = fetched(run.trace)
    facts = dataset.data_facts(run, loader)
    found = _entries(run, loader, facts)
    unset = [f"{e.section}.{e.key}" for e in found if e.source == UNKNOWN]
    text = rendered(head.lines(run, loader, facts, unset), found, _footer(run))
    write_whole(path, text.encode(), "the workload")
    count = Counter(entry.source for entry in found)
    rows = [(MEASURED, plural(count[MEASURED], "value"))]
    rows += [(word, plural(count[word], "value")) for word in (GIVEN, ASSUMED) if count[word]]
    return [*rows, ("to be set", ", ".join(unset))] if unset else rows


def workload(run: Run) -> tuple[Entry, ...]:
    """Every key, section by section, with its value and where that is from."""
    loader = fetched(run.trace)
    return _entries(run, loader, dataset.data_facts(run, loader))


def _entries(run: Run, loader: Fetched | None, facts: DataFacts) -> tuple[Entry, ...]:
    framework, data_loader = reader.framework(run, loader)
    saves = list(training.checkpoints(run))
    rows = [
        Entry("model", "name", "recorded", ASSUMED, "a name, nothing more"),
        *(entry for entry in saves if entry.section == "model"),
        framework,
        Entry("workflow", "generate_data", False, ASSUMED, "generate once, then train"),
        Entry("workflow", "train", True, ASSUMED, "the same"),
        *(entry for entry in saves if entry.section == "workflow"),
        *dataset.entries(run, facts),
        data_loader,
        *reader.entries(run, loader, facts),
        training.epochs(run, loader),
        *computation(run),
        *(entry for entry in saves if entry.section == "checkpoint"),
    ]
    return tuple(rows)


def _footer(run: Run) -> Iterator[str]:
    yield (
        "Not recorded, and left at DLIO's defaults: pin_memory, odirect, seeds, compression, sizes "
        "of samples once decoded (record_length_bytes_resize), fsync of checkpoints, evaluation."
    )
    for notice in run.coverage.warnings:
        yield f"The recording says ({notice.code}): {notice.message}"
