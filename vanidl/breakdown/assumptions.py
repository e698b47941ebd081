"""What must hold, beyond what was recorded, for bounds to be right.

Every bound can be worked out with what is assumed and without it: `attribute_time`
takes the assumptions that it may make. A cell that differs between both names them.
"""

from __future__ import annotations

NOT_MAPPED = (
    "no file was mapped into memory, and no stat was one that Darshan misses (of glibc 2.33 and "
    "later): neither was recorded"
)
BLOCKING = "blocking calls of an MPI program come one at a time"
NESTED = "a layer that moves no more bytes than the one above was called from it"
SOME_WORKER = (
    "an input wait whose fetch was not recorded was for a worker that did as much as the least or "
    "the most busy one meanwhile, or something between"
)
ASKED_AS_IT_WAITED = (
    "a batch was asked of its worker as the wait for it began, where that was not recorded"
)
BINS_HOLD_ALL = "metadata calls, which are in no heat map, took no time"
FOLLOWS = "what lies between two profiled steps, where it is shorter than a step, is of the second"
ONE_CLOCK = "clocks that are known to a millisecond are one clock"
OPERATORS_COMPUTE = (
    "operators are of the model, and call no storage: not every wait was marked, or call traced"
)
MODEL_COMPUTES = "who runs in forward, backward or optimizer computes"
CACHE_SERVES = (
    "the page cache serves a byte within 1 ns and a call within 5 us, and fetches use it alike"
)
LOCK_IS_STORAGE = (
    "who waited for a lock while another thread of its process was in storage, waited for that"
)
ONE_THREAD = "calls of a process were of the thread that trains: threads were not recorded"
TRACED_DELAYS_NEXT = (
    "what the tracer took of other threads and processes delays the next wait for input"
)
ALL_TRACED_THERE = "no more calls were traced, and cost the tracer's time, than its logs hold"

ALL = frozenset(
    {
        ALL_TRACED_THERE,
        CACHE_SERVES,
        LOCK_IS_STORAGE,
        MODEL_COMPUTES,
        NOT_MAPPED,
        BLOCKING,
        NESTED,
        SOME_WORKER,
        ASKED_AS_IT_WAITED,
        BINS_HOLD_ALL,
        FOLLOWS,
        ONE_CLOCK,
        OPERATORS_COMPUTE,
        ONE_THREAD,
        TRACED_DELAYS_NEXT,
    }
)
