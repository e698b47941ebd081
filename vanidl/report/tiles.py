"""The few numbers under the headline, each with its unit and what it means."""

from __future__ import annotations

from dataclasses import dataclass

from vanidl.analyses.overlap import Overlap
from vanidl.analyses.summary import Summary
from vanidl.formatting.units import bandwidth, count, nbytes, percent, seconds
from vanidl.run import Run
from vanidl.wording.basis import compute_name


@dataclass(frozen=True, slots=True)
class Tile:
    """One key figure; `meaning` is its definition in a line."""

    label: str
    value: str
    meaning: str


def tiles(run: Run) -> tuple[Tile, ...]:
    """Five key figures: about the overlap where it is known, else about the I/O alone."""
    summary = run.summary
    mean = "mean over ranks" if len(run.trace.ranks) > 1 else "one rank"
    if run.overlap is not None:
        return (*_overlap_tiles(run.overlap, mean), _busy(summary, mean), _moved(summary))
    return (_busy(summary, mean), *_amounts(summary), _rate(summary))


def _overlap_tiles(overlap: Overlap, mean: str) -> tuple[Tile, ...]:
    return (
        Tile("Input wait", percent(overlap.input_wait_share), _wait_meaning(overlap, mean)),
        Tile("Hidden I/O", percent(overlap.hidden_fraction), _hidden_meaning(overlap)),
        Tile(
            "Lost to input",
            seconds(overlap.lost_to_input_s),
            "sum over steps of the longest wait of any rank",
        ),
    )


def _wait_meaning(overlap: Overlap, mean: str) -> str:
    wait, window = overlap.mean.input_wait_s, overlap.mean.window_s
    if wait is None:
        return "unknown is not zero: the profile has no spans of the input pipeline"
    return f"{seconds(wait)} of the {seconds(window)} profiled, {mean}"


def _hidden_meaning(overlap: Overlap) -> str:
    if overlap.hidden_fraction is None:
        return "needs I/O and compute in the profiled steps"
    return f"of the I/O in profiled steps; compute: {compute_name(overlap.basis)}"


def _busy(summary: Summary, mean: str) -> Tile:
    counted = summary.counter_s
    if summary.time is None and counted is not None:
        meaning = f"reading and writing, {mean}: a sum over files, not busy time"
        return Tile("Time by counters", seconds(counted.per_rank_mean_s), meaning)
    if summary.time is None:
        return Tile("Time in I/O", seconds(None), "single operations were not traced")
    share = percent(summary.time.share)
    return Tile(
        "Time in I/O",
        seconds(summary.time.per_rank_mean_s),
        f"{mean}, {share} of the run" if summary.time.share is not None else mean,
    )


def _moved(summary: Summary) -> Tile:
    wrote = f"; wrote {nbytes(summary.bytes_written)}" if summary.bytes_written is not None else ""
    return Tile("Read", nbytes(summary.bytes_read), f"through {summary.layer}{wrote}")


def _amounts(summary: Summary) -> tuple[Tile, ...]:
    return (
        Tile("Read", nbytes(summary.bytes_read), f"through {summary.layer}"),
        Tile("Written", nbytes(summary.bytes_written), f"through {summary.layer}"),
        Tile("Operations", count(summary.ops), _reads(summary)),
    )


def _reads(summary: Summary) -> str:
    known = summary.reads is not None
    return f"{count(summary.reads)} of them reads" if known else f"through {summary.layer}"


def _rate(summary: Summary) -> Tile:
    if summary.ops == 0:
        return Tile("Bandwidth", "none", "no bytes were moved")
    meaning = "bytes / time in which any rank was in I/O"
    if summary.time is None:
        meaning = "needs the times of single operations, which were not traced"
    return Tile("Bandwidth", bandwidth(summary.aggregate_bytes_per_s), meaning)
