"""Storage that hangs: reads are asked again without the memory that a late answer may write to."""

from __future__ import annotations

import ctypes
import logging
import threading
import time

import pytest

pytest.importorskip("h5py", reason="h5py is not installed")
pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.loaders.data.stored import written
from vanidl_loaders import pls
from vanidl_loaders.data import pread
from vanidl_loaders.data.pool import ReadThreads
from vanidl_loaders.loader import stalls
from vanidl_loaders.loader.loader import Settings
from vanidl_loaders.loader.prefetch import Background
from vanidl_loaders.loader.registry import open_loader
from vanidl_loaders.loader.stalls import ATTEMPTS, Retried, StalledError, WaitWatch


@pytest.fixture(scope="module")
def flat(tmp_path_factory):
    return written(tmp_path_factory.mktemp("flat"), "contiguous")


class Storage:
    """`pread`, of which some calls hang until the storage comes back."""

    def __init__(self, monkeypatch, hangs):
        self._pread, self._hangs, self.calls = pread._PREAD, hangs, 0
        self.back = threading.Event()
        self.late = []
        monkeypatch.setattr(pread, "_PREAD", self)

    def __call__(self, file, address, nbytes, offset):
        self.calls += 1
        if not self._hangs(self.calls):
            return self._pread(file, address, nbytes, offset)
        self.back.wait(60)
        ctypes.memset(address, 0xFF, nbytes)  # what a late answer brings, nobody knows
        self.late.append(nbytes)
        return nbytes


def epochs(samples, loader):
    """What each epoch gave: id -> bytes of a field."""
    name, found = samples.fields[0].name, []
    for epoch in range(3):
        loader.set_epoch(epoch)
        found.append({})
        for batch in loader:
            for i, value in zip(batch["sample"].tolist(), batch[name], strict=True):
                found[-1][i] = value.numpy().tobytes()
    return found


@pytest.mark.parametrize(("loader", "hangs"), [("scheduled", 9), ("pls", 1)])
def test_a_read_that_hangs_is_asked_again(loader, hangs, flat, monkeypatch, caplog):
    options = {"gap": 0, "buffer": len(flat) // 2, "look_ahead": 2} if loader == "scheduled" else {}
    settings = Settings(batch=4, epochs=3, read_timeout_s=1.5)
    whole = epochs(flat, open_loader(loader, flat, settings, options))
    storage = Storage(monkeypatch, lambda call: call == hangs)
    opened = open_loader(loader, flat, settings, options)
    again = epochs(flat, opened)
    assert storage.calls > hangs
    storage.back.set()  # what comes late is in nobody's buffer
    while not storage.late:
        time.sleep(0.01)
    assert again == whole == [whole[0]] * 3
    assert epochs(flat, opened) == whole
    opened.close()
    assert [r.getMessage() for r in caplog.records if "asking again" in r.getMessage()]


@pytest.mark.parametrize("loader", ["scheduled", "pls"])
def test_storage_that_stays_away_is_an_error(loader, flat, monkeypatch):
    storage = Storage(monkeypatch, lambda call: call > 5 or loader == "pls")
    settings = Settings(batch=4, epochs=3, read_timeout_s=0.1)
    options = {"gap": 0, "buffer": 4} if loader == "scheduled" else {}
    opened = open_loader(loader, flat, settings, options)
    with pytest.raises(StalledError, match=f"asked {ATTEMPTS} times"):
        epochs(flat, opened)
    opened.close()  # waits for nothing that hangs
    storage.back.set()


def test_items_behind_a_stall_follow_those_before():
    hang, opened = threading.Event(), []

    def items(given):
        opened.append(given)
        for number in range(given, 6):
            if len(opened) == 1 and number == 4:
                hang.wait(60)
            yield number

    reading = Retried(lambda given: Background(items(given), 1, 1.5))
    assert list(reading) == list(range(6))
    assert opened[0] == 0
    assert opened[1:] == [4]
    hang.set()


def test_a_long_wait_is_said_once(monkeypatch, caplog):
    monkeypatch.setattr(stalls, "SAID_AFTER_S", 0.0)
    since, looked = time.perf_counter(), []

    def waiting():
        looked.append(1)
        return since

    with caplog.at_level(logging.WARNING), WaitWatch(waiting, "rank 1 of 2", 30.0, 0.001):
        while len(looked) < 5:
            time.sleep(0.01)
    (said,) = [r.getMessage() for r in caplog.records]
    assert said.startswith("rank 1 of 2 has waited")


@pytest.mark.parametrize("allowed", [False, True])
def test_a_wait_that_nobody_can_end_ends_the_command_only(allowed, monkeypatch):
    monkeypatch.setattr(stalls._Ending, "allowed", allowed)
    given_up = []
    monkeypatch.setattr(stalls, "_end_process", given_up.append)
    watch = WaitWatch(lambda: 0.0, "rank 0 of 1", 1.0)
    watch._look(0.0, 100.0)
    assert len(given_up) == allowed


def test_threads_give_results_in_order_and_errors():
    with ReadThreads(3) as threads:
        assert threads.map(lambda value: value * 2, range(20)) == list(range(0, 40, 2))
        with pytest.raises(ZeroDivisionError):
            threads.map(lambda value: 1 // value, [1, 0])


def test_a_bad_timeout_is_refused():
    with pytest.raises(Exception, match="read timeout above 0"):
        Settings(read_timeout_s=0)


def test_a_local_part_is_read_again(monkeypatch):
    hang, asked = threading.Event(), []

    class Numbers:
        def __len__(self):
            return 8

        def __getitem__(self, sample):
            asked.append(sample)
            if len(asked) == 5:
                hang.wait(60)
            return sample

    dataset = pls.PartialLocalDataset(Numbers(), read_timeout_s=1.5)
    assert sorted(dataset[slot] for slot in range(8)) == list(range(8))
    assert len(set(asked[:5])) == 3  # the first ones are asked for twice
    hang.set()
