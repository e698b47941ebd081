"""What one process that trains is doing: of its journal, and of its page of memory if that is here.

A journal says what has ended, a second late; the page what goes on now. On another host there is
the journal alone: a wait or a save that goes on is a silence there.
"""

from __future__ import annotations

from vanidl.readers.steps.journal import ITER, KIND, LOADER_SHIFT, OTHER_STEP, WAIT
from vanidl.readers.steps.live import LiveJournal
from vanidl.readers.steps.loaders import EVALUATION
from vanidl.record.life import SAVE, Call, Life
from vanidl.watch.condition import Activity, State

_NOTHING = Call(0, 0)


def activity_of(
    label: str, journal: LiveJournal, life: Life | None, now_ns: int, news_ns: int
) -> Activity:
    """What a process does now.

    Args:
        label: how it is called.
        journal: what it has recorded.
        life: what is seen of it on this host, None where nothing is.
        now_ns: of the monotonic clock.
        news_ns: when its journal last grew, by that clock.
    """
    doing = (life.doing if life else None) or _NOTHING
    last = (life.last if life else None) or _NOTHING
    if last.code == 0:
        last = Call(journal.last, news_ns)
    silent_s = max(now_ns - max(doing.at_ns, last.at_ns), 0) / 1e9
    within, since_ns = (None, now_ns) if life and life.is_gone else _within(journal, doing, last)
    usual, longest = (journal.totals.step_quantile_ns(share) for share in (0.5, 0.99))
    return Activity(
        label=label,
        steps=journal.totals.steps,
        usual_s=None if usual is None else usual / 1e9,
        longest_s=None if longest is None else longest / 1e9,
        silent_s=silent_s,
        within=within,
        within_s=max(now_ns - since_ns, 0) / 1e9,
        trouble=life.trouble if life else "",
    )


def _within(journal: LiveJournal, doing: Call, last: Call) -> tuple[State | None, int]:
    """What the process is in the midst of, and since when.

    A call of one thread does not hold up another that goes on meanwhile: a save in the background,
    a thread that fetches ahead. So events since it began say that training is not in it.
    """
    kind, passed = doing.code & KIND, last.at_ns > doing.at_ns
    if kind == SAVE and not (passed and last.code & KIND != SAVE):
        return State.SAVING, doing.at_ns
    if kind == OTHER_STEP or (kind == WAIT and _validates(journal, doing.code)):
        return State.VALIDATING, doing.at_ns
    if kind in (WAIT, ITER):
        return State.WAITING, max(doing.at_ns, last.at_ns)
    if last.code & KIND == WAIT and _validates(journal, last.code):
        return State.VALIDATING, last.at_ns
    return None, doing.at_ns


def _validates(journal: LiveJournal, code: int) -> bool:
    """Whether a call is one of a loader that gives no batches of steps."""
    return journal.role(code >> LOADER_SHIFT) == EVALUATION
