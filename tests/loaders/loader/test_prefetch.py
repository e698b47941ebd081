"""Items made by a thread: in order, so many ahead and no more, with what went wrong behind them."""

from __future__ import annotations

import threading
import time

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from vanidl_loaders.errors import UsageError
from vanidl_loaders.loader.prefetch import Background, BackgroundGroups

GROUPS = [[0, 1, 2], [], [3], [4, 5]]


def made(groups, begun, last=None):
    """The groups, each noted before it is made; then maybe an error."""
    try:
        for group in groups:
            begun.append(group)
            yield group
        if last is not None:
            raise last
    finally:
        begun.append("closed")


def settled(begun, count):
    """True once so many were begun, and a while later no more."""
    deadline = time.monotonic() + 10
    while len(begun) < count and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.02)
    return len(begun) == count


@pytest.mark.parametrize("ahead", [1, 2, 9])
def test_items_of_groups_come_one_by_one_and_in_order(ahead):
    groups = BackgroundGroups(made(GROUPS, []), ahead)
    assert list(groups) == [0, 1, 2, 3, 4, 5]
    assert list(groups) == []
    groups.close()


@pytest.mark.parametrize("ahead", [1, 2])
def test_no_more_are_made_than_may_wait(ahead):
    begun = []
    items = Background(made(range(9), begun), ahead)
    assert settled(begun, ahead)
    assert next(items) == 0
    assert settled(begun, ahead + 1)
    items.close()
    items.close()
    assert begun[-1] == "closed"
    assert list(items) == []


def test_a_group_is_made_while_the_one_before_is_used():
    begun = []
    groups = BackgroundGroups(made(GROUPS, begun), 1)
    assert settled(begun, 1)
    assert [next(groups), next(groups)] == [0, 1]
    assert settled(begun, 2)
    groups.close()


def test_an_error_comes_behind_the_items_made_before_it():
    groups = BackgroundGroups(made(GROUPS, [], OSError("gone")), 1)
    assert [next(groups) for _ in range(6)] == [0, 1, 2, 3, 4, 5]
    with pytest.raises(OSError, match="gone"):
        next(groups)
    groups.close()


def test_closing_ends_the_thread_and_drops_what_waits():
    before, begun = threading.active_count(), []
    groups = BackgroundGroups(made([[1, 2]] * 5, begun), 2)
    assert next(groups) == 1
    groups.close()
    assert threading.active_count() == before
    assert list(groups) == []


def test_nothing_ahead_is_refused():
    with pytest.raises(UsageError, match="at least 1 item ahead"):
        BackgroundGroups(made(GROUPS, []), 0)
