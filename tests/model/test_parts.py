from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.makers.large_logs import Workload, write_log
from tests.makers.sameness import same
from vanidl.analyses import reducing
from vanidl.analyses.results import analyse
from vanidl.merge.jobs import choose_run, group_runs
from vanidl.merge.pipeline import Options, assemble
from vanidl.model import parts as model_parts
from vanidl.model.parts import PackedPart, Parts, Store, pack_part
from vanidl.model.selection import Selection
from vanidl.model.trace import COLUMNS, POSIX, Part, Trace
from vanidl.readers.darshan.log import read_log
from vanidl.report.summary import summary_json
from vanidl.run import Run

# Packed parts are the same parts, in less memory.

CODES = {"thread": np.int32, "file": np.int32, "op": np.uint8}
BORDERS = [-1, 0, 1, 2**32 - 1, 2**32, 2**62]


@st.composite
def random_parts(draw: st.DrawFn) -> Part:
    rows = draw(st.integers(0, 40))
    columns = {}
    for name in COLUMNS:
        if name in CODES:
            longest = draw(st.sampled_from([1, 3, 40]))
            values = draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows))
            columns[name] = np.repeat(values, longest)[:rows].astype(CODES[name])
        else:
            some = draw(st.sampled_from([st.integers(0, 9), st.sampled_from(BORDERS)]))
            values = draw(st.lists(some, min_size=rows, max_size=rows))
            columns[name] = np.array(values, np.int64)
        columns[name].flags.writeable = False
    return Part(3, POSIX, **columns)


@given(random_parts())
def test_unpacked_parts_have_the_same_bits(part):
    held = PackedPart.of(3, POSIX, {name: getattr(part, name) for name in COLUMNS})
    assert same(held.unpacked(), part)
    assert len(held) == len(part)
    assert not any(getattr(held.unpacked(), name).flags.writeable for name in COLUMNS)


@given(random_parts(), st.integers(-5, 5))
def test_small_parts_are_kept_as_they_are_and_shifted_once(part, shift):
    store = Store.for_rows(len(part), spilled=False)
    store.add(pack_part(3, POSIX, {name: getattr(part, name).copy() for name in COLUMNS}))
    kept = store.finished().shifted({3: shift})
    assert same(kept[0], part.shifted(shift))
    assert kept[0] is kept[0]


def test_usual_operations_take_half_of_the_memory():
    rows = np.arange(1000, dtype=np.int64)
    zeros = {name: np.zeros(1000, kind) for name, kind in CODES.items()}
    columns = dict.fromkeys(COLUMNS, rows) | zeros
    kept = PackedPart.of(0, POSIX, columns).columns
    held = sum(c.nbytes for c in kept.values() if isinstance(c, np.ndarray))
    assert held == 1000 * (8 + 8 + 4 + 4)


pytest.importorskip("pyarrow", reason="spilled parts are Parquet")
cloudpickle = pytest.importorskip("cloudpickle", reason="comes with Dask")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "me_x_id1-2_1-1-1-1_1.darshan"
    write_log(path, Workload(20_000, ranks=5, files=7))
    return path


def trace(path: Path, *, spilled: bool, rows: int) -> Trace:
    logs = [read_log(path)]
    options = Options(max_part_rows=rows, spilled=spilled)
    return assemble(
        choose_run(group_runs(logs, [])), {log.path: log.counters for log in logs}, (), options
    )


@pytest.mark.parametrize("rows", [500, 8_000_000])
def test_spilled_parts_have_the_same_bits(log: Path, rows: int) -> None:
    held, spilled = (trace(log, spilled=s, rows=rows) for s in (False, True))
    assert isinstance(spilled.io, Parts)
    assert spilled.io.spilled
    assert len(held.io) == len(spilled.io)
    assert all(same(a, b) for a, b in zip(held.io, spilled.io, strict=True))
    assert not any(part.start.flags.writeable for part in spilled.io)
    assert summary_json(Run(held, analyse(held))) == summary_json(Run(spilled, analyse(spilled)))


def test_the_file_goes_with_its_parts(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = trace(log, spilled=True, rows=8_000_000)
    assert [p.name for p in tmp_path.rglob("*.parquet")] == ["operations.parquet"]
    assert sum(map(len, found.io)) == 20_000
    del found
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize(
    ("rows", "free", "expected"),
    [
        (1000, 1 << 20, False),  # so few never
        (4_000_000, 1 << 30, False),
        (8_000_000, 1 << 30, True),  # 360 MB of a gigabyte
        (model_parts.MOST_ROWS + 1, None, True),
        (model_parts.MOST_ROWS, None, False),
    ],
)
def test_size_and_memory_choose(
    rows: int, free: int | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_parts, "read_free_memory", lambda: free)
    assert model_parts.is_too_many(rows) is expected


def test_no_room_is_an_error_with_a_remedy(
    log: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(model_parts.VanidlError, match="TMPDIR"):
        trace(log, spilled=True, rows=8_000_000)


def test_columns_are_what_the_model_says(log: Path) -> None:
    part = trace(log, spilled=True, rows=8_000_000).io[0]
    assert part.start.dtype == np.int64
    assert part.file.dtype == np.int32
    assert part.op.dtype == np.uint8


class Nodes(Executor):
    """Runs a pickled call at once, as a worker elsewhere; of the file sees what `shared` says."""

    def __init__(self, *, shared: Callable[[int], bool]) -> None:
        self.shared = shared
        self.sent: list[int] = []  # bytes of each call

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        text = cloudpickle.dumps(args)
        self.sent.append(len(text))
        hidden = not self.shared(len(self.sent))
        future: Future[Any] = Future()
        with pytest.MonkeyPatch.context() as there:
            if hidden:
                there.setattr(model_parts._Folder, "read", not_there)
            try:
                future.set_result(fn(*pickle.loads(text)))
            except FileNotFoundError as error:
                future.set_exception(error)
        return future


def not_there(*_: Any) -> Part:
    raise FileNotFoundError


@pytest.mark.parametrize(
    ("shared", "through_here"),
    [
        pytest.param(lambda call: True, False, id="all nodes see the file"),
        pytest.param(lambda call: False, True, id="none does"),
        pytest.param(lambda call: call % 3 != 0, True, id="some do"),
    ],
)
@pytest.mark.parametrize("selection", [Selection(), Selection(from_s=0.01)])
def test_nodes_read_spilled_parts_themselves(
    log: Path, shared: Callable[[int], bool], through_here: bool, selection: Selection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(reducing, "MOST_ROWS", 4_000)
    whole = trace(log, spilled=True, rows=1_000)
    nodes = Nodes(shared=shared)
    assert same(analyse(whole, selection), analyse(whole, selection, nodes))
    part_nbytes = 1_000 * model_parts.ROW_NBYTES
    assert (max(nodes.sent) > part_nbytes) == through_here


def test_a_copy_of_spilled_parts_leaves_their_file(
    log: Path, collect: Callable[[], object]
) -> None:
    whole = trace(log, spilled=True, rows=8_000_000)
    copy = pickle.loads(pickle.dumps(whole.io))
    assert all(same(a, b) for a, b in zip(whole.io, copy, strict=True))
    del copy
    collect()
    assert len(whole.io[0])
