"""The mean step as one bar: its parts, what each is called and means, and its costliest lines.

Of a run without steps the bar is the run itself: how much of it was storage, and what is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from vanidl.breakdown import Breakdown
from vanidl.breakdown import step_bar as parts
from vanidl.breakdown.account import MEAN, RUN
from vanidl.breakdown.assumptions import BLOCKING
from vanidl.breakdown.causes import FAULT, METADATA, OBJECT, READ, STORAGE, WRITE
from vanidl.breakdown.step_bar import StepParts, is_least_of_cell
from vanidl.formatting.units import change, change_between, percent, plural, seconds
from vanidl.model.warnings import LOWER_BOUNDS, serious_codes
from vanidl.run import Run
from vanidl.schema.dataclass import dataclass
from vanidl.sections.actions import name_both_ends, name_for_ranks
from vanidl.sections.section import Json, Object, Section, values_of
from vanidl.wording.results import ENOUGH, MATTERS, name_line
from vanidl.wording.tracing import describe_traced_share

if TYPE_CHECKING:
    from vanidl.analyses.lines import Line, Lines, PartLines

_NAMES = {
    parts.IO_WAIT: "waiting for I/O",
    parts.OTHER_WAIT: "waiting, not for I/O",
    parts.INPUT_WAIT: "waiting for input",
    parts.DELIVERY_WAIT: "waiting for delivery",
    parts.WORKERS_WAIT: "waiting for workers to start",
    parts.DECODING_WAIT: "waiting for decoding",
    parts.BLOCKED_WAIT: "waiting for a lock, the network or a timer",
    parts.CORES_WAIT: "waiting for a free core",
    parts.PREPARE: "before the model",
    parts.FORWARD: "forward",
    parts.BACKWARD: "backward",
    parts.OPTIMIZER: "optimizer",
    parts.BEHIND: "behind the model",
    parts.COLLECTIVES: "communication",
    parts.PEERS: "waiting for other ranks",
    parts.COMPUTED: "computing",
    parts.OWN_IO: "I/O between waits",
    parts.COPYING: "copying to or from the device",
    parts.IDLE: "device idle",
    parts.REST: "other",
}
_EXPLAINED = {
    parts.IO_WAIT: "Of the input waits what the fetch of the late batch spent in storage.",
    parts.OTHER_WAIT: "Input wait that was no storage: decoding, augmenting, collating, locks or "
    "too few cores, which nothing recorded tells apart.",
    parts.INPUT_WAIT: "Input wait of which is not known how much was storage.",
    parts.DELIVERY_WAIT: "The batch was made, its worker idle: it was on its way to the training "
    "process.",
    parts.WORKERS_WAIT: "Workers were being started.",
    parts.DECODING_WAIT: "Of the input waits what the fetch of the late batch computed: decoding, "
    "augmenting, collating.",
    parts.BLOCKED_WAIT: "The fetch of the late batch was blocked: on a lock, a socket, a timer or "
    "a child process.",
    parts.CORES_WAIT: "The fetch of the late batch could have run, and no core was free.",
    parts.PREPARE: "The batch is in hand and the model not yet called: what the loop does to it.",
    parts.FORWARD: "The forward pass, and the loss.",
    parts.BACKWARD: "The backward pass.",
    parts.OPTIMIZER: "The step of the optimizer.",
    parts.BEHIND: "What the loop does after the optimizer: metrics, logging.",
    parts.COLLECTIVES: "Collectives that no compute covers. A rank that waits for another rank's "
    "input waits here.",
    parts.PEERS: "In collectives that another rank had not reached: what each took longer than for "
    "the rank that came last.",
    parts.COMPUTED: "Recorded compute.",
    parts.OWN_IO: "Reads, writes and metadata calls of the training thread outside input waits.",
    parts.COPYING: "Copies of the device that run under no kernel.",
    parts.IDLE: "Outside input waits no device work was recorded.",
    parts.REST: "Neither input wait nor recorded compute: computing that no profile recorded, the "
    "loop itself, logging.",
}
_UNKNOWN_REST = "computing or waiting"
_UNKNOWN_EXPLAINED = "Input waits were not recorded, so this time cannot be divided."
_IDLE_EXPLAINED = (
    "No work of the device was recorded: it waited for the host, for input or for storage, which "
    "cannot be told apart, as input waits were not recorded."
)
_HOST_BOUND_EXPLAINED = (
    "Outside input waits no work of the device was recorded: it waited for the host, which "
    "prepared or launched work, or was in storage."
)
_UNPROFILED_REST = "computing, or other work"
_UNPROFILED_EXPLAINED = (
    "Between input waits; compute was not recorded by a profiler, so it cannot be told from other "
    "work of the loop."
)
_TIMED = "computing that was timed"
_TIMED_EXPLAINED = "Work of the device whose times can be true; other work of it has none."
_UNTIMED = "computing, idle or other"
_UNTIMED_EXPLAINED = (
    "Neither input wait nor timed work of the device: work without times, or a device without work."
)
_LOSSY = "waiting, no I/O seen"
_LOSSY_EXPLAINED = "Input wait outside any recorded I/O. Not all I/O was recorded."


def name_part(code: str, whole: StepParts, *, lossy: bool, in_part: bool = False) -> str:
    """`waiting for I/O`. `lossy`: the trace lacks I/O; `in_part`: or work of devices."""
    return _word_part(code, whole, lossy=lossy, in_part=in_part)[0]


def explain_part(code: str, whole: StepParts, *, lossy: bool, in_part: bool = False) -> str:
    """What the part is."""
    return _word_part(code, whole, lossy=lossy, in_part=in_part)[1]


def _word_part(code: str, whole: StepParts, *, lossy: bool, in_part: bool) -> tuple[str, str]:
    codes = {part.code for part in whole.parts}
    # Where the device was timed in part, computing is what was timed.
    if in_part and code == parts.COMPUTED:
        return _TIMED, _TIMED_EXPLAINED
    if in_part and code == parts.REST:
        return _UNTIMED, _UNTIMED_EXPLAINED
    # The rest is named by how much of the step was recorded: device, waits, operations.
    if code == parts.REST and whole.device_known:
        explained = _HOST_BOUND_EXPLAINED if whole.waits_known else _IDLE_EXPLAINED
        return _NAMES[parts.IDLE], explained
    if code == parts.REST and not whole.waits_known:
        return _UNKNOWN_REST, _UNKNOWN_EXPLAINED
    if code == parts.REST and not codes & {
        parts.COMPUTED,
        parts.FORWARD,
        parts.BACKWARD,
        parts.IDLE,
    }:
        return _UNPROFILED_REST, _UNPROFILED_EXPLAINED
    if code == parts.OTHER_WAIT and lossy:
        return _LOSSY, _LOSSY_EXPLAINED
    return _NAMES[code], _EXPLAINED[code]


_ALL: Callable[[Line], float] = lambda line: line.share  # noqa: E731


_BY_CPU: Callable[[Line], float] = lambda line: line.cpu_share  # noqa: E731


_BY_BLOCKED: Callable[[Line], float] = lambda line: line.blocked_share  # noqa: E731


_OF_WAITS = {parts.IO_WAIT: _BY_BLOCKED, parts.OTHER_WAIT: _BY_CPU, parts.INPUT_WAIT: _ALL}


_OF_STEPS = (parts.PREPARE, parts.BEHIND, parts.COMPUTED, parts.REST)


def find_line_of_part(code: str, whole: StepParts, lines: Lines | None) -> str:
    """The costliest line of a part of the step, with its share of the step; "" for none.

    Waits have the lines of fetches: those of storage what was blocked, other work what was on the
    processor. What lies between waits has the lines of the loop.
    """
    if lines is None:
        return ""
    if code in _OF_WAITS:
        share = next(part.share for part in whole.parts if part.code == code)
        return _find_costliest(lines.fetch, _OF_WAITS[code], share)
    codes = [part.code for part in whole.parts]
    # The last part between waits that the bar has stands for all of them.
    if code == next((c for c in reversed(_OF_STEPS) if c in codes), None):
        between = sum(part.share for part in whole.parts if part.code not in parts.WAITS)
        return _find_costliest(lines.loop, _ALL, between)
    return ""


def _find_costliest(part: PartLines | None, cost: Callable[[Line], float], of_step: float) -> str:
    if part is None or part.samples < ENOUGH:
        return ""
    line = max(part.lines, key=cost)
    return f"{name_line(line)} {percent(cost(line) * of_step)}" if cost(line) >= MATTERS else ""


GHOSTS = 3  # shorter bars below: what the step would be after each change


MEASURED = "measured"


_RUN_PARTS = (
    (READ, "reading", "Time in reads of the outermost layer of each file."),
    (WRITE, "writing", "Time in writes of the outermost layer of each file, syncs included."),
    (METADATA, "metadata calls", "Time in open, stat, close, unlink and the like."),
)


_NO_WRITING = (READ, METADATA, FAULT, OBJECT)


_OPEN = "possibly I/O"


_OPEN_MEANING = "Neither counters nor traces tell whether this time was storage."


_IN_STORAGE = "Time in storage calls of unknown kind."


_SHOWN = 1e-4  # of the run: shorter parts are left out


_OTHER_TIME = "The rest of the run."


_PROOFS = {
    parts.COLLECTIVES: "#overlap",
    parts.PEERS: "#overlap",
    parts.COMPUTED: "#overlap",
    parts.REST: "#steps",
}


_STYLES = {
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
    parts.PEERS: "comm",
    parts.COMPUTED: "compute",
    parts.OWN_IO: "io",
    parts.COPYING: "comm",
    parts.IDLE: "rest",
    parts.REST: "rest",
}


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
    """The same step under one change: its length in per cent of the step now, and that at worst."""

    name: str
    amount: str
    share: float
    href: str
    basis: str
    share_at_most: float | None = None  # where an action says both ends of its gain


@dataclass(frozen=True, slots=True)
class Bar:
    """The bar and its ghosts. `label` says all of it in a sentence."""

    title: str
    parts: tuple[BarPart, ...]
    ghosts: tuple[Ghost, ...]
    label: str
    note: str


def draw_bar(run: Run) -> Bar | None:
    """The mean step, or the run where no step was recorded; None where neither is known."""
    whole = run.step_parts
    if whole is None:
        return _draw_run_bar(run)
    lossy = bool(LOWER_BOUNDS & serious_codes(run.coverage.warnings))
    in_part = any(profile.device_in_part for profile in run.trace.profiles)
    # The parts of the mean step, each with its proof and the line of code that it is mostly in.
    bar_parts = tuple(
        BarPart(
            _STYLES[part.code],
            name_part(part.code, whole, lossy=lossy, in_part=in_part),
            seconds(part.seconds),
            percent(part.share),
            100 * part.share,
            explain_part(part.code, whole, lossy=lossy, in_part=in_part),
            _PROOFS.get(part.code, "#overlap"),
            part.key,
            find_line_of_part(part.code, whole, run.lines),
        )
        for part in whole.parts
    )
    over = f"mean of {plural(whole.steps * whole.ranks, 'step')}"
    ranks = f", {plural(whole.ranks, 'rank')}" if whole.ranks > 1 else ""
    title = f"One step: {seconds(whole.mean_s)}"
    words = ", ".join(f"{p.name} {p.amount} ({p.percent})" for p in bar_parts)
    # Below it what the step would be: measured with batches from memory, or predicted of a change.
    ghosts: list[Ghost] = []
    if (ceiling := run.ceiling) is not None and ceiling.low > 0:
        # As a share of the steps that were measured beside it.
        share = 1 - ceiling.cost
        amount = change(whole.mean_s, share * whole.mean_s)
        ghosts.append(Ghost("input from memory", amount, 100 * share, "#ceiling", MEASURED))
    shorter = [d for d in run.diagnoses if d.step_s is not None and d.now_s]
    for diagnosis in shorter[:GHOSTS]:
        now_s, then_s = diagnosis.now_s or 0.0, diagnosis.step_s or 0.0
        name = name_for_ranks(diagnosis.change or diagnosis.title, len(run.trace.ranks))
        share, href = 100 * then_s / (now_s or 1.0), f"#action-{diagnosis.code}"
        amount, most = change(now_s, then_s), None
        if (ends := name_both_ends(diagnosis)) is not None:
            amount, most = change_between(now_s, *ends), 100 * ends[1] / (now_s or 1.0)
        ghosts.append(Ghost(name, amount, share, href, diagnosis.basis, most))
    # All of it in words, for who does not see the bar.
    than = "; ".join(f"{g.name}: {g.amount}" for g in ghosts)
    label = f"{title}: {words}." + (f" With a change: {than}." if than else "")
    return Bar(title, bar_parts, tuple(ghosts), label, _note_traced(f"{over}{ranks}", run))


def _draw_run_bar(run: Run) -> Bar | None:
    """Without steps: how much of the run was storage, by kind of call, and what is unknown."""
    account = run.breakdown
    column = account.columns.get(f"{RUN}/{STORAGE}")
    run_ns = float(account.window_ns)
    if column is None or not column.evidence or not run_ns:
        return None
    storage = account.cell(f"{MEAN}/{RUN}/{STORAGE}")
    most_ns = min(float(storage.high_ns), run_ns)
    # Parts at their least, which together may not exceed the least of all storage.
    rows: list[tuple[str, str, float, str, str]] = []
    known_ns = 0.0
    for part, name, meaning in _RUN_PARTS:
        key = f"{MEAN}/{RUN}/{STORAGE}.{part}"
        spent_ns = float(account.cell(key).low_ns)
        if part == WRITE:
            spent_ns = max(spent_ns, _bound_writing_ns(account))
        spent_ns = min(spent_ns, storage.low_ns - known_ns)
        known_ns += spent_ns
        rows.append(("run-io", name, spent_ns, meaning, key))
    key = f"{MEAN}/{RUN}/{STORAGE}"
    # What is left: other storage, what may be storage, and what is surely none.
    rows.append(("run-io", "other I/O", storage.low_ns - known_ns, _IN_STORAGE, key))
    rows.append(("decode", _OPEN, most_ns - storage.low_ns, _OPEN_MEANING, key))
    rows.append(("rest", "not in I/O", run_ns - most_ns, _OTHER_TIME, key))
    # Too narrow parts could not be seen.
    bar_parts = tuple(
        BarPart(
            style, name, seconds(spent / 1e9), percent(spent / run_ns), 100 * spent / run_ns,
            meaning, "#summary", key if is_least_of_cell(account, key, spent) else "",
        )
        for style, name, spent, meaning, key in rows
        if spent > _SHOWN * run_ns
    )  # fmt: skip
    whose = "A host (hosts do not overlap in time)" if account.hosts_apart else "The run"
    title = f"{whose}: {seconds(run_ns / 1e9)}"
    words = ", ".join(f"{p.name} {p.amount} ({p.percent})" for p in bar_parts)
    note = "mean over ranks" if len(run.trace.ranks) > 1 else "one rank"
    return Bar(title, bar_parts, (), f"{title}: {words}.", _note_traced(note, run))


def _bound_writing_ns(account: Breakdown) -> float:
    """At least so much of the storage of a run was writing or syncing, which one counter may time.

    What no other part can have had; or the writes of a layer, where calls come one at a time.
    """
    if f"{RUN}/{STORAGE}.{WRITE}" not in account.columns:
        return 0.0  # nothing tells parts of its storage apart
    storage = account.cell(f"{MEAN}/{RUN}/{STORAGE}")
    others = [account.cell(f"{MEAN}/{RUN}/{STORAGE}.{part}") for part in _NO_WRITING]
    alone_ns = storage.low_ns - sum(cell.high_ns for cell in others)
    counted_s = max((write_s for _, write_s, _ in account.layers.values()), default=0.0)
    counted_ns = 1e9 * counted_s if BLOCKING in storage.assumed else 0.0
    return max(alone_ns, min(counted_ns, storage.low_ns - sum(cell.low_ns for cell in others)), 0.0)


def _note_traced(note: str, run: Run) -> str:
    """The note, with the share of operations that was traced if not all were."""
    share = describe_traced_share(run.coverage, run.summary.layer)
    return f"{note}; {share}" if share else note


def _collect_step_parts(run: Run) -> Object | None:
    return None if run.step_parts is None else values_of(run.step_parts)


STEP_BAR = Section("step bar", json={"step_parts": Json(_collect_step_parts, StepParts | None)})
