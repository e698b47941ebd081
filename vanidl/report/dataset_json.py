"""Dataset, phases and throughput in the JSON contract."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from vanidl.analyses import Results
from vanidl.analyses.dataset import Dataset
from vanidl.analyses.phases import Phase, Phases
from vanidl.model.trace import Trace

MOST_FILES = 1000

Object = dict[str, Any]


def dataset_object(data: Dataset | None) -> Object:
    """`io.dataset`; all null or empty where no dataset file was read."""
    if data is None:
        return {"unique_bytes": None, "reread_factor": None, "samples_per_file": {}}
    return {
        "bytes_read": data.bytes_read,
        "unique_bytes": data.unique_bytes,
        "reread_factor": data.reread_factor,
        "size": data.size,
        "traced_share": data.traced_share,
        "order": None if data.order is None else asdict(data.order),
        "within": None if data.within is None else asdict(data.within),
        "samples_per_file": asdict(data.samples),
        "modes": [asdict(mode) for mode in data.modes],
        "never_read": asdict(data.never),
        "share_of": data.share_of,
        "ranks": [asdict(rank) for rank in data.ranks],
        "files_read": len(data.files),
        "files": [asdict(file) for file in data.files[:MOST_FILES]],
    }


def epoch_rows(phases: Phases | None) -> list[Object]:
    """`epochs`: one object an epoch, empty where no evidence marks any."""
    if phases is None:
        return []
    return [
        {"index": i} | {k: v for k, v in asdict(phase).items() if k != "name"}
        for i, phase in enumerate(phases.epochs, 1)
    ]


def phase_rows(phases: Phases | None) -> list[Object]:
    """`phases`: stages, which add up to the run time, and checkpoints, by their start."""
    if phases is None:
        return []
    rows = [("stage", p) for p in phases.stages] + [("checkpoint", p) for p in phases.checkpoints]
    rows.sort(key=lambda row: (row[1].start_s, row[1].end_s))
    return [_phase(kind, phase) for kind, phase in rows]


def _phase(kind: str, phase: Phase) -> Object:
    return {"name": phase.name, "kind": kind} | asdict(phase)


def throughput_object(trace: Trace, results: Results) -> Object:
    """Steps a second of one rank, and samples a second of all observed ranks together.

    Profiled steps over the time of the windows they lie in; samples need --samples-per-step.
    """
    steps, overlap = results.steps, results.overlap
    window_s = sum(row.window_s for row in overlap.per_rank) if overlap is not None else 0
    per_s = len(steps.table.step) / window_s if steps is not None and window_s > 0 else None
    batch = trace.user_data.samples_per_step
    known = per_s is not None and batch is not None and overlap is not None
    samples = per_s * batch * overlap.ranks_observed if known else None  # type: ignore[operator,union-attr]
    return {"steps_per_s": per_s, "samples_per_s": samples, "samples_per_step": batch}
