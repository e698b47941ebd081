"""The state of a run as lines of text: a screen, and a line for a log."""

from __future__ import annotations

from collections.abc import Iterator

from vanidl.formatting.names import elided
from vanidl.formatting.units import (
    UNKNOWN,
    bandwidth,
    count,
    nbytes,
    percent,
    plural,
    seconds,
    steps_per_second,
    text,
)
from vanidl.watch.resources import MemoryState
from vanidl.watch.state import (
    WAITS,
    RunState,
    describe_steps,
    describe_wait,
    give_verdict,
)
from vanidl.wording.cells import cut, join, mark_cell, settle

WIDTH = 80
_MOST_RANKS = 8
_SILENT_S = 5.0  # from then on the silence of a rank is shown
_READS = {
    "calls": "by read() calls (/proc/PID/io)",
    "storage": "from storage (/proc/PID/io)",
    "objects": "from object storage",
}

Line = tuple[str, str]
"""Text, with the keys of the cells that it says numbers of, and its style in the words of rich."""


def screen(state: RunState, width: int = WIDTH) -> list[Line]:
    """The state in some lines of at most so many columns; names in it are printable."""
    lines = [
        *_write_head(state),
        *_list_reads(state),
        *_write_memory(state),
        *_list_slowest(state),
        ("", ""),
        *_list_ranks(state),
    ]
    return [(cut(words, width), style) for words, style in lines]


def line(state: RunState, elapsed_s: float, width: int = WIDTH) -> str:
    """The same in one line: what fits into so many columns."""
    slowest, worker = state.slowest_rank, state.slowest_worker
    minutes, rest_s = divmod(int(elapsed_s), 60)
    calls = next((read for read in state.reads if read.per_s is not None), None)
    # The most important first: the line is cut from its end.
    parts = [
        f"{minutes // 60:02}:{minutes % 60:02}:{rest_s:02}  {says(state)}",
        steps_per_second(_get_latest_rate(state)),
        f"waits {percent(_get_latest_share(state))}",
        f"reads {bandwidth(calls.per_s)}" if calls else "",
        f"{slowest.label} waits {percent(slowest.latest_share)}"
        if slowest and len(state.ranks) > 1
        else "",
        running_out(state.memory) if state.memory else "",
        f"{worker.label}: {seconds(worker.batch_s)} a batch" if worker else "",
        *state.problems,
    ]
    if not state.ranks:
        seen = plural(state.journals, "process", "processes")
        return f"{parts[0]}  no step yet ({seen} seen)"[:width]
    if state.condition.alerts:
        return parts[0][:width]

    # What does not fit is left out; a shorter part behind it may fit.
    said = ""
    for part in filter(None, parts):
        longer = f"{said}  {part}" if said else part
        if len(longer) <= width:
            said = longer
    return said


def final(state: RunState) -> list[str]:
    """What there is to say once the run has ended: as `vanidl summary` has it."""
    rate = f", {steps_per_second(state.steps_per_s)}" if state.steps_per_s else ""
    said, verdict = describe_steps(state), give_verdict(state)
    steps = f"{said[:1].upper()}{said[1:]}{rate}."
    lines = [describe_wait(state), join(steps, " ", verdict) if verdict else steps]
    if not state.is_exact:
        lines.append("These are approximate: more calls lay within one another than is held.")
    return [*lines, *state.problems]


def says(state: RunState) -> str:
    """What the run is doing, or how it ended."""
    return ending(state) if state.ended else str(state.condition)


def ending(state: RunState) -> str:
    """How the command ended, by its exit status as shells have it, and why it failed."""
    end = state.ending
    if end is None:
        return f"ended, exit status {text(None)}"
    by = f" by {end.signal}" if end.signal else ""
    killed = plural(end.memory_kills or 0, "process", "processes")
    more = f"; {killed} killed as memory had run out" if end.memory_kills else ""
    error = f"; {elided(end.last_error)}" if end.last_error else ""
    return f"ended{by}, exit status {end.exit_status}{more}{error}"


def _write_head(state: RunState) -> Iterator[Line]:
    done = state.condition.is_over
    behind = ", reading what was recorded before" if state.is_behind else ""
    bad = state.condition.alerts or state.failed
    yield f"{state.name}: {says(state)}{behind}", "bold red" if bad else "bold"
    rate = steps_per_second(_get_latest_rate(state))
    share, so_far = percent(_get_latest_share(state)), _mark_share(WAITS, state.wait_share)
    yield f"steps       {rate}{'' if done else ' now'}, {describe_steps(state)}", ""
    waits = f"{so_far} of the time" if done else f"{share} now, {so_far} so far"
    said = give_verdict(state)
    yield settle(f"input wait  {waits}"), "red" if said.startswith("Input holds") else ""
    if said:
        yield join(" " * 12, said), "bold green" if said.startswith("Input keeps") else "bold red"


def _mark_share(key: str, share: float | None) -> str:
    return mark_cell("" if share is None else key, percent(share))


def _list_reads(state: RunState) -> Iterator[Line]:
    if not state.reads:
        yield f"reads       {UNKNOWN}: no recorded process runs on this host", ""
    for read in state.reads:
        per_s = f"{bandwidth(read.per_s)}, " if read.per_s is not None else ""
        yield f"reads       {per_s}{nbytes(read.nbytes)} in all {_READS[read.source]}", ""


def _write_memory(state: RunState) -> Iterator[Line]:
    memory = state.memory
    if memory is None or state.condition.is_over:
        return
    limit = "" if memory.limit_nbytes is None else f" of {nbytes(memory.limit_nbytes)}"
    out = running_out(memory)
    words = f"{nbytes(memory.nbytes)}{limit}{', ' if out else ''}{out}"
    yield f"memory      {words}", "bold red" if out else ""


def running_out(memory: MemoryState) -> str:
    """`out of memory in about 40 min`, "" where no trend holds."""
    if memory.out_of_memory_s is None:
        return ""
    return f"out of memory in about {seconds(memory.out_of_memory_s)}"


def _list_slowest(state: RunState) -> Iterator[Line]:
    rank, worker, label = state.slowest_rank, state.slowest_worker, "slowest"
    if rank is not None and len(state.ranks) > 1:
        yield f"{label:<12}{rank.label} waits most: {percent(rank.latest_share)}", ""
        label = ""
    if worker is not None:
        batches = plural(worker.batches, "batch", "batches")
        yield f"{label:<12}{worker.label}: {seconds(worker.batch_s)} a batch ({batches})", ""
    for problem in state.problems:
        yield f"not read    {problem}", "yellow"


def _list_ranks(state: RunState) -> Iterator[Line]:
    if not state.ranks:
        yield f"no step yet ({plural(state.journals, 'process', 'processes')} seen)", ""
        return
    yield f"{'':<16}{'steps':>10}{'now':>16}{'waits now':>12}{'so far':>12}  last event", "dim"
    # Those that wait longest, as a screen has few lines.
    shown = sorted(state.ranks, key=lambda rank: -(rank.latest_share or 0.0))[:_MOST_RANKS]
    ended = state.condition.is_over
    for rank in shown:
        now = "-" if rank.now_steps_per_s is None else steps_per_second(rank.now_steps_per_s)
        share = "-" if rank.now_wait_share is None else percent(rank.now_wait_share)
        # Aligned before the share is marked, as marks go and would count as width.
        room = " " * (12 - len(percent(rank.wait_share)))
        key = f"{state.ranks.index(rank)}/input_wait/"
        waited = room + _mark_share(key, rank.wait_share)
        last_event = "" if ended else f"{rank.silent_s:.0f} s ago"
        words = f"{rank.label[:15]:<16}{count(rank.steps):>10}{now:>16}{share:>12}"
        silent = rank.silent_s > _SILENT_S and not ended
        yield settle(f"{words}{waited}  {last_event}"), "yellow" if silent else ""
    if len(shown) < len(state.ranks):
        yield f"and {count(len(state.ranks) - len(shown))} ranks that wait less", "dim"


def _get_latest_rate(state: RunState) -> float | None:
    """Steps in the last seconds, none among them; only where these are not known those so far."""
    return state.steps_per_s if state.now_steps_per_s is None else state.now_steps_per_s


def _get_latest_share(state: RunState) -> float | None:
    return state.wait_share if state.now_wait_share is None else state.now_wait_share
