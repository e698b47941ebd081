"""What could be gained at most and at least: the recorded run again without a cause.

Every bound of a gain comes from here. The run is played with the cause's time set to zero
wherever it lies on the chain, before a wait too: `low` with what each fetch holds of it at least,
`high` with what it holds at most. Gains of several causes overlap and need not add up.

In order, a run is never longer for a shorter fetch, and never shorter by more than the fetch is:
all starts and ends are maxima of sums, along paths on which a fetch counts once. So where the sum
of a cause over fetches is known, the truth lies within what the sum leaves open of either end.
A path is lengthened by D = (sum of mosts - sum) at most against the most, and not beyond what it is
with the least; of two such lengths the lesser is no more than any mean of them, so the gain is at
least that with t x least + (1 - t) x most taken away, less (1 - t) D, for each t in [0, 1].

Loaders that hand over what comes first obey neither (R. L. Graham, Bounds on multiprocessing
timing anomalies, 1969): there removals between the two are tried as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vanidl.breakdown.rerun import Change, Columns, Fetched, Shortened, measure, replay
from vanidl.schema.dataclass import dataclass

Array = NDArray[np.float64]
Durations = NDArray[np.float64] | NDArray[np.int64]
Mask = NDArray[np.bool_]

TRUSTED = 0.05
"""Of the waits: a replay of the unchanged run that misses more of them tells nothing."""
TRIALS = 20
"""Removals between the least and the most, where batches are not handed over in order."""
_MIXED = (0.25, 0.5, 0.75)  # shares of the least, where sums are known
SLOWEST = 1 / 40
"""Of the fetches: those whose slowness is looked at apart."""


@dataclass(frozen=True, slots=True)
class Sum:
    """What a cause takes of some batches of a pipeline in all, in ns: the counter of a process."""

    rows: Mask | slice
    least_ns: float
    most_ns: float


@dataclass(frozen=True, slots=True)
class Share:
    """What one cause takes of each batch of a pipeline, in ns; arrays as those of `Fetched`."""

    low_ns: Durations  # at least, of the part
    high_ns: Durations  # at most
    part: str = "fetch"
    """"fetch": of [begin, end); "delivery": of what follows, to the wait's end; "start": of what
    lies between asking and beginning."""
    sums: Sequence[Sum] = ()
    along_ns: Durations | None = None
    """Most of the fetch that may go with it: others' run queues, I/O that shares its storage."""
    beside_ns: Durations | None = None
    """The same of what the training process does until the next wait."""
    delivery_ns: Durations | None = None
    """The same of the delivery: the worker was busy with the cause while the batch was sent."""


@dataclass(frozen=True, slots=True)
class Where:
    """Of which batches a cause is taken away; the defaults: of all."""

    ranks: frozenset[int] | None = None
    pipelines: frozenset[int] | None = None  # loaders, as places among those asked about
    epochs: frozenset[int] | None = None
    window_ns: tuple[int, int] | None = None  # batches whose waits end in [begin, end)
    slowest: float | None = None
    """Only of so large a share of these, those with the longest fetches, and only what is above
    the median."""

    def batches(self, pipelines: Sequence[Fetched]) -> list[Mask]:
        """For each pipeline which of its batches are meant; of the slowest all."""
        masks = []
        for place, fetched in enumerate(pipelines):
            meant = self.ranks is None or fetched.rank in self.ranks
            meant &= self.pipelines is None or place in self.pipelines
            mask = np.full(len(fetched), meant)
            if self.epochs is not None:
                mask &= np.isin(fetched.epoch, sorted(self.epochs))
            if self.window_ns is not None:
                begin_ns, end_ns = self.window_ns
                mask &= (fetched.wait_end_ns >= begin_ns) & (fetched.wait_end_ns < end_ns)
            masks.append(mask)
        return masks


EVERYWHERE = Where()


@dataclass(frozen=True, slots=True)
class Gain:
    """By how much the run would be shorter, in ns: at least `low_ns`, at most `high_ns`."""

    low_ns: float
    high_ns: float
    touchable_ns: float  # the waits of these batches, and what may go with them
    missed_ns: float  # by which the replay of the unchanged run is off
    trusted: bool  # False: it is off by too much, and nothing but what is touchable is known
    assumed: bool = False
    """Whether it rests on steps taking all ranks as long: how long they waited for each other is
    not known."""


def bound_gain(
    pipelines: Sequence[Fetched],
    causes: Sequence[Mapping[str, Share]],
    cause: str,
    where: Where = EVERYWHERE,
) -> Gain:
    """What the run gains without a cause.

    Args:
        pipelines: all loaders of all ranks.
        causes: for each of them what causes take of its batches; one without the cause has none.
        cause: its name.
        where: of which batches it is taken away.
    """
    return Without(pipelines).gain([each.get(cause) for each in causes], where)


class Without:
    """Gains of one run, which is measured once."""

    def __init__(self, pipelines: Sequence[Fetched]) -> None:
        self._pipelines = pipelines
        self._machine = machine = measure(pipelines)
        ready = machine.by_column([np.broadcast_to(True, len(p)) for p in pipelines])
        unchanged_ns, waitless_ns = replay(machine, [Change(), Change(unwaited=ready)]).tolist()
        self._unchanged_ns = unchanged_ns
        self._missed_ns = abs(unchanged_ns - machine.recorded_ns)
        self._assumed = len(machine.chains) > 1 and any(p.peers_ns is None for p in pipelines)
        self._trusted = self._missed_ns <= max(TRUSTED * (unchanged_ns - waitless_ns), 1.0)

    def gain(self, shares: Sequence[Share | None], where: Where = EVERYWHERE) -> Gain:
        """What the run gains without a cause that takes so much of each pipeline."""
        pipelines, machine = self._pipelines, self._machine
        # What is taken away, and what may become shorter because of it.
        removals = [
            _bound_removal(p, share, mask, where.slowest)
            for p, share, mask in zip(pipelines, shares, where.batches(pipelines), strict=True)
        ]
        touched = [_from_the_first_on(p, r.rows) for p, r in zip(pipelines, removals, strict=True)]
        # The run without the least, without the most, and without any wait for these batches.
        changes = [
            self._change(removals, [r.low for r in removals]),
            self._change(removals, [r.high for r in removals], most=True),
            replace(
                self._change(removals, [None] * len(removals), most=True),
                unwaited=machine.by_column(touched),
            ),
        ]
        # Mixes of the two where sums are known better than terms; out of order also trials.
        is_summed = all(r.is_summed for r in removals if r.rows.any())
        mixed = _MIXED if is_summed and machine.in_order else ()
        changes += [
            self._change(removals, [t * r.low + (1 - t) * r.high for r in removals], most=True)
            for t in mixed
        ]
        if not machine.in_order:
            changes += self._trials(removals)
        # Gains, as far as the replay of the unchanged run can be trusted.
        gains_ns = (self._unchanged_ns - replay(machine, changes)).tolist()
        waited_ns = self._waited_ns(touched, removals)
        if not self._trusted:
            return Gain(0.0, waited_ns, waited_ns, self._missed_ns, False, self._assumed)

        # The order of the changes above: what is touchable is the third.
        touchable_ns = max(min(gains_ns.pop(2) + self._missed_ns, waited_ns), 0.0)
        between_ns = [gains_ns.pop(2) for _ in mixed]
        low_ns, high_ns = min(gains_ns), max(gains_ns)
        # A sum bounds the gain of every distribution that has it.
        if is_summed:
            along_ns = sum(float((r.along + r.beside + r.delivery).sum()) for r in removals)
            over_ns = along_ns + sum(float(r.high.sum()) - r.least_ns for r in removals)
            under_ns = along_ns + sum(r.most_ns - float(r.low.sum()) for r in removals)
            mixes = zip((0.0, *mixed), (high_ns, *between_ns), strict=True)
            low_ns, high_ns = (
                max(low_ns, *(gain - (1 - t) * over_ns - t * along_ns for t, gain in mixes)),
                min(high_ns, low_ns + under_ns, sum(r.most_ns for r in removals) + along_ns),
            )
        high_ns = float(min(max(high_ns + self._missed_ns, 0.0), touchable_ns))
        low_ns = float(min(max(low_ns - self._missed_ns, 0.0), high_ns))
        return Gain(low_ns, high_ns, touchable_ns, self._missed_ns, True, self._assumed)

    def shorten_steps(
        self,
        between_ns: Sequence[Durations],
        low_share: float,
        high_share: float,
        outside_ns: float = 0.0,
    ) -> Gain:
        """What the run gains where the time between a batch's wait and the next one is shorter.

        Args:
            between_ns: for each pipeline what is looked at of it, of each batch.
            low_share: of it, how much is taken away at least.
            high_share: and at most.
            outside_ns: what is looked at outside the run that can be run again.
        """
        # The run with the time after each wait shorter by either share.
        machine = self._machine
        less = machine.by_column([each.astype(np.float64) for each in between_ns])
        changes = [
            Change(
                {
                    "until": [
                        Shortened(chain.until, share * own)
                        for chain, own in zip(machine.chains, less, strict=True)
                    ]
                }
            )
            for share in (low_share, high_share)
        ]
        low_ns, high_ns = (self._unchanged_ns - replay(machine, changes)).tolist()
        # What is outside the replay is gained as it is.
        whole_ns = max((float(own.sum()) for own in less), default=0.0) + outside_ns
        low_ns = max(low_ns - self._missed_ns, 0.0) + low_share * outside_ns
        high_ns = min(high_ns + self._missed_ns + high_share * outside_ns, high_share * whole_ns)
        if not self._trusted:
            low_ns, high_ns = 0.0, high_share * whole_ns
        return Gain(
            min(low_ns, high_ns), high_ns, whole_ns, self._missed_ns, self._trusted, self._assumed
        )

    def _change(
        self,
        removals: Sequence[_Removal],
        taken_ns: Sequence[Durations | None],
        *,
        most: bool = False,
    ) -> Change:
        """The run without so much of a cause, and at most without what may go with it."""
        chains, laid = self._machine.chains, self._machine.by_column
        parts: dict[str, Sequence[Columns]] = {}

        def shorten(name: str, less: Sequence[Columns]) -> list[Columns]:
            """Takes time from a part, and returns what the part was too short for."""
            own = parts.get(name, [getattr(chain, name) for chain in chains])
            parts[name] = [Shortened(*both) for both in zip(own, less, strict=True)]
            return [Shortened(*both) for both in zip(less, own, strict=True)]

        # The cause itself, from the part that it is in.
        for part in {r.part for r in removals if r.rows.any()}:
            both = zip(taken_ns, removals, strict=True)
            of_part = laid([taken if r.part == part else None for taken, r in both])
            if part == "delivery":
                shorten("hold", shorten("delivery", of_part))
            else:
                shorten({"fetch": "fetch", "start": "lag"}[part], of_part)
        # At most also what may go with it.
        with_it = {"along": "fetch", "beside": "until", "delivery": "delivery"}
        for name, part in with_it.items() if most else ():
            if any(getattr(r, name).any() for r in removals):
                shorten(part, laid([getattr(r, name) for r in removals]))
        return Change(parts)

    def _trials(self, removals: Sequence[_Removal]) -> list[Change]:
        """Removals between the least and the most, as far as sums allow them."""
        random = np.random.default_rng(0)
        return [
            self._change(removals, [r.between(random) for r in removals]) for _ in range(TRIALS)
        ]

    def _waited_ns(self, touched: Sequence[Mask], removals: Sequence[_Removal]) -> float:
        """As it was recorded: the longest wait of the ranks in each step, and what may go too."""
        machine = self._machine
        longest = np.zeros(len(machine.meets))
        places = zip(self._pipelines, machine.columns_of, touched, removals, strict=True)
        for p, columns, mask, removal in places:
            waits = (p.wait_end_ns - p.wait_begin_ns) * mask + removal.beside
            longest[columns] = np.maximum(longest[columns], waits)
        return float(longest.sum())


@dataclass(frozen=True, slots=True)
class _Removal:
    """What is taken from each batch of a pipeline, in ns."""

    rows: Mask
    part: str
    low: Durations
    high: Durations
    along: Durations
    beside: Durations
    delivery: Durations
    is_summed: bool  # whether the sum is known better than by its terms
    least_ns: float
    most_ns: float

    def between(self, random: np.random.Generator) -> Array:
        """A removal drawn at random, with a sum that is possible."""
        taken = self.low + random.random(len(self.low)) * (self.high - self.low)
        sum_ns, low_ns, high_ns = taken.sum(), self.low.sum(), self.high.sum()
        if sum_ns > self.most_ns > low_ns:
            taken = self.low + (taken - self.low) * ((self.most_ns - low_ns) / (sum_ns - low_ns))
        elif sum_ns < self.least_ns < high_ns:
            left = (high_ns - self.least_ns) / (high_ns - sum_ns)
            taken = self.high - (self.high - taken) * left
        return taken


def _bound_removal(
    fetched: Fetched, share: Share | None, rows: Mask, slowest: float | None
) -> _Removal:
    """What is taken away at least and at most, each end as tight as sums allow."""
    nothing, none = (np.broadcast_to(value, len(fetched)) for value in (0.0, False))
    if share is None or not rows.any():
        return _Removal(
            none, "fetch", nothing, nothing, nothing, nothing, nothing,
            is_summed=True, least_ns=0.0, most_ns=0.0,
        )  # fmt: skip
    # The ends of each batch, as tight as what is known of sums.
    low, high = share.low_ns, share.high_ns
    if share.sums:
        low, high = low.astype(np.float64), high.astype(np.float64)
    more_ns = less_ns = 0.0  # by which sums are beyond those of the ends
    for known in share.sums:
        own, of_sum = np.zeros(len(fetched), np.bool_), known.rows
        own[of_sum] = True
        slack_low, slack_high = known.least_ns - high[own].sum(), known.most_ns - low[own].sum()
        low[own], high[own] = (
            np.maximum(low[own], high[own] + slack_low),
            np.minimum(high[own], low[own] + max(slack_high, 0.0)),
        )
        own_here, elsewhere = own & rows, own & ~rows
        more_ns += max(known.least_ns - high[elsewhere].sum() - low[own_here].sum(), 0.0)
        less_ns += max(high[own_here].sum() - known.most_ns + low[elsewhere].sum(), 0.0)
    # Only of the slowest, and only what is above the median.
    is_summed = bool(share.sums) and slowest is None
    if slowest is not None:
        lengths = np.where(rows, fetched.end_ns - fetched.begin_ns, -1)
        count = math.ceil(slowest * int(rows.sum()))
        usual_low, usual_high = float(np.median(low[rows])), float(np.median(high[rows]))
        rows = np.zeros(len(fetched), np.bool_)
        rows[np.argsort(lengths, kind="stable")[len(lengths) - count :]] = True
        low, high = np.maximum(low - usual_high, 0), np.maximum(high - usual_low, 0)
    if not rows.all():
        low, high = low * rows, high * rows
    return _Removal(
        rows=rows,
        part=share.part,
        low=low,
        high=high,
        along=nothing if share.along_ns is None else share.along_ns * rows,
        beside=nothing if share.beside_ns is None else share.beside_ns * rows,
        delivery=nothing if share.delivery_ns is None else share.delivery_ns * rows,
        is_summed=is_summed,
        least_ns=float(low.sum()) + more_ns,
        most_ns=float(high.sum()) - less_ns,
    )


def _from_the_first_on(fetched: Fetched, rows: Mask) -> Mask:
    """Batches whose waits may become shorter: those, and what follows them in their iterators."""
    if rows.all() or not rows.any():
        return rows
    epochs, number = np.unique(fetched.epoch, return_inverse=True)
    first = np.full(len(epochs), len(rows))
    np.minimum.at(first, number[rows], np.flatnonzero(rows))
    touched: Mask = np.arange(len(rows)) >= first[number]
    return touched
