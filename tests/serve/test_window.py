"""What the server answers is what was recorded, at any zoom; a store by a stranger is refused."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analyses.test_laws import GRID, US, operations, spans, trace_of
from tests.viewer import unpacking
from vanidl.analyses import analyse
from vanidl.errors import InputError
from vanidl.run import Run
from vanidl.serve import window as windows
from vanidl.serve.store import open_store, write_store
from vanidl.serve.window import Window, answer, find
from vanidl.viewer.content import content_of
from vanidl.viewer.payload import payload

times = st.tuples(st.integers(-5, GRID + 5), st.integers(1, GRID)).map(
    lambda t: (t[0] * US, (t[0] + t[1]) * US)
)


def stored(ios, seen, folder: Path):
    trace = trace_of(ios, seen)
    run = Run(trace, analyse(trace))
    write_store(run, folder)
    return run, open_store(folder)


@given(operations(), spans, times, st.integers(1, 40), st.integers(0, 15))
def test_a_window_holds_its_slices_or_how_busy_they_were(ios, seen, window, width, most):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(windows, "MOST_SLICES", most)
        patched.setattr("vanidl.serve.store.REACH_ROWS", 2)
        patched.setattr(windows, "REACH_ROWS", 2)
        run, store = stored(ios, seen, Path(folder))
        low, high = window
        lanes = tuple(range(len(store.labels.lanes.lanes)))
        found = answer(store, Window(low, high, width, lanes))
    whole = payload(content_of(run), None)
    every = unpacking.slices(whole)
    inside = [
        s for s in every if s["pieces"][0][0] < high and s["pieces"][-1][1] > low
    ]  # fmt: skip
    held = unpacking.slices(found)
    key = json.dumps
    assert sorted(map(key, held)) == sorted(key(s) for s in inside if s["lane"] in found["whole"])
    edges = [low + round(i * (high - low) / width) for i in range(width + 1)]
    busy = {}
    for lane, row, fate, place, amount in _bins(found["bins"]):
        busy[lane, row, fate] = busy.get((lane, row, fate), 0) + amount
        assert 0 < amount <= edges[place + 1] - edges[place] + 1
    expected: dict = {}
    for each in every:
        if each["lane"] in found["whole"]:
            continue
        for start, end, fate in each["pieces"]:
            part = min(end, high) - max(start, low)
            if part > 0:
                of_row = expected.setdefault((each["lane"], each["row"], fate), [])
                of_row.append((max(start, low), min(end, high)))
    lengths = {k: _length(v) for k, v in expected.items()}
    assert busy == lengths


def _bins(packed):
    if packed is None:
        return
    columns = unpacking.columns(packed)
    at = 0
    for lane, row, fate, count in packed["series"]:
        for i in range(at, at + count):
            yield lane, row, fate, columns["place"][i], columns["busy"][i]
        at += count


def _length(intervals) -> int:
    total, reach = 0, -(2**63)
    for start, end in sorted(intervals):
        total += max(end - max(start, reach), 0)
        reach = max(reach, end)
    return total


@given(operations(), spans)
def test_a_file_is_found_with_its_first_operation(ios, seen):
    with tempfile.TemporaryDirectory() as folder:
        run, store = stored(ios, seen, Path(folder))
        paths = run.trace.files.path
        for code, path in enumerate(paths):
            starts = np.concatenate(
                [np.empty(0, np.int64), *(p.start[p.file == code] for p in run.trace.io)]
            )
            found = find(store, path.upper())
            assert found["name"] == paths[next(i for i, p in enumerate(paths) if path in p)]
            if found["name"] == path:
                assert found["count"] == len(starts)
                since = run.trace.job.start_ns
                first = int(starts.min()) - since if len(starts) else None
                assert (found["first"] and found["first"][0]) == first
        assert find(store, "no such file")["matches"] == 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    from tests.makers.records import Io, Span
    from vanidl.model.trace import SpanKind

    ios = [(0, Io(100 * US, 140 * US, 0, 4096)), (1, Io(120 * US, 180 * US, 4096, 4096))]
    stored(ios, [Span(SpanKind.INPUT_WAIT, 100 * US, 150 * US)], tmp_path)
    return tmp_path


def damaged(folder: Path, **changes) -> None:
    path = folder / "store.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 99}, {"segments": [[0, 0, 10**6, 0, 1, 0, []]]}, {"segments": [[]]},
        {"segments": [[-1, 0, 1, 0, 1, 0, []]]}, {"segments": 7}, {"lanes": [{"kind": "io"}]},
        {"since_ns": "0"}, {"since_ns": 2**70}, {"lengths": {}}, {"paths": None},
        {"segments": [[0, 0, 1, 0, 1, 0, [[0, 0, 0, 10**9]]]]},
    ],
    ids=lambda c: next(iter(c)),
)  # fmt: skip
def test_a_damaged_store_is_refused(folder, changes):
    damaged(folder, **changes)
    with pytest.raises(InputError, match="expected the slices of a run"):
        open_store(folder)


@pytest.mark.parametrize("name", ["start.bin", "busy_before.bin", "store.json"])
@pytest.mark.parametrize("how", ["cut", "gone"])
def test_a_store_with_a_file_cut_or_gone_is_refused(folder, name, how):
    path = folder / name
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match="expected the slices of a run"):
        open_store(folder)
