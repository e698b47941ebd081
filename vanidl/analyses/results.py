"""Analyses: a trace in, small frozen results out.

A reduction is `partial(rows, trace) -> P`, `combine(P, P) -> P` (associative, commutative,
integers) from `NOTHING`; `finish` turns P into a result. So one part or thousands, in any
order, here or elsewhere, give the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from vanidl.analyses import (
    by_counters,
    checkpoints,
    coverage,
    dataset,
    files,
    layers,
    operations,
    summary,
)
from vanidl.analyses.operations import Calls, Operations
from vanidl.analyses.reducing import Reduction, reduce_parts
from vanidl.model.intervals import Intervals, merge_by_key
from vanidl.model.selection import SelectedParts, Selection, fitted, select
from vanidl.model.trace import STORAGE_LAYERS, Trace
from vanidl.schema.dataclass import dataclass

if TYPE_CHECKING:
    from vanidl.analyses.access import Access
    from vanidl.analyses.balance import Balance
    from vanidl.analyses.batches import Fetching
    from vanidl.analyses.benchmark import BenchmarkResult
    from vanidl.analyses.checkpoints import Burst
    from vanidl.analyses.coverage import Coverage
    from vanidl.analyses.dataset import Dataset
    from vanidl.analyses.durations import Durations
    from vanidl.analyses.files import FileTotals
    from vanidl.analyses.latencies import Latencies
    from vanidl.analyses.layers import LayerUse
    from vanidl.analyses.lines import Lines
    from vanidl.analyses.memory import Memory
    from vanidl.analyses.osts import OstTimeline
    from vanidl.analyses.placement import Placement
    from vanidl.analyses.profiled_steps import Steps, StepSums
    from vanidl.analyses.sizes import Sizes
    from vanidl.analyses.summary import Summary
    from vanidl.analyses.timeline import FileTimeline, Timeline
    from vanidl.analyses.workers import Workers

_COVERAGE: dict[str, Reduction] = {"coverage": coverage}


@dataclass(frozen=True, slots=True)
class Results:
    """All results of one run. None: the run holds nothing to compute it from."""

    coverage: Coverage
    summary: Summary
    sizes: Sizes
    timeline: Timeline | None
    access: Access | None
    files: FileTotals
    balance: Balance | None
    steps: Steps | None = None
    dataset: Dataset | None = None
    filetimeline: FileTimeline | None = None
    placement: Placement | None = None
    workers: Workers | None = None
    fetching: Fetching | None = None
    durations: Durations | None = None
    latencies: Latencies | None = None
    lines: Lines | None = None
    memory: Memory | None = None
    benchmarks: tuple[BenchmarkResult, ...] = ()
    layers: tuple[LayerUse, ...] = ()
    osts: OstTimeline | None = None
    heatmaps: Mapping[str, Timeline] = field(default_factory=dict)  # of layers that have one
    operations: Operations = operations.NOTHING
    saves: tuple[Burst, ...] = ()
    step_sums: StepSums | None = None  # of the rows of steps.table
    calls: Calls = field(default_factory=Calls)
    busy: Mapping[int, Intervals] = field(
        default_factory=dict
    )  # in I/O, by position in Trace.ranks
    sum_ns: Mapping[int, int] = field(default_factory=dict)  # of their single operations


def analyse(
    trace: Trace, selection: Selection | None = None, executor: Executor | None = None
) -> Results:
    """Every result of the trace, restricted to the selection.

    Coverage is always that of the whole trace. With an executor its workers reduce the parts;
    the results are the same.
    """
    selection = fitted(selection or Selection(), trace)
    chosen = select(trace, selection)
    first = list_reductions(chosen)
    # Parts may have to be read from disk: those chosen whole are looked at for both at once.
    if isinstance(chosen.io, SelectedParts) and chosen.io.whole:
        reduced = reduce_parts(first | _COVERAGE, chosen.io, chosen, executor)
        others = reduce_parts(_COVERAGE, chosen.io.others, trace, executor)
        seen = coverage.combine(reduced["coverage"], others["coverage"])
    else:
        reduced = reduce_parts(first, chosen.io, chosen, executor)
        seen = reduce_parts(_COVERAGE, trace.io, trace, executor)["coverage"]
    if "filetimeline" not in reduced and "sizes" in reduced:
        # Of many files over time only the busiest: another pass, once these are known.
        from vanidl.analyses import timeline

        busiest: dict[str, Reduction] = {
            "filetimeline": timeline.bin_busiest_files(reduced["files"])
        }
        reduced |= reduce_parts(busiest, chosen.io, chosen, executor)
    # The reduced values with what the account of time needs of the other layers of storage. These
    # are disjoint from the layer that is looked at: a file that is read through streams takes as
    # long as one that is not.
    calls, busy, sum_ns = _get_storage_values(reduced)
    storage = set(STORAGE_LAYERS) & set(trace.layers_traced)
    for layer in sorted(storage - {selection.layer}) if selection.layer in storage else ():
        beside = select(trace, replace(selection, layer=layer))
        needed: dict[str, Reduction] = {
            "operations": operations,
            "calls": operations.make_calls_reduction(beside),
        }
        of_layer = reduce_parts(needed, beside.io, beside, executor)
        busy = merge_by_key(busy, of_layer["operations"].busy)
        calls = needed["calls"].combine(calls, of_layer["calls"])
        for position, total in of_layer["operations"].totals.items():
            sum_ns[position] = sum_ns.get(position, 0) + total.sum_ns
    reduced |= {"storage": (calls, busy, sum_ns)}
    return finish(reduced, seen, trace, chosen, selection.layer)


def _get_storage_values(
    reduced: dict[str, Any],
) -> tuple[Calls, Mapping[int, Intervals], dict[int, int]]:
    """Calls by process, busy time and sum of durations by rank, of the layer that is looked at."""
    of_ranks = reduced["operations"]
    sums = {position: total.sum_ns for position, total in of_ranks.totals.items()}
    return reduced["calls"], of_ranks.busy, sums


def list_reductions(trace: Trace) -> dict[str, Reduction]:
    """What is summed over the parts of one trace, by name.

    What only single operations tell, and what few runs hold, is there only where this one has
    them: of a log with counters alone its code is not even loaded.
    """
    made: dict[str, Reduction] = {
        "operations": operations,
        "calls": operations.make_calls_reduction(trace),
        "files": files,
        "dataset": dataset,
        "checkpoints": checkpoints.make_reduction(trace),
    }
    if len(trace.io):
        from vanidl.analyses import access, durations, latencies, osts, sizes, timeline, workers

        made |= {
            "sizes": sizes,
            "timeline": timeline,
            "access": access,
            "workers": workers,
            "latencies": latencies,
            "durations": durations,
            "osts": osts.make_reduction(trace),
        }
        if (over_time := timeline.bin_all_files(trace)) is not None:
            made["filetimeline"] = over_time
    if len(trace.spans):
        from vanidl.analyses import profiled_steps

        made["step_sums"] = profiled_steps.make_step_sums_reduction(trace)
    if len(trace.fetches):
        from vanidl.analyses import batches

        made["fetches"] = batches.make_reduction(trace)
    return made


def finish(
    reduced: dict[str, Any], seen: coverage.Traced, whole: Trace, chosen: Trace, layer: str
) -> Results:
    """Results from reduced values: the last, cheap part of `analyse`."""
    with ThreadPoolExecutor(1) as pool:  # with thousands of ranks both halves take as long
        unique = pool.submit(dataset.measure_unique_by_file, reduced["dataset"])
        alone = pool.submit(_finish_independent, reduced, seen, whole, chosen, layer)
        # The other results by name: they build on steps, on the dataset or on the time of ranks.
        data = dataset.finish(reduced["dataset"], chosen, layer, unique)
        storage = reduced.get("storage") or _get_storage_values(reduced)
        others = {
            "dataset": data,
            "operations": reduced["operations"],
            "saves": tuple(checkpoints.find_checkpoints(reduced["checkpoints"], chosen)),
            "step_sums": reduced.get("step_sums"),
            **dict(zip(("calls", "busy", "sum_ns"), storage, strict=True)),
        }
        if len(chosen.spans) or chosen.step_durations:
            from vanidl.analyses import profiled_steps

            others["steps"] = profiled_steps.finish(reduced["operations"], chosen)
        if "workers" in reduced:
            from vanidl.analyses import workers

            others["workers"] = workers.finish(reduced["workers"], chosen, data)
        if "fetches" in reduced:
            from vanidl.analyses import batches

            others["fetching"] = batches.finish(reduced["fetches"], chosen)
        return Results(**others, **alone.result())


def _finish_independent(
    reduced: dict[str, Any], seen: coverage.Traced, whole: Trace, chosen: Trace, layer: str
) -> dict[str, Any]:
    """The results that build on reduced values only, by name."""
    results: dict[str, Any] = {
        "coverage": coverage.finish(seen, whole),
        "summary": summary.finish(reduced["operations"], chosen, layer),
        "files": files.finish(reduced["files"], chosen, layer),
        "layers": layers.summarize_layers(chosen),
        "heatmaps": by_counters.bin_all_heatmaps(chosen),
    }
    # What single operations tell; where none was traced, what counters and heat maps say of it.
    if "sizes" in reduced:
        from vanidl.analyses import access, balance, durations, latencies, osts, sizes, timeline

        results |= {
            "sizes": sizes.finish(reduced["sizes"], chosen),
            "timeline": timeline.finish(reduced["timeline"], chosen),
            "access": access.finish(reduced["access"], chosen, layer),
            "balance": balance.finish(reduced["operations"], chosen),
            "durations": durations.finish(reduced["durations"]),
            "latencies": latencies.finish(reduced["latencies"], chosen),
            "osts": osts.finish(reduced["osts"], chosen, layer),
            "filetimeline": timeline.finish_files(
                reduced["filetimeline"], reduced["files"], chosen
            ),
        }
    if not reduced["operations"].totals:
        results |= {
            "sizes": by_counters.count_sizes(chosen, layer),
            "timeline": by_counters.bin_heatmaps(chosen, layer),
            "access": by_counters.count_access(chosen, layer),
            "balance": by_counters.count_load(chosen, layer),
        }
    # What few runs hold.
    if chosen.step_durations:
        from vanidl.analyses import placement

        results["placement"] = placement.finish(chosen)
    if chosen.benchmarks:
        from vanidl.analyses import benchmark

        results["benchmarks"] = benchmark.finish(reduced["operations"], chosen)
    if chosen.lines:
        from vanidl.analyses import lines

        results["lines"] = lines.finish(chosen)
    if chosen.memory:
        from vanidl.analyses import memory

        results["memory"] = memory.finish(chosen)
    return results


__all__ = ["Reduction", "Results", "analyse", "finish", "list_reductions", "reduce_parts"]
