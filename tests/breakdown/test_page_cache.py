"""Which epochs came from the page cache, of counts whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.breakdown.test_states import HOST, TRAINER, US, WORKER, with_worker
from vanidl.breakdown.page_cache import find_epoch_reads
from vanidl.model import states
from vanidl.model.states import States
from vanidl.model.trace import Trace
from vanidl.wording.headline import _describe_cached

MIB = 1 << 20
EPOCHS = 3


def run(read: list[int], device: list[int]) -> Trace:
    """Three epochs, in each of which the worker reads and its devices serve so many bytes."""
    trace, *_ = with_worker(1, (0.9, 0.1), (states.READ, states.RUNNING))
    epoch = np.arange(len(trace.fetches)) * EPOCHS // len(trace.fetches)
    begin = [int(trace.fetches.begin[epoch == e].min()) for e in range(EPOCHS)]
    end = [int(trace.fetches.wait_end[epoch == e].max()) for e in range(EPOCHS)]
    moved, done = [], {states.RCHAR: 0, states.READ_BYTES: 0}
    for e in range(EPOCHS):
        for what, much in ((states.RCHAR, read[e]), (states.READ_BYTES, device[e])):
            for part in (0.3, 0.6, 0.9):
                done[what] += much // 3
                moved.append((begin[e] + int(part * (end[e] - begin[e])), what, done[what]))
    rows = np.array(sorted(moved), np.int64)
    threads = [replace(t, moved=rows) if t.pid == WORKER else t for t in trace.states.threads]
    # What the training process reads beside its workers is of no fetch.
    other = np.array([(500 * US, states.RCHAR, 1 << 40)], np.int64)
    threads = [replace(t, moved=other) if t.pid == TRAINER else t for t in threads]
    assert {t.host for t in threads} == {HOST}
    fetches = replace(trace.fetches, epoch=epoch)
    return replace(trace, fetches=fetches, states=States(tuple(threads)))


def test_epochs_that_devices_served_are_told_from_those_that_the_cache_did() -> None:
    trace = run([300 * MIB] * 3, [300 * MIB, 0, 3 * MIB])
    found = find_epoch_reads(trace)
    assert [(e.epoch, e.read_nbytes, e.device_nbytes) for e in found] == [
        (0, 300 * MIB, 300 * MIB), (1, 300 * MIB, 0), (2, 300 * MIB, 3 * MIB)
    ]  # fmt: skip
    assert _describe_cached(trace).startswith(
        "Epochs 2 to 3 came from the page cache (600 MiB read, 3 MiB"
    )


@pytest.mark.parametrize(
    ("read", "device", "said"),
    [
        ([300] * 3, [0] * 3, "Nothing of the 900 MiB that fetches read came"),  # or not counted
        ([300, 300, 60], [0] * 3, "Nothing of the 600 MiB that fetches read in epochs 1 to 2 came"),
        ([60, 300, 60], [0] * 3, "Nothing of the 300 MiB that fetches read in epoch 2 came"),
        ([300] * 3, [300] * 3, ""),
        ([300] * 3, [300, 300, 15], "Epoch 3 came"),  # a twentieth
        ([300] * 3, [300, 300, 18], ""),  # more
        ([300] * 3, [147, 147, 0], ""),  # none was mostly of devices
        ([60] * 3, [60, 0, 0], ""),  # so little read says nothing
    ],
)
def test_each_side_of_the_thresholds(read: list[int], device: list[int], said: str) -> None:
    trace = run([n * MIB for n in read], [n * MIB for n in device])
    assert _describe_cached(trace).startswith(said) if said else _describe_cached(trace) == ""


def test_without_samples_nothing_is_said() -> None:
    trace = run([300 * MIB] * 3, [0] * 3)
    assert find_epoch_reads(replace(trace, states=States())) == ()
