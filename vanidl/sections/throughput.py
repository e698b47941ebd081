"""Steps and samples per second."""

from __future__ import annotations

from vanidl.formatting.units import number
from vanidl.run import Run
from vanidl.sections.section import Json, Object, Section


def text_rows(run: Run) -> list[tuple[str, str]]:
    """Samples per second, for the block about the dataset; nothing where they are unknown."""
    per_s = _json(run)["samples_per_s"]
    return [("throughput", f"{number(per_s)} samples per second")] if per_s else []


def _json(run: Run) -> Object:
    """Steps a second of one rank, and samples a second of all observed ranks together.

    Profiled steps over the time of the windows they lie in; samples need --samples-per-step.
    """
    steps, overlap = run.steps, run.overlap
    window_s = sum(row.window_s for row in overlap.per_rank) if overlap is not None else 0
    per_s = len(steps.table.step) / window_s if steps is not None and window_s > 0 else None
    batch = run.trace.user_data.samples_per_step
    known = per_s is not None and batch is not None and overlap is not None
    samples = per_s * batch * overlap.ranks_observed if known else None  # type: ignore[operator,union-attr]
    return {"steps_per_s": per_s, "samples_per_s": samples, "samples_per_step": batch}


_KIND = dict.fromkeys(("steps_per_s", "samples_per_s"), float | None) | {
    "samples_per_step": int | None
}
SECTION = Section("throughput", json={"throughput": Json(_json, _KIND)}, traced=False)
