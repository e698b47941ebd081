"""What is said of processes that could not be tied to any rank."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from vanidl.model.trace import Process
from vanidl.model.warnings import Notice

_TRACKER_PIPE = re.compile(r"tracker_fd=(\d+)")
_MOST_NAMES = 4


def unassigned_notices(processes: Sequence[Process]) -> tuple[Notice, ...]:
    """One notice of all of them; none where there is none."""
    roles = Counter(p.role for p in processes)
    if not roles["unassigned"]:
        return ()
    lost = [p for p in processes if p.role == "unassigned"]
    names = ", ".join(p.label for p in lost[:_MOST_NAMES])
    more = f" and {len(lost) - _MOST_NAMES} more" if len(lost) > _MOST_NAMES else ""
    return (
        Notice(
            "unassigned",
            f"{len(lost)} of {len(processes)} processes could not be tied to one of the "
            f"{roles['trainer']} training processes ({names}{more}): the tracer does not "
            "record who started them, and several training processes ran around them. Their I/O "
            "is in the totals, in no rank, so busy time and overlap of the ranks lack it. "
            "DataLoader workers that are forked "
            f'(multiprocessing_context="fork") can be tied.{_families(lost)}',
        ),
    )


def _families(processes: Sequence[Process]) -> str:
    """What the commands of spawned children tell: siblings name the same tracker's pipe.

    The number is that of a descriptor of the parent, so it tells families apart and does not
    say whose they are.
    """
    pipes = [_TRACKER_PIPE.search(p.command) for p in processes]
    sizes = Counter((p.host, pipe[1]) for p, pipe in zip(processes, pipes, strict=True) if pipe)
    if sum(sizes.values()) < len(processes) or len(sizes) < 2:
        return ""
    each = sorted(set(sizes.values()))
    many = f"{each[0]}" if len(each) == 1 else f"{each[0]} to {each[-1]}"
    return (
        f" All were started by multiprocessing (spawn); by their common pipe they are "
        f"{len(sizes)} families of {many}, and Darshan does not record whose."
    )
