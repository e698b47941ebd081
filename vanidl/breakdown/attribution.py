"""Where the account of a run is made, and where the run is opened to be run again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vanidl.analyses.results import Results
from vanidl.breakdown import assumptions
from vanidl.breakdown.account import Breakdown, CellTable
from vanidl.breakdown.whole_runs import Sources, attribute_runs, make_account
from vanidl.model.trace import Trace

if TYPE_CHECKING:
    from vanidl.breakdown.pipelines import Gains


def attribute_time(
    trace: Trace, results: Results, assume: frozenset[str] = assumptions.ALL
) -> Breakdown:
    """The account of a run, from everything that its logs and profiles hold.

    Args:
        trace: the run, as its selection sees it.
        results: its analyses: reductions over its operations, and its coverage.
        assume: what may be assumed; cells that rest on it name it.
    """
    if len(trace.spans) or trace.layers_traced:
        from vanidl.breakdown.rank_accounts import attribute_ranks

        return attribute_ranks(trace, results, assume)
    # Of counters alone nothing has a place in time: no step, no phase, nothing that overlaps.
    sources = Sources(trace, results, assume)
    table = CellTable(len(trace.ranks), sources.window_ns)
    attribute_runs(table, sources)
    return make_account(table, sources, np.zeros(len(trace.ranks), np.int64))


def open_gains(trace: Trace, results: Results, account: Breakdown | None = None) -> Gains | None:
    """The run, ready to be run again without a cause; None without steps and their waits.

    Args:
        trace: the run, as its selection sees it.
        results: its analyses.
        account: its account, where that was made: what is known of its calls is taken from there.
    """
    if not len(trace.spans):
        return None
    from vanidl.breakdown import pipelines  # only runs with steps are run again

    recorded = pipelines.record_pipelines(trace)
    if not recorded:
        return None
    if account is not None:
        gains = pipelines.open_gains(trace, recorded, account.served)
        return gains.knowing(account.sampled_waits)
    from vanidl.breakdown.rank_accounts import collect_calls

    return pipelines.open_gains(trace, recorded, collect_calls(trace, results))
