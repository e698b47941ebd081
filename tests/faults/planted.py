"""The faults: a place in a source file, what stands there, and what is planted instead.

Borders moved by one, terms left out, a sign or a side turned round, a minimum for a maximum: what
a slip of a hand makes, and what still gives plausible numbers. Where code moves, its faults move
with it: `make faults` names those whose place is gone.
"""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """`wrong` in the place of `right`, which stands once in the file."""

    path: str
    right: str
    wrong: str


ENCODING = (
    Fault("vanidl/encoding/budget.py", "return self.text_bytes >= 0", "return self.text_bytes > 0"),
    Fault("vanidl/encoding/budget.py", "return self.held_bytes >= 0", "return True"),
    Fault("vanidl/encoding/budget.py", "FREE_VALUES + nbytes,", "FREE_VALUES,"),
    Fault(
        "vanidl/encoding/budget.py",
        "if len(name) <= MOST_NAME_CHARACTERS:",
        "if len(name) < MOST_NAME_CHARACTERS:",
    ),
    Fault(
        "vanidl/encoding/budget.py", "len(text) <= _MOST_DIGITS", "len(text) <= _MOST_DIGITS + 1"
    ),
    Fault("vanidl/encoding/protobuf.py", "value >= 1 << 63", "value > 1 << 63"),
    Fault("vanidl/encoding/protobuf.py", "if length > len(data) - at:", "if length > len(data):"),
    Fault("vanidl/encoding/protobuf.py", "if byte < 0x80:", "if byte <= 0x80:"),
    Fault("vanidl/encoding/protobuf.py", "int(values[-1]) if", "int(values[0]) if"),
    Fault(
        "vanidl/encoding/protobuf.py",
        "(budget.objects - left) * OBJECT_BYTES",
        "left * OBJECT_BYTES",
    ),
    Fault("vanidl/encoding/text_stream.py", "at += len(part) - self._left()", "at += len(part)"),
    Fault(
        "vanidl/encoding/text_stream.py",
        "self.member is None and not self.pending",
        "self.member is None",
    ),
    Fault("vanidl/encoding/json_stream.py", "self._drop(3 if", "self._drop(0 if"),
    Fault("vanidl/encoding/json_stream.py", 'return mark == b"}"', 'return mark == b","'),
    Fault(
        "vanidl/encoding/json_stream.py",
        "self._parse(len(values) + broken)",
        "self._parse(broken)",
    ),
)

MODEL = (
    Fault("vanidl/model/intervals.py", "start[1:] > reach[:-1]", "start[1:] >= reach[:-1]"),
    Fault(
        "vanidl/model/intervals.py", "(start[1:] > end[:-1]).all()", "(start[1:] >= end[:-1]).all()"
    ),
    Fault("vanidl/model/intervals.py", "keep = end > start", "keep = end >= start"),
    Fault(
        "vanidl/model/intervals.py",
        'low = np.searchsorted(b.end, a.start, side="right")',
        'low = np.searchsorted(b.end, a.start, side="left")',
    ),
    Fault(
        "vanidl/model/intervals.py",
        'high = np.searchsorted(b.start, a.end, side="left")',
        'high = np.searchsorted(b.start, a.end, side="right")',
    ),
    Fault("vanidl/model/intervals.py", "if high <= low:", "if high < low:"),
    Fault("vanidl/model/intervals.py", "int(end.max()) - since + 1", "int(end.max()) - since"),
    Fault(
        "vanidl/model/intervals.py",
        "slice(int(end[0] == _MIN), len(end) - int(start[-1] == _MAX))",
        "slice(0, len(end))",
    ),
    Fault(
        "vanidl/model/intervals.py",
        "np.where(index > 0, np.maximum(overshoot, 0), 0)",
        "np.maximum(overshoot, 0)",
    ),
    Fault("vanidl/model/parts.py", "<= np.iinfo(np.uint32).max", "<= np.iinfo(np.uint32).max + 1"),
    Fault(
        "vanidl/model/ordering.py",
        "if span_bits + position_bits > _BITS:",
        "if span_bits > _BITS:",
    ),
    Fault("vanidl/model/selection.py", "part.start < self.to_ns", "part.start <= self.to_ns"),
    Fault("vanidl/model/selection.py", "part.start >= self.from_ns", "part.start > self.from_ns"),
    Fault("vanidl/model/selection.py", "(at >= start) & (at < end)", "(at > start) & (at < end)"),
    Fault(
        "vanidl/model/selection.py",
        "selection.layer not in layers and selection.layer != POSIX",
        "selection.layer not in layers",
    ),
    Fault(
        "vanidl/model/selection.py", "if low >= high or low >= end", "if low >= high or low > end"
    ),
    Fault("vanidl/model/selection.py", "spans.start < end)", "spans.start <= end)"),
)

MERGE = (
    Fault(
        "vanidl/merge/clocks/align.py",
        "return max(self.high_ns - self.offset_ns",
        "return min(self.high_ns - self.offset_ns",
    ),
    Fault(
        "vanidl/merge/clocks/log_clock.py",
        "return max(self.high_ns - self.offset_ns",
        "return min(self.high_ns - self.offset_ns",
    ),
    Fault(
        "vanidl/merge/clocks/align.py",
        "len(evidence.offsets.start) == 1",
        "len(evidence.offsets.start) >= 1",
    ),
    Fault("vanidl/merge/clocks/late_logs.py", "[rows] + waits.late)", "[rows])"),
    Fault("vanidl/merge/clocks/late_logs.py", "[rows] - waits.early)", "[rows])"),
    Fault("vanidl/merge/clocks/align.py", "int(left.end[0]) - 1", "int(left.end[0])"),
    Fault(
        "vanidl/merge/clocks/align.py",
        "if usual and high - low > usual:",
        "if usual and high - low > 2 * usual:",
    ),
    Fault("vanidl/merge/clocks/align.py", "-coarse - exact - own", "-coarse - own"),
    Fault("vanidl/merge/clocks/align.py", "interval(-half - own", "interval(-half"),
    Fault(
        "vanidl/merge/clocks/known_files.py",
        "interval(shortest - _PROMPT_NS, shortest)",
        "interval(shortest - _PROMPT_NS, shortest + _PROMPT_NS)",
    ),
    Fault(
        "vanidl/merge/clocks/reads_in_waits.py",
        "others > _WORKERS_SHARE",
        "others > 20 * _WORKERS_SHARE",
    ),
    Fault("vanidl/merge/clocks/reads_in_waits.py", "used >= _USED_WAITS and ", ""),
    Fault("vanidl/merge/jobs.py", "if logs[i].start_ns < reach:", "if logs[i].start_ns <= reach:"),
    Fault(
        "vanidl/merge/jobs.py", "inner.start_ns < outer.end_ns", "inner.start_ns <= outer.end_ns"
    ),
    Fault("vanidl/merge/jobs.py", "<= _SESSION_NS", "< _SESSION_NS"),
    Fault("vanidl/merge/jobs.py", "return log.nprocs > 1", "return log.nprocs > 2"),
    Fault("vanidl/merge/jobs.py", "if len(roots) == 1:", "if roots:"),
    Fault(
        "vanidl/merge/copies.py",
        "return not log.whole, -rows",
        "return not log.whole, rows",
    ),
    Fault("vanidl/merge/copies.py", "< _SECOND_NS", "<= _SECOND_NS"),
    Fault("vanidl/merge/operations.py", "    end += since\n", ""),
    Fault(
        "vanidl/merge/operations.py",
        "log.nprocs <= 1 and len(of_log.op) <= most",
        "len(of_log.op) <= most",
    ),
    Fault("vanidl/merge/processes.py", "around[0] if len(around) == 1", "around[0] if around"),
    Fault(
        "vanidl/merge/training_steps.py",
        "operations >= _NO_WORK * usual",
        "operations > 0",
    ),
    Fault(
        "vanidl/merge/training_steps.py",
        "len(rows) <= _FEWEST_STEPS",
        "len(rows) < _FEWEST_STEPS",
    ),
    Fault("vanidl/merge/training_steps.py", "after[:1])", "after[:0])"),
    Fault(
        "vanidl/merge/training_steps.py",
        "int(steps.min()) <= end + _HOUR_NS",
        "int(steps.min()) <= end",
    ),
)

OVERLAP = (
    Fault(
        "vanidl/breakdown/overlap.py",
        "starving = subtract(spans.waits, compute)",
        "starving = spans.waits",
    ),
    Fault(
        "vanidl/breakdown/overlap.py", "rest = subtract(observed, did.starving)", "rest = observed"
    ),
    Fault(
        "vanidl/breakdown/overlap.py",
        "communication = subtract(within(SpanKind.COMMUNICATION), compute)",
        "communication = within(SpanKind.COMMUNICATION)",
    ),
    Fault(
        "vanidl/breakdown/overlap.py",
        "np.maximum(longest[place], waited)",
        "longest[place] + waited",
    ),
    Fault(
        "vanidl/breakdown/overlap.py",
        "np.maximum(self._longest, waited, out=self._longest)",
        "np.add(self._longest, waited, out=self._longest)",
    ),
)

BREAKDOWN = (
    Fault("vanidl/breakdown/windows.py", "start >= end[-1]", "start > end[-1]"),
    Fault(
        "vanidl/breakdown/windows.py",
        "next_one = same & (distance == 1)",
        "next_one = same & (distance >= 1)",
    ),
    Fault(
        "vanidl/breakdown/windows.py", "lost=same & (distance > 1)", "lost=same & (distance > 2)"
    ),
    Fault(
        "vanidl/breakdown/windows.py",
        "np.clip(end, low, high)",
        "np.clip(end, low, None)",
    ),
    Fault("vanidl/breakdown/windows.py", "(waited == 0)", "(waited >= 0)"),
    Fault("vanidl/breakdown/causes.py", "highs[pair], left + lows[pair])", "highs[pair], left)"),
    Fault("vanidl/breakdown/causes.py", "highs[pair] - over), highs", "highs[pair]), highs"),
    Fault(
        "vanidl/breakdown/input_wait.py", "np.diff(key[2])[same] == 1", "np.diff(key[2])[same] >= 1"
    ),
    Fault(
        "vanidl/breakdown/input_wait.py", "low_ns if low_ns < -agreed", "low_ns if low_ns < agreed"
    ),
    Fault("vanidl/breakdown/input_wait.py", "np.minimum(high, end - start)", "high"),
)

WORDING = (
    Fault("vanidl/wording/headline.py", "MOSTLY = 0.5", "MOSTLY = 0.6"),
    Fault("vanidl/wording/headline.py", "NEARLY_ALL = 0.9 ", "NEARLY_ALL = 0.8 "),
    Fault(
        "vanidl/wording/headline.py",
        "steps.per_rank_max >= NEARLY_ALL",
        "steps.per_rank_max > NEARLY_ALL",
    ),
    Fault("vanidl/wording/headline.py", "COMPLETE = 0.99 ", "COMPLETE = 0.97 "),
    Fault("vanidl/wording/headline.py", "0 < fraction < COMPLETE", "0 < fraction <= COMPLETE"),
    Fault("vanidl/wording/headline.py", "starving >= 0.95 * wait", "starving >= 0.9 * wait"),
    Fault("vanidl/wording/headline.py", "missing > 0.05 * row", "missing > 0.1 * row"),
    Fault(
        "vanidl/wording/headline.py",
        "mean.unobserved_s <= MOSTLY * mean.io_s",
        "mean.unobserved_s < MOSTLY * mean.io_s",
    ),
    Fault("vanidl/wording/headline.py", "row.input_wait_s < MOSTLY", "row.input_wait_s <= MOSTLY"),
    Fault("vanidl/wording/account.py", "part.cell.high_ns < _WORTH", "part.cell.high_ns <= _WORTH"),
    Fault(
        "vanidl/sections/overlap.py",
        "high - low <= _CLEAR * mean.in_wait_s",
        "high - low < _CLEAR * mean.in_wait_s",
    ),
)

FINDINGS = (
    Fault("vanidl/advice/input_waits.py", "or share < BOUND_SHARE", "or share <= BOUND_SHARE"),
    Fault(
        "vanidl/advice/input_waits.py", "observed < OBSERVED_SHARE", "observed <= OBSERVED_SHARE"
    ),
    Fault(
        "vanidl/advice/input_waits.py",
        "overlap.hidden_fraction >= HIDDEN_SHARE",
        "overlap.hidden_fraction > HIDDEN_SHARE",
    ),
    Fault(
        "vanidl/advice/input_waits.py",
        "time_s >= least * row.window_s > 0",
        "time_s > least * row.window_s > 0",
    ),
    Fault("vanidl/advice/input_waits.py", "min(mean.exposed_s, free)", "max(mean.exposed_s, free)"),
    Fault(
        "vanidl/advice/input_waits.py",
        "within_s=overlap.lost_to_input_s - overlap.mean.input_wait_s",
        "within_s=overlap.lost_to_input_s",
    ),
    Fault(
        "vanidl/advice/requests.py",
        "facts.mean_read_nbytes >= SMALL",
        "facts.mean_read_nbytes > SMALL",
    ),
    Fault(
        "vanidl/advice/requests.py", "array.shape[0] < CHUNK_ROWS", "array.shape[0] <= CHUNK_ROWS"
    ),
    Fault(
        "vanidl/advice/opens.py",
        "float(np.median(known)) >= TINY",
        "float(np.median(known)) > TINY",
    ),
    Fault("vanidl/advice/opens.py", "if opens < samples / 2:", "if opens <= samples / 2:"),
    Fault("vanidl/advice/imbalance.py", "if spread < UNEVEN:", "if spread <= UNEVEN:"),
    Fault("vanidl/advice/imbalance.py", "if share >= ALONE", "if share > ALONE"),
    Fault(
        "vanidl/advice/caching.py",
        "if again < AGAIN or on_a_host",
        "if again <= AGAIN or on_a_host",
    ),
    Fault("vanidl/advice/facts.py", "end * (1 - claim.stays)", "end * claim.stays"),
    Fault("vanidl/advice/checkpoints.py", "(high[-1] if threads.waits else 0.0)", "0.0"),
    Fault("vanidl/advice/checkpoints.py", "threads.idle_s if threads.waits else high_s", "high_s"),
    Fault("vanidl/advice/what_if.py", "max(best_s, floor_s)", "min(best_s, floor_s)"),
    Fault(
        "vanidl/advice/what_if.py",
        "bound_step_s(threads, alone_s) + stalls_s",
        "bound_step_s(threads, alone_s)",
    ),
    Fault("vanidl/advice/facts.py", "max(part.samples, runs)", "part.samples"),
    Fault("vanidl/advice/facts.py", "if kinds and kinds <= _COUNTING else ()", "if kinds else ()"),
    Fault(
        "vanidl/advice/caching.py",
        "device_nbytes <= from_cache_nbytes",
        "device_nbytes >= from_cache_nbytes",
    ),
    Fault(
        "vanidl/advice/opens.py",
        "(1 - share) * requests_again + share * bytes_again",
        "share * requests_again + (1 - share) * bytes_again",
    ),
    Fault("vanidl/advice/capacity.py", "least * deepest <= _REACHED", "least * deepest > _REACHED"),
    Fault(
        "vanidl/advice/input_waits.py",
        "cell.low_ns if facts.cores_were_taken else cell.middle_ns",
        "cell.middle_ns",
    ),
    Fault(
        "vanidl/advice/training_loop.py",
        "max(spent_s - one_s, 0.0) if sends else None",
        "spent_s if sends else None",
    ),
    Fault(
        "vanidl/advice/step_times.py",
        "mean < FIRST_FACTOR * usual",
        "mean <= FIRST_FACTOR * usual",
    ),
    Fault(
        "vanidl/advice/step_times.py",
        "_mark_first_of_epochs(facts, table)\n    if (~first).sum() < FEWEST_STEPS",
        "_mark_first_of_epochs(facts, table)\n    if (~first).sum() <= FEWEST_STEPS",
    ),
)

COMPARE = (
    Fault("vanidl/compare/statistics.py", "len(change) - 1)", "len(change))"),
    Fault("vanidl/compare/statistics.py", "t_above(ALPHA / 2, freedom)", "t_above(ALPHA, freedom)"),
    Fault("vanidl/compare/statistics.py", "p = 2 * t_tail", "p = t_tail"),
    Fault("vanidl/compare/statistics.py", "(len(p) - k) * p[i]", "(len(p) - k - 1) * p[i]"),
    Fault("vanidl/compare/statistics.py", "reach = max(reach, min(1.0", "reach = max(0.0, min(1.0"),
    Fault("vanidl/compare/statistics.py", "vx**2 / (len(x) - 1)", "vx**2 / len(x)"),
    Fault(
        "vanidl/compare/statistics.py", "min(x.min(), y.min()) > 0", "min(x.min(), y.min()) >= 0"
    ),
    Fault(
        "vanidl/compare/comparison.py",
        "fewest < MIN_RUNS",
        "fewest <= MIN_RUNS",
    ),
    Fault("vanidl/compare/comparison.py", "p > ALPHA or", "p >= ALPHA or"),
    Fault("vanidl/compare/comparison.py", "< MIN_CHANGE * max(", "< MIN_CHANGE * min("),
    Fault("vanidl/compare/comparison.py", "> STDIO_MARGIN", ">= STDIO_MARGIN"),
    Fault("vanidl/compare/comparison.py", "and not _is_constant(change)", ""),
)

PLANS = (
    Fault(
        "vanidl/breakdown/rerun.py",
        "np.maximum(began, ready, out=began)",
        "np.minimum(began, ready, out=began)",
    ),
    Fault(
        "vanidl/breakdown/rerun.py",
        "late[0] = np.maximum(late[0], now + alone[0])",
        "late[0] = now + alone[0]",
    ),
    Fault(
        "vanidl/breakdown/rerun.py",
        "exists = (self.place >= places)",
        "exists = (self.place > places)",
    ),
    Fault("loaders/scheduled/plan.py", "turn=int(batch[0])", "turn=0"),
    Fault(
        "loaders/scheduled/plan.py",
        "whole + rank % each * self.settings.nodes + rank // each",
        "whole + rank",
    ),
    Fault(
        "loaders/scheduled/plan.py",
        "local[whole:], node[whole:] = np.divmod(rank[whole:], settings.nodes)",
        "pass",
    ),
    Fault("loaders/scheduled/plan.py", "place < capacity[node]", "place <= capacity[node]"),
    Fault("loaders/scheduled/plan.py", "if (held > [", "if (held > [1 + "),
    Fault(
        "loaders/scheduled/plan.py",
        "size = total + (local < rest)",
        "size = total + (local <= rest)",
    ),
    Fault(
        "loaders/scheduled/plan.py",
        "np.where(rest == 0, turn % ranks, 0)",
        "np.full_like(rest, turn % ranks)",
    ),
    Fault("loaders/scheduled/plan.py", "levels[:-1] <= lowest[1:]", "levels[:-1] >= lowest[1:]"),
    Fault(
        "loaders/scheduled/plan.py",
        "(node < self.buffer % self.nodes)",
        "(node <= self.buffer % self.nodes)",
    ),
    Fault(
        "loaders/scheduled/plan.py",
        "load |= place < settings.samples",
        "load |= place <= settings.samples",
    ),
    Fault(
        "loaders/scheduled/plan.py",
        "(np.arange(nodes) + turn) % nodes",
        "np.arange(nodes)",
    ),
)

FAULTS = (*ENCODING, *MODEL, *MERGE, *OVERLAP, *BREAKDOWN, *WORDING, *FINDINGS, *COMPARE, *PLANS)
