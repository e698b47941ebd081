"""Sides in, changes with intervals and verdicts out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vanidl.breakdown import CAUSES, Breakdown
from vanidl.breakdown.account import MEAN, RUN, STEP, WAIT
from vanidl.compare import statistics
from vanidl.compare.metrics import (
    HIGHER,
    METRICS,
    NEITHER,
    PRIMARY,
    RESULT,
    Metric,
    basis,
    losses,
    per_step,
    stdio_share,
    steps_a_rank,
)
from vanidl.compare.sides import Side
from vanidl.compare.statistics import ALPHA
from vanidl.formatting.units import percent
from vanidl.schema.dataclass import dataclass
from vanidl.wording.account import name_compute

MIN_CHANGE = 0.01
"""Smaller changes are not called: where code lies in memory moves times by as much
(Mytkowicz et al., ASPLOS 2009)."""

MIN_RUNS = 3
"""Fewer runs of a side get no verdict: two have one degree of freedom, whose t of 31.8 hides a
change of 30 %. Three show a slowdown of 10 % in 6 to 54 of 100 simulated experiments
(docs/statistics.md), so "no difference shown" says beside it how small a change such runs show."""

STDIO_MARGIN = 0.01
"""Difference in the share of bytes that went through STDIO up to which I/O is compared."""

BETTER, WORSE = "better", "worse"
MORE, LESS = "more", "less"  # of a metric that has no good direction
NO_DIFFERENCE = "no difference shown"
NOT_RECORDED = "not recorded"
NOT_COMPARABLE = "not comparable"
NO_INTERVAL = "no interval"
TOO_FEW = "too few runs"
VERDICTS = (
    BETTER, WORSE, MORE, LESS, NO_DIFFERENCE, NOT_RECORDED, NOT_COMPARABLE, NO_INTERVAL, TOO_FEW,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """One metric on both sides.

    `a` and `b` are the value of a single run, or the mean over runs (geometric where all are
    above zero, so that ratio = b / a). `low` and `high` bound the ratio, `difference` holds
    (b - a, low, high) for a metric with zeros. `p` is None without an interval;
    `p_corrected` is Holm's for all but the primary metric. `note` says why there is no verdict.
    """

    metric: Metric
    a: float | None
    b: float | None
    ratio: float | None
    low: float | None
    high: float | None
    difference: tuple[float, float, float] | None
    p: float | None
    p_corrected: float | None
    verdict: str
    note: str
    values_a: tuple[float | None, ...]
    values_b: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Pairing:
    """The changes from the first side to another one; `notices` limit what they mean."""

    a: Side
    b: Side
    paired: bool  # runs belong together two by two
    changes: tuple[Change, ...]
    notices: tuple[str, ...]

    def change(self, name: str) -> Change | None:
        """The change of one metric; None where the metric is not in this comparison."""
        return next((c for c in self.changes if c.metric.name == name), None)

    def comparable(self, name: str) -> Change | None:
        """The change of one metric; where unequal runs forbid that, of the same per step."""
        found = self.change(name)
        if found is None or found.verdict != NOT_COMPARABLE:
            return found
        return self.change(f"{name}_per_step") or found


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every side against the first."""

    sides: tuple[Side, ...]
    primary: str  # name of the metric that answers the question
    pairings: tuple[Pairing, ...]
    conditions: tuple[tuple[str, str], ...] = ()  # how the runs were made, as far as known


WINDOWS = {RUN: "run", STEP: "mean step", WAIT: "input waits of a rank"}

Ends = tuple[float, float]


@dataclass(frozen=True, slots=True)
class CellRow:
    """One cell of both sides: at least and at most, in seconds; None: a run has no account.

    `key` is that of `Breakdown.cell`, `share` the most of its window that it can be on any side.
    """

    key: str
    a: Ends | None
    b: Ends | None
    share: float


def compare_cells(a: Side, b: Side) -> tuple[CellRow, ...]:
    """The cells of the mean rank that either side has."""
    accounts_a, accounts_b = _open_accounts(a), _open_accounts(b)
    rows = []
    for window in WINDOWS:
        # How much of the window each cause can be, on the side that has most of it.
        windows = [(each, each.length_ns(window)) for each in (*accounts_a, *accounts_b)]
        for cause in CAUSES:
            if not any(cause in account.causes_of(window) for account, _ in windows):
                continue
            key = f"{MEAN}/{window}/{cause}"
            shares = (account.cell(key).high_ns / length for account, length in windows if length)
            rows.append(
                CellRow(
                    key,
                    a=_average_ends(accounts_a, window, key),
                    b=_average_ends(accounts_b, window, key),
                    share=max(shares, default=0),
                )
            )
    return tuple(rows)


def _open_accounts(side: Side) -> list[Breakdown]:
    """Of every run of a side; none where one of them has no account."""
    accounts = [sample.account for sample in side.samples if sample.account is not None]
    return accounts if len(accounts) == len(side.samples) else []


def _average_ends(accounts: list[Breakdown], window: str, key: str) -> Ends | None:
    """Both ends, mean over runs; None without runs, or where one has no such window."""
    if not accounts or not all(account.length_ns(window) for account in accounts):
        return None
    low, high = zip(*(account.cell(key).range_s for account in accounts), strict=True)
    return sum(low) / len(low), sum(high) / len(high)


def compare(sides: Sequence[Side], conditions: Sequence[tuple[str, str]] = ()) -> Comparison:
    """Every side against the first, with verdicts.

    The primary metric is tested at `ALPHA`; all others, over all sides, share another `ALPHA`
    by Holm's correction. With more than two sides the primary ones are corrected likewise.
    """
    if len(sides) < 2:
        raise ValueError(f"expected at least two sides, found {len(sides)}")
    # The first metric of those that may answer the question which every run recorded.
    by_name = {metric.name: metric for metric in METRICS}
    samples = [sample for side in sides for sample in side.samples]
    recorded = (n for n in PRIMARY if all(by_name[n].read(s) is not None for s in samples))
    primary = next(recorded, PRIMARY[0])
    pairings = [_compare_sides(sides[0], side) for side in sides[1:]]
    return Comparison(tuple(sides), primary, _judge(pairings, primary), tuple(conditions))


def _compare_sides(a: Side, b: Side) -> Pairing:
    # Runs are pairs where both sides number them alike.
    numbers = [[s.pair for s in side.samples] for side in (a, b)]
    paired = None not in numbers[0] and numbers[0] == numbers[1]

    # Where sums over steps cannot be compared, they are per step.
    doubts = _find_doubts(a, b)
    metrics = []
    for metric in METRICS:
        metrics.append(metric)
        if metric.a_step and "a_step" in doubts:
            metrics.append(per_step(metric))
    changes = [_measure_change(metric, a, b, paired, doubts) for metric in metrics]

    # Of results of a benchmark nothing else is expected, and of other runs no results. Wall times
    # are known to vanidl ab alone.
    sums = all(s.results is not None and s.results.benchmarks for s in (*a.samples, *b.samples))
    expected = [not sums and m.name != "wall_time_s" and m.rests_on != RESULT for m in metrics]
    shown = [
        change
        for change, usual in zip(changes, expected, strict=True)
        if usual or change.a is not None or change.b is not None
    ]
    return Pairing(a, b, paired, tuple(shown), tuple(doubts.values()))


def _find_doubts(a: Side, b: Side) -> dict[str, str]:
    """What makes sides unlike each other: kind of evidence -> sentence."""
    samples = (*a.samples, *b.samples)
    doubts = {}
    # Sums over steps need as many steps on both sides.
    steps = {n for n in map(steps_a_rank, samples) if n is not None}
    if len(steps) > 1:
        low, high = min(steps), max(steps)
        doubts["a_step"] = (
            f"The runs hold {low:g} to {high:g} profiled steps per rank, so sums over steps are "
            "not compared; the same per step is."
        )
    # Hidden and exposed mean something only against the same kind of compute.
    bases = {kind for kind in map(basis, samples) if kind is not None}
    if len(bases) > 1:
        names = [name_compute(basis) for basis in sorted(bases)]
        doubts["compute"] = (
            f"What counts as compute differs between the runs ({'; '.join(names)}), so hidden and "
            "exposed mean different things."
        )
    # The I/O of some runs may look smaller than it was: it was lost, or moved to where it is not
    # traced.
    lost = frozenset[str]().union(*map(losses, samples))
    shares = [share for share in map(stdio_share, samples) if share is not None]
    if lost:
        doubts["io"] = (
            f"The I/O of some runs was recorded in part ({', '.join(sorted(lost))}): what is "
            "missing must not look like an improvement."
        )
    elif shares and max(shares) - min(shares) > STDIO_MARGIN:
        doubts["io"] = (
            f"STDIO, whose operations are not traced, moved {percent(min(shares))} of the bytes in "
            f"some runs and {percent(max(shares))} in others: I/O that moves there must not look "
            "like an improvement."
        )
    return doubts


def _find_doubt(metric: Metric, doubts: dict[str, str]) -> str:
    """Why the metric is not compared, "" where it is."""
    if metric.a_step and "a_step" in doubts:
        return doubts["a_step"]
    if metric.rests_on == "compute" and "compute" in doubts:
        return doubts["compute"]
    # What rests on compute rests on the I/O beside it, too.
    return doubts.get("io", "") if metric.rests_on in ("io", "compute") else ""


def _measure_change(
    metric: Metric, a: Side, b: Side, paired: bool, doubts: dict[str, str]
) -> Change:
    """The metric on both sides, not yet corrected for the number of metrics."""
    # The means are over what the test takes, or over all where that is nothing.
    all_a, all_b = (tuple(metric.read(sample) for sample in side.samples) for side in (a, b))
    tested_a, tested_b = _select_tested(all_a, all_b, paired)
    mean_a = statistics.middle(tested_a or _keep_recorded(all_a))
    mean_b = statistics.middle(tested_b or _keep_recorded(all_b))
    empty = Change(
        metric, mean_a, mean_b, None, None, None, None, None, None, NOT_RECORDED, "", all_a, all_b
    )

    # Nothing to compare, or not alike.
    if mean_a is None or mean_b is None:
        missing = [s.letter for s, mean in ((a, mean_a), (b, mean_b)) if mean is None]
        return replace(empty, note=f"not recorded in {' and '.join(missing)}")
    doubt = _find_doubt(metric, doubts)
    if doubt:
        return replace(empty, verdict=NOT_COMPARABLE, note=doubt)

    # The change, with an interval where there are two runs of each.
    ratio = mean_b / mean_a if mean_a > 0 else None
    estimate = (statistics.paired if paired else statistics.unpaired)(tested_a, tested_b)
    if estimate is None:
        runs_a, runs_b = len(tested_a), len(tested_b)
        note = f"{runs_a} and {runs_b} runs give no interval: at least two of each are needed"
        if runs_a == runs_b == 1:
            note = "one run each gives no interval"
        return replace(empty, ratio=ratio, verdict=NO_INTERVAL, note=note)
    low, high = estimate.low, estimate.high
    change = replace(empty, ratio=ratio, verdict=NO_DIFFERENCE, p=estimate.p)
    if estimate.scale == "ratio":
        return replace(change, ratio=estimate.value, low=low, high=high)
    return replace(change, difference=(estimate.value, low, high))


def _select_tested(
    a: Sequence[float | None], b: Sequence[float | None], paired: bool
) -> tuple[list[float], list[float]]:
    """The recorded values; of pairs only those that both sides recorded."""
    if not paired:
        return _keep_recorded(a), _keep_recorded(b)
    both = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    return [x for x, _ in both], [y for _, y in both]


def _keep_recorded(values: Sequence[float | None]) -> list[float]:
    return [v for v in values if v is not None]


def _judge(pairings: Sequence[Pairing], primary: str) -> tuple[Pairing, ...]:
    """Corrects values of p in two families, then says what each change means."""
    # A family is the question that was asked, on all sides; the other is all else.
    tested = [
        (i, k)
        for i, pairing in enumerate(pairings)
        for k, change in enumerate(pairing.changes)
        if change.p is not None and not _is_constant(change)
    ]
    # Holm's correction within each family: the question is not weakened by all else.
    corrected: dict[tuple[int, int], float] = {}
    for is_primary in (True, False):
        family = [
            at for at in tested
            if (pairings[at[0]].changes[at[1]].metric.name == primary) == is_primary
        ]  # fmt: skip
        values = [pairings[i].changes[k].p or 0.0 for i, k in family]
        corrected |= dict(zip(family, statistics.holm(values), strict=True))
    return tuple(
        replace(
            pairing,
            changes=tuple(
                _give_verdict(change, corrected.get((i, k)))
                for k, change in enumerate(pairing.changes)
            ),
        )
        for i, pairing in enumerate(pairings)
    )


def _is_constant(change: Change) -> bool:
    """Whether every run gave the same value: a count that needs no test, so takes no part."""
    return len({*change.values_a, *change.values_b}) == 1


def _give_verdict(change: Change, p: float | None) -> Change:
    """The change with its verdict; `p` is the corrected one, None where nothing was tested."""
    fewest = min(len(_keep_recorded(change.values_a)), len(_keep_recorded(change.values_b)))
    if change.p is not None and fewest < MIN_RUNS:
        return replace(change, p_corrected=p, verdict=TOO_FEW)
    # Not shown, or too small to matter: the verdict stays as it was.
    if p is None or p > ALPHA or change.a is None or change.b is None:
        return replace(change, p_corrected=p)
    if abs(change.b - change.a) < MIN_CHANGE * max(abs(change.a), abs(change.b)):
        return replace(change, p_corrected=p)
    # For some metrics neither more nor less is better.
    rose = change.b > change.a
    if change.metric.better == NEITHER:
        verdict = MORE if rose else LESS
    else:
        verdict = BETTER if rose == (change.metric.better == HIGHER) else WORSE
    return replace(change, p_corrected=p, verdict=verdict)
