"""Results in words: memory, costly lines, the ceiling, benchmarks, steps without times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from vanidl.formatting.names import elided
from vanidl.formatting.units import count, four_digits, nbytes, percent, plural, seconds
from vanidl.model.run_facts import Ceiling, Ending

if TYPE_CHECKING:
    from vanidl.analyses.benchmark import BenchmarkResult
    from vanidl.analyses.lines import Line, Lines
    from vanidl.analyses.memory import Memory
    from vanidl.analyses.placement import Placement

NEAR = 0.1
"""Of the limit: with less left, that is said in the answer."""


def describe_memory(memory: Memory | None, ending: Ending | None) -> str:
    """What the answer says of memory, "" where it is steady and far from its limit."""
    if memory is None:
        return ""
    if ending is not None and ending.memory_kills:
        return f"Memory ran out: {describe_peak(memory)}. {explain_memory(memory)}".strip()
    near = (
        memory.limit_nbytes is not None
        and memory.left_nbytes is not None
        and memory.left_nbytes < NEAR * memory.limit_nbytes
    )
    if memory.kind == "copies" or near or memory.out_of_memory_s is not None:
        return f"Memory: {describe_peak(memory)}. {explain_memory(memory)}".strip()
    return ""


def describe_peak(memory: Memory) -> str:
    """`at most 12.3 GiB of the 64 GiB of its control group, its 8 workers at most 10 GiB`."""
    words = f"at most {nbytes(memory.peak_nbytes)}"
    if memory.limit_nbytes is not None:
        of = "its control group" if memory.limit_of == "control group" else "the machine"
        words += f" of the {nbytes(memory.limit_nbytes)} of {of}"
    if memory.workers:
        workers = plural(memory.workers, "worker")
        words += f", its {workers} at most {nbytes(memory.peak_workers_nbytes)}"
    return words


def explain_memory(memory: Memory) -> str:
    """What takes it, "" where there is nothing to say."""
    if memory.kind == "copies":
        said = (
            f"Workers have made {nbytes(memory.copied_nbytes)} their own that they shared: "
            "reference counts do that to the objects of a list or dict in the dataset; an array "
            "of NumPy or a tensor is not copied."
        )
    elif memory.kind == "in_flight":
        said = f"Batches on their way take {nbytes(memory.peak_shared_nbytes)} of shared memory"
        if memory.batches_in_flight is not None:
            each = memory.peak_shared_nbytes / memory.batches_in_flight
            batches = plural(memory.batches_in_flight, "batch", "batches")
            said += f": {batches} (workers x prefetch_factor) of {nbytes(int(each))}"
        said += "; a lower prefetch_factor takes less."
    elif memory.kind == "growth":
        said = "It goes on growing."
    else:
        said = ""
    return f"{said} {describe_trend(memory)}".strip()


def describe_trend(memory: Memory) -> str:
    """When it would run out, "" where no trend holds."""
    slope = memory.growth_nbytes_per_s
    if slope is None:
        return ""
    words = f"At its end it grew by {nbytes(int(60 * slope))} a minute"
    if memory.growth_nbytes_per_epoch is not None and memory.growth_nbytes_per_epoch > 0:
        words += f", {nbytes(int(memory.growth_nbytes_per_epoch))} an epoch"
    if memory.out_of_memory_s is not None:
        words += f"; going on so it is out of memory in about {seconds(memory.out_of_memory_s)}"
    return f"{words}."


# Costly lines of the program in words.

MATTERS = 0.1
"""Of a part: a line with less is not named in the answer."""
ENOUGH = 4
"""Samples of a part: with fewer of them a line may have been costly by chance."""
_MOST_TEXT = 60
_CPU, _BLOCKED = 0.75, 0.25  # of a line's time, from and to which it is on the processor or blocked


def name_place(line: Line) -> str:
    """`data.py:42`."""
    return f"{elided(PurePath(line.file).name, limit=40)}:{line.line}"


def name_line(line: Line) -> str:
    """`img.resize(...) data.py:42`."""
    return (
        f"{elided(line.text, limit=_MOST_TEXT)} {name_place(line)}"
        if line.text
        else name_place(line)
    )


def describe_how(line: Line) -> str:
    """Whether its time was on the processor: `blocked`, `on the processor`, or both shares."""
    share = line.cpu_s / line.wall_s if line.wall_s else 0.0
    if share >= _CPU:
        return "on the processor"
    return "blocked" if share <= _BLOCKED else f"{percent(share)} on the processor"


def list_costly_lines(lines: Lines | None) -> Iterator[str]:
    """The costliest line of fetches and that of the loop, where they matter."""
    if lines is None:
        return
    for where, part in (("fetches", lines.fetch), ("the loop between its batches", lines.loop)):
        if part is not None and part.samples >= ENOUGH and part.lines[0].share >= MATTERS:
            line = part.lines[0]
            yield f"Of {where}, {percent(line.share)} is {name_line(line)} ({describe_how(line)})."


# What the ceiling of a run says, in words.


def describe_ceiling(ceiling: Ceiling) -> str:
    """Which share of the wall time of steps input costs, and how sure that is."""
    interval = f"{percent(ceiling.low)} to {percent(ceiling.high)}"
    if ceiling.low <= 0:
        return f"No cost of input shown in the wall time of steps: {interval}, measured."
    return f"Input costs {percent(ceiling.cost)} ({interval}) of the wall time of steps, measured."


_SLOWER = 0.05  # of a step: from there on waits and ceiling are two things


def describe_slower(ceiling: Ceiling, waited_share: float | None) -> str:
    """What of the ceiling is no wait: steps computed more slowly as they trained.

    The run with batches from memory is not traced, and has no workers beside it.

    Args:
        ceiling: what was measured.
        waited_share: of the steps, what training waited for input; None: not known.
    """
    if waited_share is None or ceiling.low - waited_share < _SLOWER:
        return ""
    return (
        f"Of that, {percent(ceiling.low - waited_share)} of the steps at least is no input wait: "
        "they took longer outside of waits than with batches from memory, as under a tracer or "
        "with too few cores, which faster input may not change."
    )


def explain_ceiling(ceiling: Ceiling) -> str:
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


def write_ceiling_lines(ceiling: Ceiling) -> str:
    """Lines for a terminal."""
    said = (describe_ceiling(ceiling), explain_ceiling(ceiling), *ceiling.remarks)
    return "".join(f"{line}\n" for line in said)


# What the accelerators of a benchmark waited for, and its rules, in words.


def describe_benchmark(results: Sequence[BenchmarkResult]) -> str:
    """Utilization, what it lacks most, and rules that are not kept, of the first result."""
    if not results:
        return ""
    said = list(describe_utilization(results[0]))
    # What CLOSED fixes is free in the OPEN division: it stands among the rules, with its value.
    broken = [rule.name for rule in results[0].rules if rule.holds is False and not rule.exact]
    said += [f"Rules that do not hold: {', '.join(broken)}."] if broken else []
    return " ".join(said)


def _name_wait(cause: str) -> str:
    waits = {
        "storage": "waiting for storage",
        "not known": "waiting for batches, of unknown cause",
        "barrier": "waiting at barriers for slower ranks",
        "between steps": "time between steps that no slower rank explains",
        "in step": "time in steps that neither loads nor computes",
    }
    return waits.get(cause, f"waiting for the {cause}")


def describe_utilization(result: BenchmarkResult) -> Iterator[str]:
    """How busy the accelerators were, what they waited for most, and how fast checkpoints were."""
    named = " ".join(word for word in (result.name, result.workload) if word)
    if result.utilization_percent is not None:
        ranks, hosts = result.accelerators, result.hosts
        of = f" of {plural(ranks, 'accelerator')}" if ranks else ""
        of += f" on {plural(hosts, 'host')}" if ranks and hosts else ""
        # What is asked for is the benchmark's own threshold, where it has one for the workload.
        met = {True: ", as much as is asked for", False: ", less than is asked for", None: ""}
        rates = [f"{four_digits(result.samples_per_s)} samples/s"] if result.samples_per_s else []
        rates += [f"{nbytes(round(result.io_bytes_per_s))}/s"] if result.io_bytes_per_s else []
        reads = f"; {', '.join(rates)}" if rates else ""
        percent = f"{result.utilization_percent:.2f} %{met[result.meets_threshold]}"
        yield f"{named}: utilization{of} {percent}{reads}."
    if result.epochs_from_memory:
        first, last = result.epochs_from_memory[0], result.epochs_from_memory[-1]
        which = f"Epoch {first}" if first == last else f"Epochs {first} to {last}"
        yield (
            f"{which} may have come from memory: {nbytes(result.dataset_nbytes or 0)} of data are "
            f"no more than the {nbytes(result.memory_nbytes or 0)} of the hosts."
        )
    if result.largest_wait is not None and result.total_s:
        wait = result.waits_s[result.largest_wait] or 0.0
        yield (
            f"Most of the rest is {_name_wait(result.largest_wait)}: {seconds(wait)} of "
            f"{seconds(result.total_s)} ({100 * wait / result.total_s:.1f} %)."
        )
    # Checkpoints: how long each save and load took, and at what rate bytes moved.
    for what, taken in (("saves", result.saves_s), ("loads", result.loads_s)):
        if len(taken) == 1:
            yield f"{named}: 1 {what[:-1]} of a checkpoint, {seconds(taken[0])}."
        elif taken:
            mean, slowest = seconds(sum(taken) / len(taken)), seconds(max(taken))
            yield (
                f"{named}: {len(taken):,} {what} of a checkpoint, {mean} each on average, "
                f"{slowest} the slowest."
            )
    moved = (("saved", result.save_bytes_per_s), ("loaded", result.load_bytes_per_s))
    rates = [f"{what} at {nbytes(round(rate))}/s" for what, rate in moved if rate]
    if rates:
        size, ranks = result.checkpoint_nbytes, result.accelerators
        sized = f" of {nbytes(size)}" if size else ""
        by = f" by {plural(ranks, 'rank')}" if ranks else ""
        yield f"{named}: checkpoints{sized} {' and '.join(rates)}{by}."


# Steps without times between bursts of reads: in words, and for programs.

_VERDICT = {
    "hidden": "nearly all of it was hidden, wherever the steps lay",
    "exposed": "nearly none of it was hidden, wherever the steps lay",
}
_NOT_KNOWN = "how much was hidden is not determined"


def describe_placement(placement: Placement | None) -> str:
    """How much I/O the steps may have hidden, over all their places; "" without placement."""
    if placement is None:
        return ""
    over = (
        f", summed over {count(len(placement.per_rank))} ranks"
        if len(placement.per_rank) > 1
        else ""
    )
    low, high, io_s = (
        seconds(value)
        for value in (placement.hidden_low_s, placement.hidden_high_s, placement.io_s)
    )
    return (
        f"Placed between bursts of reads, the steps hid {low} to {high} of {io_s} of reads{over}: "
        f"{_VERDICT.get(placement.verdict, _NOT_KNOWN)}."
    )
