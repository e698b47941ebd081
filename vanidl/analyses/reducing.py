"""Folding parts into small values: by threads here, or by the workers of an executor."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

from vanidl.analyses.rows import SMALL_ROWS, Rows, rows_of, small_parts_together
from vanidl.model.fetches import NO_FETCHES
from vanidl.model.parts import Parts
from vanidl.model.selection import SelectedParts
from vanidl.model.trace import Part, Trace, concatenate_spans
from vanidl.parallel.executors import worker_count
from vanidl.parallel.threads import batches, thread_count

MOST_ROWS = 1 << 20  # operations that are sent to a worker at a time
MOST_PARTS = 64
_AHEAD = 2  # batches that are with each worker at a time: they lie in memory until they are sent
_WORTH_ROWS = 100  # of a part: with fewer, threads mostly wait for each other

Values = dict[str, Any]


class Reduction(Protocol):
    """A module or record that folds parts into one small value."""

    @property
    def NOTHING(self) -> Any:  # noqa: ANN401
        """The value of no part."""

    def partial(self, rows: Rows, trace: Trace) -> Any:  # noqa: ANN401
        """The value of the operations of one part or of several."""

    def combine(self, a: Any, b: Any) -> Any:  # noqa: ANN401
        """The value of both; associative and commutative."""


def reduce_parts(
    reductions: dict[str, Reduction],
    parts: Sequence[Part],
    trace: Trace,
    executor: Executor | None = None,
) -> Values:
    """Name -> the combined value of every reduction over all parts.

    With an executor its workers fold batches of parts, which may be cut anywhere. Equal-sized
    halves are combined first (as in a binary counter), so the work stays linear times log where
    values grow with the parts.
    """
    if executor is None:
        return _folded(reductions, _partials(reductions, parts, trace))
    return _folded(reductions, _from_workers(reductions, parts, trace, executor))


def _folded(reductions: dict[str, Reduction], partials: Iterable[Values]) -> Values:
    stack: list[tuple[int, Values]] = []
    for one in partials:
        weight, values = 1, one
        while stack and stack[-1][0] <= weight:
            other, before = stack.pop()
            weight, values = weight + other, _combine(reductions, before, values)
        stack.append((weight, values))
    if not stack:
        return {name: r.NOTHING for name, r in reductions.items()}
    _, total = stack.pop()
    for _, values in reversed(stack):
        total = _combine(reductions, values, total)
    return total


def _partials(
    reductions: dict[str, Reduction], parts: Iterable[Part], trace: Trace
) -> Iterator[Values]:
    """The values of each part or list of small parts, worked out by a few threads."""

    def values_of(parts: list[Part]) -> Values:
        rows = rows_of(parts, trace)
        return {name: r.partial(rows, trace) for name, r in reductions.items()}

    with ThreadPoolExecutor(thread_count()) as pool:
        ahead: deque[Future[Values]] = deque()
        for some in small_parts_together(parts):
            if (rows := sum(map(len, some))) < SMALL_ROWS or rows < _WORTH_ROWS * len(some):
                yield from (ahead.popleft().result() for _ in range(len(ahead)))
                yield values_of(some)
                continue
            ahead.append(pool.submit(values_of, some))
            if len(ahead) > thread_count():  # so only a few parts are in memory
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def _from_workers(
    reductions: dict[str, Reduction], parts: Sequence[Part], trace: Trace, executor: Executor
) -> Iterator[Values]:
    """The values of each batch in turn; a few batches are under way.

    Parts that lie in a file are read by the workers where these see it, too, so that they do not
    pass through this process; the first batch shows whether they do.
    """
    workers = _Workers(reductions, _without_records(trace), executor)
    in_file = iter(_in_file(parts))
    first = next(in_file, None)
    read_there = None if first is None else workers.read_there(first)
    if read_there is not None:
        yield read_there
    ahead: deque[tuple[Sequence[Part], Future[Values]]] = deque()
    for batch in _cut(parts) if read_there is None else in_file:
        ahead.append((batch, workers.submit(batch)))
        if len(ahead) >= _AHEAD * worker_count(executor):
            yield workers.values_of(*ahead.popleft())
    while ahead:
        yield workers.values_of(*ahead.popleft())


@dataclass(frozen=True, slots=True)
class _Workers:
    """What the workers of an executor do with batches of parts."""

    reductions: dict[str, Reduction]
    context: Trace
    executor: Executor

    def submit(self, batch: Sequence[Part]) -> Future[Values]:
        return self.executor.submit(reduce_parts, self.reductions, batch, self.context)

    def read_there(self, batch: Sequence[Part]) -> Values | None:
        """The values of a batch that lies in a file; None where a worker does not see it."""
        try:
            return self.submit(batch).result()
        except FileNotFoundError:
            return None

    def values_of(self, batch: Sequence[Part], future: Future[Values]) -> Values:
        """The values of a batch, whose parts are sent where its worker does not see their file."""
        try:
            return future.result()
        except FileNotFoundError:
            return self.submit(list(batch)).result()


def _in_file(parts: Sequence[Part]) -> list[Parts | SelectedParts]:
    """Batches of parts that lie in a file, by their places in it; none where they do not."""
    if not isinstance(parts, (Parts, SelectedParts)) or not parts.spilled:
        return []
    sizes, least = parts.sizes, MOST_ROWS // MOST_PARTS
    some_each = batches(range(len(sizes)), lambda i: max(sizes[i], least), MOST_ROWS)
    return [parts.at(some) for some in some_each]


def _cut(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Batches of parts, large ones cut."""
    batch: list[Part] = []
    for part in parts:
        for low in range(0, len(part), MOST_ROWS):
            batch.append(part.rows(slice(low, low + MOST_ROWS)))
            if len(batch) >= MOST_PARTS or sum(map(len, batch)) >= MOST_ROWS:
                yield batch
                batch = []
    if batch:
        yield batch


def _without_records(trace: Trace) -> Trace:
    """The trace with what a partial looks at: the job, its processes and its files."""
    return replace(
        trace,
        io=(),
        spans=concatenate_spans((), ()),
        counters={},
        logs=(),
        warnings=(),
        stripes=(),
        heatmaps=(),
        mpi=(),
        step_durations=(),
        fetches=NO_FETCHES,
    )


def _combine(reductions: dict[str, Reduction], a: Values, b: Values) -> Values:
    return {name: r.combine(a[name], b[name]) for name, r in reductions.items()}
