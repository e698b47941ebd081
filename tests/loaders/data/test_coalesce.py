"""The storage's speed, measured against a storage whose clock is its own."""

from __future__ import annotations

import time

import pytest

from vanidl_loaders.data.coalesce import StorageSpeed, measure_storage

ROW = 4096


class Storage:
    """Reads take latency_s + bytes / bytes_per_s, and `late_s` more where they are large."""

    def __init__(self, latency_s: float, bytes_per_s: float, late_s: float = 0.0) -> None:
        self.now_s = 0.0
        self._speed, self._late_s = StorageSpeed(latency_s, bytes_per_s), late_s

    def read(self, start: int, stop: int) -> None:
        speed = self._speed
        self.now_s += speed.latency_s + (stop - start) * ROW / speed.bytes_per_s
        self.now_s += self._late_s * (stop - start > 1)

    def speed(self, patch: pytest.MonkeyPatch, most_rows: int = 190) -> StorageSpeed:
        """As measured."""
        patch.setattr(time, "perf_counter", lambda: self.now_s)
        return measure_storage(self.read, 30_000, ROW, most_rows)


@pytest.mark.parametrize("latency_s", [2e-4, 2e-3])
@pytest.mark.parametrize("bytes_per_s", [2e7, 5e7])
def test_a_storage_without_noise_is_measured_exactly(
    latency_s: float, bytes_per_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Storage(latency_s, bytes_per_s).speed(monkeypatch)
    assert found.latency_s == pytest.approx(latency_s)
    assert found.bytes_per_s == pytest.approx(bytes_per_s)


@pytest.mark.parametrize("most_rows", [3, 190])
@pytest.mark.parametrize("late_s", [0.1, 10.0])
def test_late_large_reads_never_make_asking_again_free(
    late_s: float, most_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """262,144 runs of a block, asked for one by one, must not look like no time at all."""
    found = Storage(2e-3, 1e7, late_s).speed(monkeypatch, most_rows)
    assert found.latency_s >= 2e-3 / 4


def test_large_reads_that_seem_to_cost_nothing_never_make_reading_on_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = Storage(2e-3, 1e12, -1.9e-3).speed(monkeypatch)
    assert found.bytes_per_s < 1e12


def test_where_bytes_take_the_time_no_row_is_read_through(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Storage(0.0, 1e6).speed(monkeypatch).most_gap_rows(ROW) == 0
