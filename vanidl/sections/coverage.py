"""What the numbers rest on: how much of each layer was traced, and how clocks were aligned."""

from __future__ import annotations

import textwrap

from vanidl.analyses.coverage import LayerCoverage
from vanidl.analyses.profiled_steps import ClockEvidence, LogClock, Steps
from vanidl.figures.downsample import n_of_m
from vanidl.figures.figure import Column, Figure, Table
from vanidl.formatting.names import elided
from vanidl.formatting.terminal import WIDTH
from vanidl.formatting.units import count, offset, plural, range_words, seconds
from vanidl.model.warnings import Notice
from vanidl.run import Run
from vanidl.schema.schema import fields_of
from vanidl.sections.section import Json, Object, Section, values_of

# How the clocks of profiles and logs agree, in words.

_NO_CLOCK = "none: durations without start times, so no overlap is claimed"
_OWN_CLOCK = "the profile's own: there is no log that it has to agree with"
_NOT_ALIGNED = (
    "not aligned: how it and that of the logs differ is not known, so no overlap is claimed"
)


def list_clocks(steps: Steps) -> list[tuple[str, str]]:
    """The least certain clock and its evidence, and how many others there are."""
    # Of many clocks how many there are, and how many of them could not be aligned.
    others = ""
    if len(steps.clocks) > 1:
        lost = sum(c.offset_s is None for c in steps.clocks)
        unsure = f", {count(lost)} of them not aligned" if lost else ""
        others = f"; the least certain of {count(len(steps.clocks))}{unsure}"
    rows = [("clock", describe_clock(steps.clock) + others)]
    rows += [("", str(reason)) for reason in steps.clock.evidence if not is_alone(steps.clock)]
    return rows + [("clocks of logs", words) for words in describe_log_clocks(steps)]


def describe_log_clocks(steps: Steps) -> list[str]:
    """How late the logs of forked processes were taken to be, in one sentence; none: nothing."""
    if not steps.log_clocks:
        return []
    least = max(steps.log_clocks, key=lambda clock: clock.uncertainty_s)
    offsets = [clock.offset_s for clock in steps.log_clocks]
    return [
        f"{plural(len(offsets), 'log')} of forked processes, moved by "
        f"{range_words(min(offsets), max(offsets))}, each by its own; the least certain to "
        f"± {seconds(least.uncertainty_s)} ({range_words(least.low_s, least.high_s)})"
    ]


def describe_clock(clock: ClockEvidence) -> str:
    """Method, offset and interval of one clock."""
    if clock.offset_s is None:
        return _NO_CLOCK if clock.method == "none" else _NOT_ALIGNED
    if is_alone(clock):
        return _OWN_CLOCK
    words = f"{clock.method}, offset {offset(clock.offset_s)}, ± {seconds(clock.uncertainty_s)}"
    if clock.low_s is None or clock.high_s is None:
        return words
    return f"{words} ({describe_interval(clock)})"


def is_alone(clock: ClockEvidence) -> bool:
    """Whether nothing was recorded beside the profile that its clock could differ from."""
    measured = (clock.offset_s, clock.low_s, clock.high_s)
    return measured == (0.0, 0.0, 0.0) and not any(reason.offsets for reason in clock.evidence)


def describe_interval(clock: ClockEvidence | LogClock) -> str:
    """The interval that the offset lies in, "not known" where there is none."""
    if clock.low_s is None or clock.high_s is None:
        return "not known"
    return range_words(clock.low_s, clock.high_s)


_COUNTED = "Counted: operations by Darshan's counters."
_TRACED = "Traced: operations recorded one by one, which is what times, sizes and overlap rest on."
_NONE_TRACED = "No operation was traced one by one, which is what times and overlap rest on."
_BELOW = "A traced share below 100 % means that the other operations are missing from them."


def draw_coverage(run: Run) -> Figure:
    """Counted and traced operations of each layer."""
    title, layers = "Operations counted and traced", run.coverage.layers
    if not layers:
        reason = "No log with I/O records was found. Record the run with vanidl record."
        return Figure("coverage", "Coverage", title, "", empty_reason=reason)
    # What the columns that are there mean.
    words = []
    if any(layer.counted_ops is not None for layer in layers):
        words.append(_COUNTED)
    traced = any(layer.traced_ops is not None for layer in layers)
    words.append(_TRACED if traced else _NONE_TRACED)
    if any(layer.traced_fraction is not None and layer.traced_fraction < 1 for layer in layers):
        words.append(_BELOW)
    columns = (
        Column("layer"),
        Column("counted", "count"),
        Column("traced", "count"),
        Column("traced share", "share"),
        Column("flagged partial"),
        Column("last traced at", "instant"),
    )
    rows = tuple(
        (
            layer.layer,
            layer.counted_ops,
            layer.traced_ops,
            layer.traced_fraction,
            "yes" if layer.partial else "no",
            layer.last_traced_s,
        )
        for layer in layers
    )
    table = Table(columns, rows).without_empty_columns()
    return Figure("coverage", "Coverage", title, " ".join(words), None, table)


_MARK = {"warning": "!", "info": "-"}


def _write_coverage(run: Run) -> str | None:
    """Every warning, what went wrong before what is worth knowing."""
    warnings = sorted(run.coverage.warnings, key=lambda w: w.severity == "info")
    texts = [
        textwrap.fill(f"{_MARK[w.severity]} {w.code}: {w.message}", WIDTH, subsequent_indent="  ")
        for w in warnings
    ]
    return "\n".join(f"{text}\n" for text in texts) if texts else None


def list_coverage(run: Run) -> list[tuple[str, str]]:
    """How much of each layer was traced, for the block about I/O."""
    return [
        (f"{c.layer} trace", f"{_count_traced(c)} operations traced")
        for c in run.coverage.layers
        if c.traced_ops is not None
    ]


def _count_traced(cover: LayerCoverage) -> str:
    """Traced operations, of how many where the tracer counted them apart."""
    if cover.counted_ops is None:
        return count(cover.traced_ops)
    return f"{count(cover.traced_ops)} of {count(cover.counted_ops)}"


def _collect_coverage(run: Run) -> Object:
    return {
        "complete": run.coverage.complete,
        "warnings": [values_of(w) for w in run.coverage.warnings],
        "layers": {c.layer: values_of(c, without=("layer",)) for c in run.coverage.layers},
    }


_COVERAGE_KIND = {
    "complete": bool,
    "warnings": [Notice],
    "layers": {str: fields_of(LayerCoverage, without=("layer",))},
}
COVERAGE = Section(
    "coverage",
    (draw_coverage,),
    _write_coverage,
    {"coverage": Json(_collect_coverage, _COVERAGE_KIND)},
    traced=False,
)


# How each profile's clock was put on that of the logs, and on what evidence.

MOST_CLOCKS = 100
_CLOCKS_CAPTION = (
    "An offset is added to a profile's times to lay its steps over the I/O. The true one lies in "
    "the interval that all evidence leaves open, and what rests on both clocks is as uncertain. "
    "Evidence that contradicts itself is a warning. "
)
_FORKED = (
    "Logs of forked processes have offsets of their own: Darshan takes their start late, by an "
    "amount that it does not record. "
)

_ALONE = "Only profiles were recorded: there is no log that their clocks have to agree with."


def draw_clocks(run: Run) -> Figure:
    """Method, offset, interval and evidence of the clock of every profile."""
    title = "Clocks of profiles and logs"
    steps = run.steps
    # Without steps the figure does not apply; steps without times need no clock.
    if steps is None or not steps.clocks:
        reason = (
            "The steps have durations and no times: no clock had to be put on that of the logs."
        )
        known = steps is not None
        return Figure("clocks", "Coverage", title, "", empty_reason=reason, applies=known)
    # Nothing beside the profile: there is no other clock to be put on.
    if all(is_alone(clock) for clock in steps.clocks) and not steps.log_clocks:
        return Figure("clocks", "Coverage", title, _ALONE)
    # Of many clocks the least certain ones.
    shown = sorted(steps.clocks, key=_sort_by_certainty)[:MOST_CLOCKS]
    logs = sorted(steps.log_clocks, key=lambda clock: -clock.uncertainty_s)[:MOST_CLOCKS]
    least = [describe_clock(steps.clock), *describe_log_clocks(steps)]
    words = f"The least certain: {'; '.join(least)}."
    rows = tuple(row for clock in shown for row in _list_evidence(clock))
    rows += tuple(row for clock in logs for row in _list_evidence(clock))
    every = len(steps.clocks) + len(steps.log_clocks)
    table = Table(_CLOCKS_COLUMNS, rows, n_of_m(len(shown) + len(logs), every, "clocks"))
    caption = _CLOCKS_CAPTION + (_FORKED if steps.log_clocks else "") + words
    return Figure("clocks", "Coverage", title, caption, table=table)


_CLOCKS_COLUMNS = (
    Column("profile or log of"),
    Column("evidence"),
    Column("offset in"),
    Column("why"),
)


def _sort_by_certainty(clock: ClockEvidence) -> tuple[bool, float]:
    """What is not aligned first, then the least certain."""
    return clock.uncertainty_s is not None, -(clock.uncertainty_s or 0.0)


def _list_evidence(clock: ClockEvidence | LogClock) -> list[tuple[str, ...]]:
    """What all evidence together leaves open, then each kind of it."""
    label, file = elided(clock.label, limit=80), elided(clock.path.rsplit("/", 1)[-1], limit=80)
    together = "not aligned" if clock.offset_s is None else "all together"
    rows: list[tuple[str, ...]] = [(label, together, describe_interval(clock), file)]
    rows += [
        (label, reason.method, reason.offsets, elided(reason.reason, limit=500))
        for reason in clock.evidence
    ]
    return rows


CLOCKS = Section("clocks", (draw_clocks,), traced=False)
