"""The first screen of a report as plain texts and shares: trust, verdict, one bar, actions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vanidl.advice.finding import LOW, PREDICTED, Diagnosis, Finding, Remedy, SlowStep
from vanidl.breakdown import step_bar as parts
from vanidl.breakdown.account import MEAN, RUN
from vanidl.breakdown.causes import METADATA, READ, STORAGE, WRITE
from vanidl.breakdown.step_bar import shows_cell
from vanidl.formatting.names import elided
from vanidl.formatting.units import change, count, percent, plural, seconds
from vanidl.model.run_facts import Ceiling
from vanidl.model.warnings import LOWER_BOUNDS, serious_codes
from vanidl.report.advice import Numbers, numbers, of_one
from vanidl.run import Run
from vanidl.wording.data import traced_share
from vanidl.wording.layers import untraced_beside
from vanidl.wording.lines import line_of_part
from vanidl.wording.step_parts import part_meaning, part_name

GHOSTS = 3
MEASURED = "measured"
_LONG = 400
_RUN_PARTS = (
    (READ, "reading", "Time in reads of the outermost layer of each file."),
    (WRITE, "writing", "Time in writes of the outermost layer of each file, syncs included."),
    (METADATA, "metadata calls", "Time in open, stat, close and the like."),
)
_OPEN = "possibly I/O"
_OPEN_MEANING = "Neither counters nor traces tell whether this time was storage."
_IN_STORAGE = "Time in storage calls of unknown kind."
_SHOWN = 1e-4  # of the run: shorter parts are left out
_OTHER_TIME = "The rest of the run."
_PROOF = {
    parts.COLLECTIVES: "#overlap",
    parts.COMPUTED: "#overlap",
    parts.REST: "#steps",
}
_CLASS = {
    parts.IO_WAIT: "io",
    parts.OTHER_WAIT: "decode",
    parts.INPUT_WAIT: "io",
    parts.DELIVERY_WAIT: "decode",
    parts.WORKERS_WAIT: "decode",
    parts.DECODING_WAIT: "decode",
    parts.BLOCKED_WAIT: "decode",
    parts.CORES_WAIT: "decode",
    parts.PREPARE: "rest",
    parts.FORWARD: "compute",
    parts.BACKWARD: "compute",
    parts.OPTIMIZER: "compute",
    parts.BEHIND: "rest",
    parts.COLLECTIVES: "comm",
    parts.COMPUTED: "compute",
    parts.OWN_IO: "io",
    parts.COPYING: "comm",
    parts.IDLE: "rest",
    parts.REST: "rest",
}


@dataclass(frozen=True, slots=True)
class Link:
    """A text linked to its evidence; `doubtful` where it limits the answer."""

    text: str
    href: str
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class BarPart:
    """One part of the bar; `share` in per cent of its length."""

    style: str
    name: str
    amount: str
    percent: str
    share: float
    meaning: str
    href: str
    key: str  # of the cell whose least it is; "" of what is left beside cells
    line: str = ""  # of the program that takes most of it, with its share of the whole


@dataclass(frozen=True, slots=True)
class Ghost:
    """The same step under one change: its length in per cent of the step now."""

    name: str
    amount: str
    share: float
    href: str
    basis: str


@dataclass(frozen=True, slots=True)
class Bar:
    """The bar and its ghosts. `label` says all of it in a sentence."""

    title: str
    parts: tuple[BarPart, ...]
    ghosts: tuple[Ghost, ...]
    label: str
    note: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """One folded finding."""

    code: str
    severity: str
    title: str
    detail: str
    advice: str
    gain: str
    numbers: Numbers


@dataclass(frozen=True, slots=True)
class Action:
    """One diagnosis as a card."""

    code: str
    severity: str
    title: str
    effect: str
    reason: str
    evidence: tuple[Evidence, ...]
    remedies: tuple[Remedy, ...]
    proof: str
    show: tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class FirstScreen:
    """Everything above the fold, and what folds out of it."""

    name: str
    facts: tuple[str, ...]
    trust: tuple[Link, ...]
    verdict: str
    bar: Bar | None
    actions: tuple[Action, ...]


def first_screen(run: Run) -> FirstScreen:
    """The first screen of a run."""
    return FirstScreen(
        name=elided(run.name or run.trace.job.command or "run", limit=80),
        facts=tuple(_facts(run)),
        trust=tuple(_trust(run)),
        verdict=run.verdict,
        bar=_bar(run),
        actions=tuple(_action(d) for d in run.diagnoses),
    )


def _facts(run: Run) -> Iterator[str]:
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


def _trust(run: Run) -> Iterator[Link]:
    yield from _operations(run)
    yield from _steps_and_clock(run)
    serious = sum(w.severity != "info" for w in run.coverage.warnings)
    if serious:
        yield Link(plural(serious, "warning"), "#coverage", doubtful=True)


def _operations(run: Run) -> Iterator[Link]:
    """How much of one layer, by name, was traced; layers beside it may not have been."""
    layers = {layer.layer: layer for layer in run.coverage.layers}
    layer = layers.get(run.summary.layer)
    fraction = layer.traced_fraction if layer else None
    others, share = untraced_beside(run.coverage, run.summary)
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


def _steps_and_clock(run: Run) -> Iterator[Link]:
    steps = run.steps
    if steps is None:
        yield Link("no steps recorded", "#steps", doubtful=True)
        return
    within = steps.clock.within_s
    if within == 0 and not run.trace.logs:  # there is nothing that it could differ from
        yield Link("one clock", "#clocks")
    elif within is not None:
        yield Link(f"clock within {seconds(within)}", "#clocks", within > steps.median_s / 2)
    else:
        yield Link("clocks not aligned", "#clocks", doubtful=True)
    if steps.counted is None:
        yield Link(f"{plural(steps.per_rank_max, 'step')} profiled", "#steps")
    else:
        text = f"{count(steps.per_rank_max)} of about {count(steps.counted)} steps profiled"
        yield Link(text, "#steps", 2 * steps.per_rank_max < steps.counted)


def _bar(run: Run) -> Bar | None:
    whole = run.step_parts
    if whole is None:
        return _run_bar(run)
    lossy = bool(LOWER_BOUNDS & serious_codes(run.coverage.warnings))
    found = tuple(
        BarPart(
            _CLASS[part.code],
            part_name(part.code, whole, lossy=lossy),
            seconds(part.seconds),
            percent(part.share),
            100 * part.share,
            part_meaning(part.code, whole, lossy=lossy),
            _PROOF.get(part.code, "#overlap"),
            part.key,
            line_of_part(part.code, whole, run.lines),
        )
        for part in whole.parts
    )
    over = f"mean of {plural(whole.steps * whole.ranks, 'step')}"
    ranks = f", {plural(whole.ranks, 'rank')}" if whole.ranks > 1 else ""
    title = f"One step: {seconds(whole.mean_s)}"
    words = ", ".join(f"{p.name} {p.amount} ({p.percent})" for p in found)
    ghosts = (*_ceiling(run.ceiling, whole.mean_s), *_ghosts(run.diagnoses, len(run.trace.ranks)))
    than = "; ".join(f"{g.name}: {g.amount}" for g in ghosts)
    label = f"{title}: {words}." + (f" With a change: {than}." if than else "")
    return Bar(title, found, ghosts, label, _marked(f"{over}{ranks}", run))


def _run_bar(run: Run) -> Bar | None:
    """Without steps: how much of the run was storage, by kind of call, and what is unknown."""
    account = run.breakdown
    column = account.columns.get(f"{RUN}/{STORAGE}")
    run_ns = float(account.window_ns)
    if column is None or not column.evidence or not run_ns:
        return None
    storage = account.cell(f"{MEAN}/{RUN}/{STORAGE}")
    rows: list[tuple[str, str, float, str, str]] = []
    known_ns = 0.0
    for part, name, meaning in _RUN_PARTS:
        key = f"{MEAN}/{RUN}/{STORAGE}.{part}"
        spent_ns = min(float(account.cell(key).low_ns), storage.low_ns - known_ns)
        known_ns += spent_ns
        rows.append(("run-io", name, spent_ns, meaning, key))
    key = f"{MEAN}/{RUN}/{STORAGE}"
    rows.append(("run-io", "other I/O", storage.low_ns - known_ns, _IN_STORAGE, key))
    rows.append(("decode", _OPEN, float(storage.high_ns - storage.low_ns), _OPEN_MEANING, key))
    rows.append(("rest", "not in I/O", run_ns - storage.high_ns, _OTHER_TIME, key))
    found = tuple(
        BarPart(
            style, name, seconds(spent / 1e9), percent(spent / run_ns), 100 * spent / run_ns,
            meaning, "#summary", key if shows_cell(account, key, spent) else "",
        )
        for style, name, spent, meaning, key in rows
        if spent > _SHOWN * run_ns
    )  # fmt: skip
    title = f"The run: {seconds(run_ns / 1e9)}"
    words = ", ".join(f"{p.name} {p.amount} ({p.percent})" for p in found)
    note = "mean over ranks" if len(run.trace.ranks) > 1 else "one rank"
    return Bar(title, found, (), f"{title}: {words}.", _marked(note, run))


def _marked(note: str, run: Run) -> str:
    """The note, with the share of operations that was traced if not all were."""
    share = traced_share(run.coverage, run.summary.layer)
    return f"{note}; {share}" if share else note


def _ghosts(diagnoses: Sequence[Diagnosis], ranks: int) -> tuple[Ghost, ...]:
    shorter = [d for d in diagnoses if d.step_s is not None and d.now_s]
    return tuple(
        Ghost(of_one(d.change or d.title, ranks), change(d.now_s or 0.0, d.step_s or 0.0),
              100 * (d.step_s or 0.0) / (d.now_s or 1.0), f"#action-{d.code}", d.basis)
        for d in shorter[:GHOSTS]
    )  # fmt: skip


def _ceiling(found: Ceiling | None, mean_s: float) -> Iterator[Ghost]:
    """The step with batches from memory, as a share of the steps measured beside it."""
    if found is not None and found.low > 0:
        share = 1 - found.cost
        amount = change(mean_s, share * mean_s)
        yield Ghost("input from memory", amount, 100 * share, "#ceiling", MEASURED)


def _action(diagnosis: Diagnosis) -> Action:
    first = diagnosis.findings[0]
    return Action(
        diagnosis.code,
        diagnosis.severity,
        elided(diagnosis.title, limit=_LONG),
        effect(diagnosis),
        elided(first.title, limit=_LONG),
        tuple(_evidence(finding) for finding in diagnosis.findings),
        diagnosis.remedies,
        "\n".join(elided(line, limit=2000) for line in diagnosis.proof.splitlines()),
        tuple(_shown(step) for step in diagnosis.show) if diagnosis.severity != LOW else (),
    )


def effect(diagnosis: Diagnosis) -> str:
    """`423 to 169 ms per step, predicted`; "" where no gain is known."""
    if diagnosis.now_s is not None and diagnosis.step_s is not None:
        basis = "predicted" if diagnosis.basis == PREDICTED else "at best"
        return f"{change(diagnosis.now_s, diagnosis.step_s)} per step, {basis}"
    if diagnosis.saved_share:
        return f"at best {percent(diagnosis.saved_share)} of the run"
    return ""


def _evidence(finding: Finding) -> Evidence:
    gain = finding.gain_at_most_s
    return Evidence(
        finding.code,
        finding.severity,
        elided(finding.title, limit=_LONG),
        elided(finding.detail, limit=1000),
        finding.advice,
        "" if gain is None else f"gains at most {seconds(gain)} per rank",
        numbers(finding.evidence),
    )


def _shown(step: SlowStep) -> Link:
    """A step in the timeline, with some of the time before and after it."""
    room = 0.25 * (step.end_s - step.start_s)
    low, high = max(step.start_s - room, 0.0), step.end_s + room
    waited, long_s = step.wait_s, step.end_s - step.start_s
    took = f"took {seconds(long_s)}" if waited is None else f"waited {seconds(waited)}"
    href = f"#t={low:.6f}-{high:.6f}&rank={step.position}"
    return Link(f"step {step.step} of {elided(step.rank, limit=40)} ({took})", href)
