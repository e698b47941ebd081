"""What the accelerators of a benchmark waited for, and its rules, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vanidl.analyses.benchmark import BenchmarkResult, BenchmarkRule
from vanidl.formatting.units import nbytes, plural, seconds


def verdict(results: Sequence[BenchmarkResult]) -> str:
    """Utilization, what it lacks most, and rules that are not kept, of the first result."""
    if not results:
        return ""
    said = list(_utilization(results[0]))
    # What CLOSED fixes is free in the OPEN division: it stands among the rules, with its value.
    broken = [rule.name for rule in results[0].rules if rule.holds is False and not rule.exact]
    said += [f"Rules that do not hold: {', '.join(broken)}."] if broken else []
    return " ".join(said)


def sentences(result: BenchmarkResult) -> Iterator[str]:
    """The verdict and the rules, each in a sentence."""
    yield from _utilization(result)
    if result.epochs and result.waits_s["storage"] is None:
        yield (
            "Nothing recorded the reads, so waits for batches are not divided: put Darshan logs "
            "or DFTracer traces of the run beside the result."
        )
    for rule in result.rules:
        yield _rule_words(rule)


def _words(cause: str) -> str:
    waits = {
        "storage": "waiting for storage",
        "not known": "waiting for batches, of unknown cause",
        "barrier": "waiting at barriers for slower ranks",
        "between steps": "time between steps that no slower rank explains",
        "in step": "time in steps that neither loads nor computes",
    }
    return waits.get(cause, f"waiting for the {cause}")


def _rule_words(rule: BenchmarkRule) -> str:
    least = "" if rule.least is None else f", {_asked(rule)} asked for"
    if rule.found is None:
        return f"Rule: {rule.name}{least}: not recorded."
    held = {True: "holds", False: "does not hold", None: "no limit recorded"}[rule.holds]
    return f"Rule: {rule.name} {rule.found:,.4g} {rule.unit}{least}: {held}."


def _asked(rule: BenchmarkRule) -> str:
    return f"{rule.least:g}" if rule.exact else f"at least {rule.least:g}"


def _utilization(result: BenchmarkResult) -> Iterator[str]:
    named = " ".join(word for word in (result.name, result.workload) if word)
    if result.utilization_percent is not None:
        ranks, hosts = result.accelerators, result.hosts
        of = f" of {plural(ranks, 'accelerator')}" if ranks else ""
        of += f" on {plural(hosts, 'host')}" if ranks and hosts else ""
        met = {True: ", as much as is asked for", False: ", less than is asked for", None: ""}
        rates = [f"{result.samples_per_s:,.4g} samples/s"] if result.samples_per_s else []
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
            f"Most of the rest is {_words(result.largest_wait)}: {seconds(wait)} of "
            f"{seconds(result.total_s)} ({100 * wait / result.total_s:.1f} %)."
        )
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
