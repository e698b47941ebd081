"""The first screen of a report as plain texts and shares: trust, verdict, one bar, actions."""

from __future__ import annotations

from collections.abc import Iterator

from vanidl.formatting.names import elided
from vanidl.formatting.units import count, percent, plural, seconds
from vanidl.run import Run
from vanidl.schema.dataclass import dataclass
from vanidl.sections.actions import Action, Link, make_action
from vanidl.sections.step_bar import Bar, draw_bar
from vanidl.wording.tracing import find_untraced


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything above the fold, and what folds out of it."""

    name: str
    facts: tuple[str, ...]
    trust: tuple[Link, ...]
    verdict: str
    bar: Bar | None
    actions: tuple[Action, ...]


def make_overview(run: Run) -> Overview:
    """The first screen of a run."""
    return Overview(
        name=elided(run.name or run.trace.job.command or "run", limit=80),
        facts=tuple(_list_facts(run)),
        trust=tuple(_list_trust(run)),
        verdict=run.verdict,
        bar=draw_bar(run),
        actions=tuple(make_action(d) for d in run.diagnoses),
    )


def _list_facts(run: Run) -> Iterator[str]:
    trace = run.trace
    if run.name and trace.job.command:
        yield elided(trace.job.command, limit=90)
    hosts = len({p.host for p in trace.processes if p.host})
    ranks = plural(len(trace.ranks), "rank")
    results = [r for r in run.benchmarks if r.accelerators]
    if results and len(trace.ranks) < (results[0].accelerators or 0):  # they left no steps
        ranks = plural(results[0].accelerators or 0, "accelerator")
        hosts = results[0].hosts or hosts
    yield f"{ranks} on {plural(hosts, 'host')}" if hosts else ranks
    yield f"{seconds(trace.job.run_time_s)} wall time"


def _list_trust(run: Run) -> Iterator[Link]:
    """What the numbers rest on: operations, clocks and steps, and how many warnings there are."""
    # How much of one layer, by name, was traced; layers beside it may not have been.
    layers = {layer.layer: layer for layer in run.coverage.layers}
    layer = layers.get(run.summary.layer)
    fraction = layer.traced_fraction if layer else None
    others, share = find_untraced(run.coverage, run.summary)
    which = f"{run.summary.layer} operations"
    if fraction is not None:
        yield Link(f"{percent(fraction)} of {which} traced", "#coverage", fraction < 1)
    elif run.summary.source == "trace":
        yield Link(f"{count(run.summary.ops)} {which} traced", "#coverage")
    else:
        yield Link("no individual operations traced", "#coverage", doubtful=True)
    if others:
        text = f"{percent(share)} of bytes through {' and '.join(others)}, not traced"
        yield Link(text, "#coverage", doubtful=True)

    # How well the clock of the steps is known, and how many of them were profiled.
    steps = run.steps
    within = None if steps is None else steps.clock.within_s
    if steps is None:
        yield Link("no steps recorded", "#steps", doubtful=True)
    elif within == 0 and not run.trace.logs:  # there is nothing that it could differ from
        yield Link("one clock", "#clocks")
    elif within is not None:
        yield Link(f"clock within {seconds(within)}", "#clocks", within > steps.median_s / 2)
    else:
        yield Link("clocks not aligned", "#clocks", doubtful=True)
    if steps is not None and steps.counted is None:
        yield Link(f"{plural(steps.per_rank_max, 'step')} profiled", "#steps")
    elif steps is not None and steps.counted is not None:
        text = f"{count(steps.per_rank_max)} of about {count(steps.counted)} steps profiled"
        yield Link(text, "#steps", 2 * steps.per_rank_max < steps.counted)
    if serious := sum(w.severity != "info" for w in run.coverage.warnings):
        yield Link(plural(serious, "warning"), "#coverage", doubtful=True)
