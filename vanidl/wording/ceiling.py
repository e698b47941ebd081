"""What the ceiling of a run says, in words."""

from __future__ import annotations

from vanidl.formatting.units import nbytes, percent, plural, seconds
from vanidl.model.run_facts import Ceiling


def sentence(ceiling: Ceiling) -> str:
    """Which share of the wall time of steps input costs, and how sure that is."""
    interval = f"{percent(ceiling.low)} to {percent(ceiling.high)}"
    if ceiling.low <= 0:
        return f"No cost of input shown in the wall time of steps: {interval}, measured."
    return f"Input costs {percent(ceiling.cost)} ({interval}) of the wall time of steps, measured."


def details(ceiling: Ceiling) -> str:
    """What the sentence rests on."""
    of_ranks = f" of {plural(ceiling.ranks, 'rank')}" if ceiling.ranks > 1 else ""
    return (
        f"With batches from memory a step takes {seconds(ceiling.free_s)} (median "
        f"{seconds(ceiling.median_free_s)}, copying the batch {seconds(ceiling.copying_s)} of it) "
        f"instead of {seconds(ceiling.step_s)} (median {seconds(ceiling.median_step_s)}): the same "
        f"{plural(ceiling.steps, 'step')}{of_ranks} after the warm-up; "
        f"{plural(ceiling.kept, 'batch', 'batches')} of {plural(ceiling.replayed, 'loader')} kept, "
        f"{nbytes(ceiling.kept_nbytes)}."
    )


def ceiling_text(ceiling: Ceiling) -> str:
    """Lines for a terminal."""
    said = (sentence(ceiling), details(ceiling), *ceiling.remarks)
    return "".join(f"{line}\n" for line in said)
