"""Each planted fault still has its place: code that moves takes its faults with it."""

from __future__ import annotations

from collections import Counter

from tests import ROOT
from tests.faults.planted import FAULTS


def test_each_stands_once_in_its_file_and_changes_it() -> None:
    gone = [
        f"{fault.path}: {fault.right!r}"
        for fault in FAULTS
        if not (ROOT / fault.path).is_file()
        or (ROOT / fault.path).read_text("utf-8").count(fault.right) != 1
    ]
    assert not gone, "\n".join(["places are gone or stand twice:", *gone])
    assert not [fault for fault in FAULTS if fault.right == fault.wrong]


def test_none_is_planted_twice() -> None:
    assert not [fault for fault, times in Counter(FAULTS).items() if times > 1]
