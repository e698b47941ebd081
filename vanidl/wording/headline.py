"""The answer in words: where training time goes to I/O, and whether it was hidden.

A pure function of trace and results, so that page, terminal and JSON say the same. Every
sentence must stay true when something was not recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from vanidl.analyses.results import Results
from vanidl.analyses.summary import Summary, has_separate_objects
from vanidl.breakdown import Breakdown
from vanidl.breakdown.account import EPOCH_END, MEAN, PHASE, WAIT
from vanidl.breakdown.causes import STORAGE
from vanidl.formatting.names import elided
from vanidl.formatting.units import count, nbytes, percent, plural, seconds
from vanidl.model.run_facts import describe_ending
from vanidl.model.trace import INFERENCE, UNSURE, Trace
from vanidl.model.warnings import LOWER_BOUNDS, UNREAD, serious_codes
from vanidl.schema.dataclass import dataclass
from vanidl.wording.account import (
    BLOCKS,
    WAIT_WORDS,
    describe_device,
    describe_storage,
    describe_tracing,
    describe_waits,
    describe_work_outside,
    find_lead,
    is_storage_known,
    name_hidden,
    name_steps,
)
from vanidl.wording.cells import SaidCell, cells_of, mark_cell, settle
from vanidl.wording.results import (
    describe_benchmark,
    describe_ceiling,
    describe_memory,
    describe_placement,
    describe_slower,
    list_costly_lines,
)
from vanidl.wording.tracing import (
    begin_part,
    describe_by_counters,
    describe_daos,
    describe_moved,
    describe_objects,
    describe_stdio,
    name_tracer,
)

if TYPE_CHECKING:
    from vanidl.breakdown.overlap import Overlap, RankOverlap

MOSTLY = 0.5  # from half on
_SURE = 1.01  # of the lower end: up to there it is said without the upper one
NEARLY_ALL = 0.9  # of the steps: at this share the answer is of all of them
START_UP, AFTER_STEPS = "start-up", "after the last step"
_REAL = 0.1  # of the time in steps: shorter windows beside training are not named
COMPLETE = 0.99  # traced fraction at which times are taken as whole
_WINDOWS = {
    "start_up": START_UP,
    EPOCH_END: "ends of epochs",
    "validation": "validation",
    "checkpoint": "checkpoints",
    "load": "loads of checkpoints",
    "compile": "compiling",
    "skipped": "batches without a step",
    "other": "time between steps",
    "tail": AFTER_STEPS,
}
_PURPOSES = {
    INFERENCE: "No gradient was computed: the steps are batches of inference.",
    UNSURE: "Whether the steps train is not known (vanidl record --train, or vanidl.step()).",
}
"""Said first: what follows speaks of training."""
_DATASET_UNSEEN = (
    "Hardly any byte of the dataset is in the log: the processes that read it left none."
)
_MISSING = {
    "records_exhausted": "Darshan ran out of records, so whole files may be missing",
    "damaged": "a file is damaged",
    "unreadable": "a file could not be read",
}


@dataclass(frozen=True, slots=True)
class Headline:
    """The answer in one sentence, and what a reader must know beside it.

    `ending` comes before it: that the program failed, "" where it did not. Sentences know which
    cells of the account their numbers are of.
    """

    title: str
    support: tuple[str, ...]
    ending: str = ""

    def __str__(self) -> str:
        return " ".join(_keep_present(self.ending, self.title, *self.support))

    @property
    def cells(self) -> tuple[SaidCell, ...]:
        """Every number of a cell that it says."""
        return cells_of(self.ending, self.title, *self.support)


def _settle(title: str, support: Sequence[str], ending: str) -> Headline:
    return Headline(settle(title), tuple(map(settle, support)), settle(ending))


def make_headline(trace: Trace, results: Results, account: Breakdown) -> Headline:
    """One title sentence and the supporting sentences that apply."""
    overlap, ending = account.overlap, describe_ending(trace.ending)
    if overlap is None:
        # No steps to lay I/O over: the run as a whole, or the results of a benchmark alone.
        title = _describe_without_overlap(trace, results, account)
        # What the run was for may be in no log: that comes before all that was recorded.
        unseen = ""
        if "dataset_not_seen" in serious_codes(results.coverage.warnings):
            unseen = _DATASET_UNSEEN
        summed = describe_benchmark(results.benchmarks)
        if summed and results.steps is None and not results.summary.source:
            unseen, title = summed, "Single steps and reads were not recorded: why is not known."
            summed = ""
        support = _keep_present(
            title if unseen else "",
            summed,
            _list_missing(trace, results),
            _describe_untraced(results),
            _describe_ceiling(trace, account),
            _describe_moved_elsewhere(title, results.summary),
            describe_placement(results.placement),
            *list_costly_lines(results.lines),
            describe_memory(results.memory, trace.ending),
            describe_stdio(results.summary),
            describe_objects(results.summary),
        )
        return _settle(unseen or title, support, ending)
    # What costs most leads; how long training waited follows where that is something else.
    waited = _limit_scope(_describe_waits_of_steps(trace, results, overlap, account), results)
    lead = find_lead(account, "inference" if trace.purpose == INFERENCE else "training")
    title = (_limit_scope(lead.sentence, results) if lead.in_steps else lead.sentence) or waited
    if (devices := count_devices(trace)) > 1:
        title = title.replace("The device was idle", f"All {devices} devices were idle", 1)
    title = " ".join(_keep_present(_PURPOSES.get(trace.purpose, ""), title))
    support = _keep_present(
        waited if lead.sentence else "",
        describe_benchmark(results.benchmarks),
        _list_missing(trace, results),
        _describe_untraced(results),
        _describe_ceiling(trace, account),
        describe_tracing(account, title),
        _describe_cached(trace),
        describe_beside(account, lead.window),
        _describe_starving(overlap),
        describe_work_outside(account),
        *list_costly_lines(results.lines),
        describe_memory(results.memory, trace.ending),
        _describe_ranks(overlap, account),
        _describe_communication(overlap),
        _describe_unobserved(overlap),
        _describe_counted(overlap, results.summary),
        describe_stdio(results.summary),
        describe_objects(results.summary),
    )
    return _settle(title, support, ending)


def _describe_cached(trace: Trace) -> str:
    """Which epochs came from the page cache: they say nothing of the storage."""
    from vanidl.breakdown.page_cache import find_epoch_reads

    epochs = find_epoch_reads(trace)
    cached = [each for each in epochs if each.from_cache]
    if not cached:
        return ""
    read = nbytes(sum(each.read_nbytes for each in cached))
    numbers = [each.epoch + 1 for each in cached]
    in_turn = numbers == list(range(numbers[0], numbers[-1] + 1)) and len(numbers) > 1
    which = f"{numbers[0]} to {numbers[-1]}" if in_turn else ", ".join(map(str, numbers))
    which = f"{'epochs' if len(numbers) > 1 else 'epoch'} {which}"
    if len(cached) == len(epochs):
        # Short epochs are not told apart: of these nothing is said.
        every = {number + 1 for number in trace.fetches.epoch.tolist() if number >= 0}
        scope = "" if every <= set(numbers) else f" in {which}"
        return (
            f"Nothing of the {read} that fetches read{scope} came from a device: all of it lay in "
            "the page cache, or its file system does not count (network, FUSE), which cannot be "
            "told."
        )
    if not any(each.from_device for each in epochs):
        return ""
    # Some epochs came from memory, others from a device: only the latter show the storage.
    return (
        f"{which.capitalize()} came from the page cache ({read} read, "
        f"{nbytes(sum(each.device_nbytes for each in cached))} of it from devices): how fast the "
        "storage is, other epochs show."
    )


def _describe_ceiling(trace: Trace, account: Breakdown) -> str:
    """What input costs, and what of that is no wait for it."""
    if trace.ceiling is None:
        return ""
    slower = describe_slower(trace.ceiling, account.waited_share)
    return " ".join(_keep_present(describe_ceiling(trace.ceiling), slower))


def _limit_scope(sentence: str, results: Results) -> str:
    """With what limits the answer: profiled steps, where these are not nearly all."""
    steps = results.steps
    if steps is None or steps.counted is None or steps.per_rank_max >= NEARLY_ALL * steps.counted:
        return sentence
    scope = f"In {count(steps.per_rank_max)} of about {count(steps.counted)} steps"
    return f"{scope}, {sentence[0].lower()}{sentence[1:]}"


def _list_missing(trace: Trace, results: Results) -> str:
    """Said first where files or logs are missing altogether: the numbers cannot show it."""
    serious = serious_codes(results.coverage.warnings)
    reasons = [text for code, text in _MISSING.items() if code in serious]
    reasons += (
        [f"{unread} in the log is not read"] if (unread := _name_unread(trace, results)) else []
    )
    if any(profile.device_in_part for profile in trace.profiles):
        reasons.append("some work of the device has no time that can be true")
    return f"Not all of the run is in these numbers: {', '.join(reasons)}." if reasons else ""


def _name_unread(trace: Trace, results: Results) -> str:
    """Modules of the logs that record I/O and are not read, by name."""
    if not UNREAD & serious_codes(results.coverage.warnings):
        return ""
    return ", ".join(sorted({module for log in trace.logs for module in log.unread_modules}))


def _keep_present(*sentences: str) -> tuple[str, ...]:
    return tuple(sentence for sentence in sentences if sentence)


def _describe_waits_of_steps(
    trace: Trace, results: Results, overlap: Overlap, account: Breakdown
) -> str:
    """How much of the training steps was waiting for input, and what the waits were."""
    mean = overlap.mean
    who = "Inference" if trace.purpose == INFERENCE else "Training"
    observed, ranks, average = overlap.ranks_observed, len(trace.ranks), ""
    if observed < ranks:
        average = f", averaged over {count(observed)} of {plural(ranks, 'rank')}"
    elif observed > 1:
        average = f", averaged over {count(observed)} ranks"
    # Without waits: the I/O of the steps, or what is known to be hidden.
    if not account.waits_known and overlap.basis is None and mean.io_s is not None:
        # What steps alone can tell: how much of the I/O fell into them.
        io_s = mean.io_s or 0.0
        inside = seconds(io_s - (mean.unobserved_s or 0.0))
        return (
            f"{inside} of {seconds(io_s)} of I/O fell within the recorded steps{average}; neither "
            "input wait nor compute was recorded, so whether it was hidden is not known."
        )
    if not account.waits_known:
        return f"Input wait was not recorded; {_describe_hidden(overlap)}."
    wait_ns, steps_ns = account.length_ns(WAIT), account.steps_ns
    if not wait_ns:
        return f"{who} did not wait for input; {_describe_hidden(overlap)}."
    # With them: how long, which share of the steps, and what they were.
    key = f"{MEAN}/{WAIT}/"
    waited = mark_cell(key, seconds(wait_ns / 1e9))
    share = mark_cell(key, percent(wait_ns / steps_ns))
    times = f"{waited} of {seconds(steps_ns / 1e9)} ({share})"
    whole = not _is_cut(results) and not has_separate_objects(results.summary)
    parts = describe_waits(account, whole=whole or is_storage_known(account))
    if (why := _explain_unknown_io(results, overlap)) and not is_storage_known(account):
        unknown = f"how much of that was storage is not known: {why}"
        return f"{who} waited {times} for input{average}; {unknown}."
    return f"{who} waited {times} for input{average}; {parts}; {_describe_hidden(overlap)}."


def describe_beside(account: Breakdown, led: str) -> str:
    """Other windows that took as much as the waits, where they took a real part of the time.

    `led`: the window that the title speaks of.
    """
    long = find_beside_training(account, max(account.length_ns(WAIT), 1.0))
    long.pop(_WINDOWS.get(led, ""), None)
    if not long:
        return ""
    words = []
    for window, name in _WINDOWS.items():
        if name in long:
            key = f"{MEAN}/{EPOCH_END}/" if window == EPOCH_END else f"{MEAN}/{PHASE}/{window}"
            mostly = _find_main_part(account, key.rstrip("/"), long[name])
            words.append(f"{name} {mark_cell(key, seconds(long[name] / 1e9))}{mostly}")
    return f"Of the {seconds(account.window_ns / 1e9)} run outside these steps: {', '.join(words)}."


def _find_main_part(account: Breakdown, window: str, length_ns: float) -> str:
    """What took most of a window, in brackets, where storage or one kind of blocking surely did."""
    for cause in (STORAGE, *BLOCKS):
        cell = account.cell(f"{window}/{cause}")
        if cell.low_ns >= MOSTLY * length_ns:
            took = mark_cell(f"{window}/{cause}", seconds(cell.low_ns / 1e9))
            least = "" if cell.high_ns <= _SURE * cell.low_ns else "at least "
            return f" ({least}{took} {WAIT_WORDS[cause]})"
    return ""


def find_beside_training(account: Breakdown, least_ns: float = 1.0) -> dict[str, float]:
    """Windows beside steps, in ns, that took that long and a tenth of the time in steps."""
    spent_ns: dict[str, float] = {
        window: account.cell(f"{MEAN}/{PHASE}/{window}").low_ns
        for window in _WINDOWS
        if window != EPOCH_END
    }
    spent_ns[EPOCH_END] = account.length_ns(EPOCH_END)
    least_ns = max(least_ns, _REAL * account.steps_ns)
    return {_WINDOWS[window]: ns for window, ns in spent_ns.items() if ns >= least_ns}


def _explain_unknown_io(results: Results, overlap: Overlap) -> str:
    mean = overlap.mean
    if mean.input_wait_io_s is None:
        return "no single operation was traced"
    if _is_cut(results) and mean.io_s == mean.unobserved_s:
        steps = name_steps(overlap)
        return f"the trace is not whole and holds no operation of the {steps}"
    return ""


def _is_cut(results: Results) -> bool:
    return bool(LOWER_BOUNDS & serious_codes(results.coverage.warnings))


def _describe_hidden(overlap: Overlap) -> str:
    mean = overlap.mean
    if mean.io_s is None or mean.unobserved_s is None:
        return "no single I/O operation was traced"
    if mean.hidden_s is None:
        why = "" if overlap.basis else ": the profile holds no compute"
        return f"whether I/O was hidden is not known{why}"
    if overlap.hidden_fraction is None:
        return f"no I/O was recorded during the {name_steps(overlap)}"
    which = "I/O" if mean.unobserved_s == 0 else f"I/O in {name_steps(overlap)}"
    if overlap.hidden_fraction == 0:
        return f"none of the {which} {name_hidden(overlap)}"
    if overlap.hidden_fraction == 1:
        return f"all of the {which} {name_hidden(overlap)}"
    return f"{percent(overlap.hidden_fraction)} of the {which} {name_hidden(overlap)}"


def _describe_starving(overlap: Overlap) -> str:
    mean = overlap.mean
    starving, wait = mean.starving_wait_s, mean.input_wait_s
    if not overlap.has_kernels or starving is None or not wait or starving >= 0.95 * wait:
        return ""
    part = f", {percent(starving / mean.window_s)} of the time" if mean.window_s > 0 else ""
    return (
        f"The device stood idle during {seconds(starving)} of the wait{part}, and was busy in the "
        "rest; the parts of the mean step count only idle time as waiting."
    )


def _describe_ranks(overlap: Overlap, account: Breakdown) -> str:
    """The slowest rank, and what all lose together; a single rank loses what it waits."""
    lost = overlap.lost_to_input_s
    loss = f"lost to input: {seconds(lost)}, summing each step's longest wait" if lost else ""
    column = account.columns.get(f"{WAIT}/")
    if column is None or int(account.observed.sum()) < 2 or not account.waits_known:
        return ""
    worst = int(np.argmax(column.low))
    name = elided(account.labels[worst], limit=60)
    longest = seconds(float(column.low[worst]) / 1e9)
    sentence = f"The longest wait was {mark_cell(f'{worst}/{WAIT}/', longest)} ({name})"
    return f"{sentence}; {loss}." if loss else f"{sentence}."


def _describe_communication(overlap: Overlap) -> str:
    """Ranks with little wait of their own that wait in communication instead."""
    longest = max((row.input_wait_s or 0.0 for row in overlap.per_rank), default=0.0)
    waiting = [row for row in overlap.per_rank if _waits_for_others(row, longest)]
    if not waiting:
        return ""
    most = max(row.communication_s or 0.0 for row in waiting)
    return (
        f"{plural(len(waiting), 'rank')} of {count(len(overlap.per_rank))} waited little for input "
        f"of their own but spent up to {seconds(most)} in communication, where a rank also waits "
        "for the input of the others."
    )


def _waits_for_others(row: RankOverlap, longest: float) -> bool:
    if row.input_wait_s is None or row.communication_s is None:
        return False
    missing = longest - row.input_wait_s
    little = row.input_wait_s < MOSTLY * longest
    return little and row.communication_s > MOSTLY * missing and missing > 0.05 * row.window_s


def _describe_unobserved(overlap: Overlap) -> str:
    mean = overlap.mean
    if not mean.io_s or mean.unobserved_s is None or mean.unobserved_s <= MOSTLY * mean.io_s:
        return ""
    outside = f"outside the {name_steps(overlap)}: neither hidden nor exposed."
    if mean.unobserved_s == mean.io_s:
        return f"All of the I/O time ({seconds(mean.io_s)}) lies {outside}"
    share = percent(mean.unobserved_s / mean.io_s)
    times = f"{seconds(mean.unobserved_s)} of {seconds(mean.io_s)}"
    return f"{share} of the I/O time ({times}) lies {outside}"


def _describe_untraced(results: Results) -> str:
    """What share of the operations all times rest on, where some are missing."""
    summary = results.summary
    for layer in results.coverage.layers:
        fraction = layer.traced_fraction
        if layer.layer == summary.layer and fraction is not None and 0 < fraction < COMPLETE:
            return (
                f"{begin_part(fraction)} of the {layer.layer} operations were traced: times of "
                "I/O are lower bounds."
            )
    return ""


def _describe_counted(overlap: Overlap, summary: Summary) -> str:
    if overlap.mean.io_s is not None or summary.source != "counters" or not summary.ops:
        return ""
    return f"{describe_by_counters(summary)}."


def _describe_without_overlap(trace: Trace, results: Results, account: Breakdown) -> str:
    summary = results.summary
    hidden = "whether it was hidden is not known"
    # What kept the steps from being laid over the I/O.
    aligned = [profile.aligned for profile in trace.profiles]
    why = "the profile could not be laid over it" if trace.profiles else "no profiler trace"
    if trace.step_durations and all(aligned):
        why = (
            "the step table holds durations without start times and cannot be laid over it, so no "
            "overlap is claimed"
        )
    elif any(aligned):
        why = "the profile holds neither marked steps nor two input waits"
    unknown = f"{hidden}: {why}"
    # From what was recorded most closely to what was not read at all.
    counted = summary.source == "counters" and summary.ops
    has_bytes = bool(summary.storage_bytes_read or summary.storage_bytes_written)
    has_io = bool(summary.ops) or (has_bytes and not _name_unread(trace, results))
    if has_io and (spent := describe_storage(trace, account)):
        return f"{spent}." if spent.endswith("elsewhere") else f"{spent}; {unknown}."
    if counted:
        return f"{describe_by_counters(summary)}; single operations were not traced, so {hidden}."
    if unread := _name_unread(trace, results):
        return (
            f"The {_name_run(trace)} did I/O through {unread}, which is not read: "
            "unknown, not zero."
        )
    if summary.ops == 0:
        objects = f"; {moved}" if (moved := describe_daos(summary)) else ""
        return f"No {summary.layer} operation was recorded during the {_name_run(trace)}{objects}."
    return _describe_nothing(trace, results, account)


def _describe_moved_elsewhere(title: str, summary: Summary) -> str:
    """What other layers moved where nothing went through the one that is looked at."""
    if summary.ops or not title.startswith(("Storage", "I/O can", "No time")):
        return ""
    moved = describe_daos(summary) or ", ".join(
        f"{each.layer} {describe_moved(each.bytes_read, each.bytes_written)}"
        for each in summary.layers
        if each.bytes_read or each.bytes_written
    )
    return f"No {summary.layer} operation was recorded; {moved}." if moved else ""


def _describe_nothing(trace: Trace, results: Results, account: Breakdown) -> str:
    summary, run = results.summary, _name_run(trace)
    others = [layer for layer in summary.layers if layer.bytes_read or layer.bytes_written]
    if trace.heatmaps and not trace.counters:
        # What the run moved, and at most how long, where only heat maps were recorded.
        read, written = (
            sum(int(getattr(each, name).sum()) for each in trace.heatmaps)
            for name in ("bytes_read", "bytes_written")
        )
        layers = " and ".join(dict.fromkeys(each.layer for each in trace.heatmaps))
        spent = describe_storage(trace, account)
        return (
            f"By its heat maps, the run {describe_moved(read, written)} through {layers}"
            f"{f'. {spent}' if spent else ''}."
        )
    if others:
        moved = ", ".join(
            f"{o.layer} {describe_moved(o.bytes_read, o.bytes_written)}" for o in others
        )
        return f"No {summary.layer} operation was recorded during the {run}; {moved}."
    if trace.heatmaps:
        # Bytes over time are known, and neither an operation nor a counter.
        moved_by_layer = []
        for layer in dict.fromkeys(heat.layer for heat in trace.heatmaps):
            maps = [heat for heat in trace.heatmaps if heat.layer == layer]
            read = sum(int(heat.bytes_read.sum()) for heat in maps)
            written = sum(int(heat.bytes_written.sum()) for heat in maps)
            moved_by_layer.append(f"{layer} {describe_moved(read, written)}")
        return (
            f"Bytes over time (heat maps) are all that the logs of the {run} hold: "
            f"{', '.join(moved_by_layer)}; neither operations nor counters were recorded."
        )
    if trace.logs and not trace.counters and results.coverage.complete:
        return (
            f"{name_tracer(trace)} recorded the job and no I/O at all during its {run}: "
            "nothing that it watches was used, or its modules were switched off."
        )
    if device := describe_device(account, count_devices(trace)):
        return f"{device}; no I/O was recorded, which is unknown, not zero."
    return f"No I/O was recorded during the {run}; that is unknown, not zero."


def count_devices(trace: Trace) -> int:
    """How many devices a process used at most, by its profile; 1 where none says."""
    return max((len(profile.devices) for profile in trace.profiles), default=1) or 1


def _name_run(trace: Trace) -> str:
    return f"{seconds(trace.job.run_time_s)} run"
