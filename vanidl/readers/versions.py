"""Files that tell again, and less completely, what another file of the run tells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vanidl.model.warnings import Notice

_MOST_NAMES = 3


def left_out(pairs: Sequence[tuple[str, str]]) -> Iterator[Notice]:
    """A warning about pairs of (path left out, path used instead), where there is one."""
    if not pairs:
        return
    named = "; ".join(f"{path}, used: {used}" for path, used in pairs[:_MOST_NAMES])
    more = "; ..." if len(pairs) > _MOST_NAMES else ""
    yield Notice(
        "versions_left_out",
        f"{len(pairs):,} of the files tell of the same process and time as another one and are "
        f"left out: the most complete one counts, alone ({named}{more}). Remove what is out of "
        "date, or name the file to use.",
    )
