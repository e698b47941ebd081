"""Bytes of each file against its size, over random losses that are known by construction."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import vanidl
from tests.makers.dftracer_traces import PfwTrace
from vanidl.merge.pipeline import Inputs
from vanidl.model.run_facts import DataOptions

FILES = 20


@given(
    sizes=st.lists(st.integers(1, 5000), min_size=FILES, max_size=FILES),
    epochs=st.integers(1, 3),
    opens=st.integers(1, 2),
    lost=st.dictionaries(st.integers(0, FILES - 1), st.integers(-400, 400), max_size=4),
)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_bytes_that_are_missing_or_too_many_are_said(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    epochs: int,
    opens: int,
    lost: dict[int, int],
) -> None:
    folder = tmp_path_factory.mktemp("sizes")
    changes = {i: max(n, 1 - sizes[i]) for i, n in lost.items()}
    changes = {i: n for i, n in changes.items() if n}
    _write(folder, sizes, epochs, opens, changes)
    inputs = Inputs(data=DataOptions((str(folder / "data"),)))
    run = vanidl.open_run(folder / "run", inputs=inputs)
    found = [w.message for w in run.coverage.warnings if w.code == "sizes_differ"]
    assert len(found) == bool(changes)
    missing, extra = (
        -sum(min(n, 0) for n in changes.values()),
        sum(max(n, 0) for n in changes.values()),
    )
    for message in found:
        assert f"{len(changes)} of {FILES} files" in message
        assert re.search(rf"\b{missing:,} bytes are missing.* {extra:,} are too many", message)


def _write(
    folder: Path, sizes: list[int], epochs: int, opens: int, changes: dict[int, int]
) -> None:
    (folder / "data").mkdir()
    trace = PfwTrace(100)
    at = 0
    for i, size in enumerate(sizes):
        (folder / "data" / f"{i}.bin").write_bytes(bytes(size))
    for epoch in range(epochs):
        for i, size in enumerate(sizes):
            for _ in range(opens):
                at += 10
                trace.io("open64", f"/job/data/{i}.bin", at, 5)
            nbytes = size + (changes.get(i, 0) if epoch == 0 else 0)
            trace.io("read", f"/job/data/{i}.bin", at + 5, 2, ret=nbytes)
    trace.end(at + 100)
    trace.write(folder / "run" / "trace-0-preload.pfw")


def test_files_that_are_read_in_samples_are_not_compared(tmp_path: Path) -> None:
    trace = PfwTrace(100)
    (tmp_path / "data").mkdir()
    for i in range(9):
        (tmp_path / "data" / f"{i}.bin").write_bytes(bytes(1000))
        trace.io("open64", f"/job/data/{i}.bin", 20 * i, 5)
        trace.io("pread", f"/job/data/{i}.bin", 20 * i + 9, 5, ret=10 * i + 10, offset=3)
    trace.end(1000)
    trace.write(tmp_path / "run" / "trace-0-preload.pfw")
    inputs = Inputs(data=DataOptions((str(tmp_path / "data"),)))
    run = vanidl.open_run(tmp_path / "run", inputs=inputs)
    assert "sizes_differ" not in {w.code for w in run.coverage.warnings}
