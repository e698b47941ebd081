"""One key in every table: its columns have one type and one meaning, and no row is lost by them."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas
import pytest

import vanidl
from tests import DATA, SHARED
from tests.makers.results import EXAMPLES
from vanidl.commands import demo
from vanidl.errors import UsageError
from vanidl.frames import FRAMES, KEYS, TABLES, frame, operation_frames
from vanidl.model.selection import Selection
from vanidl.run import Run

RECORDED = [*sorted(path.parent for path in DATA.glob("*/tb")), DATA / "torch_fetches", demo.RUN]
MADE = sorted({*EXAMPLES} - {"many_ranks"})
BESIDE = [
    *sorted(path for path in (SHARED / "data/recorded").glob("*") if path.name != "scripts"),
    *sorted((SHARED / "data/public/cases").glob("pub_workers_missing/*.darshan")),
    *sorted((SHARED / "data/public/darshan_logs").glob("nonmpi_dxt_anonymized.darshan")),
    *sorted((SHARED / "data/public/darshan_logs/release_logs").glob("*.darshan")),
    *sorted((SHARED / "data/public/kineto_resnet50_v100").glob("*")),
]
"""Recordings and other people's logs, where they are at hand."""
WHOLE = {"rank": "processes", "file": "files", "step": "steps", "epoch": "phases"}
"""Key -> the table that has a row of every value of it."""
EXCERPTS = {"slowest": "operations"}
"""Table -> that of which it holds some rows: others may share nothing with those."""


@pytest.fixture(scope="module")
def tables() -> Callable[[Path | str], dict[str, pandas.DataFrame]]:
    made: dict[Path | str, dict[str, pandas.DataFrame]] = {}

    def of(name: Path | str) -> dict[str, pandas.DataFrame]:
        if name not in made:
            run = EXAMPLES[name]().run if isinstance(name, str) else vanidl.open_run(name)
            made[name] = {table: frame(run, table) for table in TABLES}
        return made[name]

    return of


every_run = pytest.mark.parametrize(
    "name",
    [*RECORDED, *MADE, *BESIDE],
    ids=lambda name: (
        name if isinstance(name, str) else f"{'beside-' * (name in BESIDE)}{name.name}"
    ),
)


@every_run
def test_keys_have_one_type_and_tables_without_rows_their_columns(name, tables) -> None:
    for table, rows in tables(name).items():
        columns = list(rows.columns)
        assert columns[: len(TABLES[table])] == list(TABLES[table])
        types = {key: str(rows[key].dtype) for key in KEYS if key in rows}
        assert types == {key: KEYS[key] for key in types}, table
        assert rows.attrs["frame"] == table


@every_run
def test_every_pair_is_joined_on_its_keys_and_no_row_is_lost_without_a_reason(name, tables) -> None:
    found = tables(name)
    held: dict[tuple[str, tuple[str, ...]], set[tuple]] = {}

    def keys_of(table: str, columns: tuple[str, ...]) -> set[tuple]:
        """The distinct keys of the rows that have one: inner joins are of what is in both."""
        if (table, columns) not in held:
            rows = found[table][list(columns)].drop_duplicates().dropna()
            held[table, columns] = set(rows.itertuples(index=False, name=None))
        return held[table, columns]

    for a, b in permutations(found, 2):
        shared = tuple(k for k in KEYS if k != "start" and k in found[a] and k in found[b])
        if "rank" in shared:  # the process is finer: that of a worker serves a rank
            shared = tuple(key for key in shared if key not in ("process", "host"))
        is_whole = any(key in shared and table == b for key, table in WHOLE.items())
        if is_whole or EXCERPTS.get(a) == b:
            assert keys_of(a, shared) <= keys_of(b, shared), (a, b)
        elif shared and not {a, b} & {*EXCERPTS}:
            # b lacks what did nothing of its kind; what both have is joined
            both = keys_of(a, shared) & keys_of(b, shared)
            assert both or not (keys_of(a, shared) and keys_of(b, shared)), (a, b)


@pytest.mark.parametrize("name", RECORDED, ids=lambda path: path.name)
def test_every_process_is_named_with_one_rank_and_host(name, tables) -> None:
    found = tables(name)
    known = found["processes"]
    assert known["process"].is_unique
    for table, rows in found.items():
        if "process" in rows:
            keys = rows[["process", "rank", "host"]].drop_duplicates().dropna(subset=["process"])
            merged = keys.merge(known, on=["process", "rank", "host"], how="left", indicator=True)
            assert (merged["_merge"] == "both").all(), table


def test_operations_of_workers_carry_the_rank_that_they_served(tables) -> None:
    found = tables(DATA / "ddp_two_hosts")
    operations, processes = found["operations"], found["processes"]
    workers = processes[processes["role"] == "worker"]["process"]
    of_workers = operations[operations["process"].isin(workers)]
    assert len(of_workers) == 2176
    assert set(of_workers["rank"]) == {1, 3}  # the others' training processes read themselves
    # Summed by rank they are the table of ranks, which was made from families of processes.
    by_rank = operations[operations["op"] == "read"].groupby("rank")["nbytes"].sum()
    assert by_rank.to_dict() == found["ranks"].set_index("rank")["bytes_read"].to_dict()


def test_steps_of_operations_are_those_in_which_they_started(tables) -> None:
    found = tables(DATA / "ddp_two_hosts")
    operations, steps = found["operations"], found["steps"]
    counted = operations.groupby(["rank", "step", "op"]).size().unstack(fill_value=0)
    expected = steps.set_index(["rank", "step"]).loc[counted.index]
    assert (counted["read"] == expected["reads"]).all()
    assert counted["read"].sum() == steps["reads"].sum()
    joined = operations.merge(steps, on=["rank", "step"], suffixes=("", "_of_step"))
    assert len(joined) == operations["step"].notna().sum()
    assert (joined["end_s_of_step"] > joined["start_s"]).all()
    assert (joined["epoch"] == joined["epoch_of_step"]).mean() > 0.97


def test_instants_are_seconds_since_the_job_s_start(tables) -> None:
    found = tables(DATA / "ddp_two_hosts")
    for rows in found.values():
        if "start" in rows and "start_s" in rows:
            since = rows["start"] - pandas.Timestamp(rows.attrs["job_start"])
            np.testing.assert_allclose(since.dt.total_seconds(), rows["start_s"], atol=1e-6)


def test_bins_of_ranks_and_files_in_which_nothing_moved_are_left_out(opened) -> None:
    run = opened(DATA / "ddp_two_hosts")
    for name, line in (("timeline", run.timeline), ("file_timeline", run.results.filetimeline)):
        rows = run.frame(name)
        assert (rows["bytes_read"] + rows["bytes_written"] + rows.get("reads", 0) > 0).all()
        assert rows["bytes_read"].sum() == line.bytes_read.sum()
        assert len(rows) < line.bytes_read.size / 2


def test_findings_and_actions_are_frames(opened) -> None:
    run = opened(DATA / "ddp_two_hosts")
    assert list(run.frame("findings")["code"]) == [f.code for f in run.findings]
    actions = run.frame("actions")
    assert list(actions["title"]) == [d.title for d in run.diagnoses]
    assert set(actions["findings"].explode()) <= set(run.frame("findings")["code"])


def test_blocks_of_operations_are_the_frame(opened) -> None:
    run = opened(DATA / "ddp_two_hosts")
    whole = run.frame("operations")
    blocks = list(operation_frames(run, 100))
    assert max(map(len, blocks)) == 100
    assert pandas.concat(blocks, ignore_index=True).equals(whole)


def test_units_are_those_of_the_schema(opened) -> None:
    attrs = opened(DATA / "ddp_two_hosts").frame("steps").attrs
    assert attrs["run"] == "ddp_two_hosts"
    assert attrs["units"]["bytes_read"] == "bytes"
    assert attrs["units"]["busy_s"] == "s"
    assert "rank" not in attrs["units"]


@pytest.mark.parametrize("name", FRAMES)
def test_arrow_holds_the_frame(name, opened) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="Arrow needs pyarrow")
    run = opened(DATA / "ddp_two_hosts")
    table, rows = run.frame(name, to="arrow"), run.frame(name)
    assert (table.num_rows, table.column_names) == (len(rows), list(rows.columns))
    if "start" in rows:
        assert table.schema.field("start").type == pyarrow.timestamp("ns", "UTC")
    for column in rows.select_dtypes("number"):
        known = table[column].to_pandas().to_numpy(float)
        np.testing.assert_array_equal(known, rows[column].to_numpy(float, na_value=np.nan))


def test_a_name_that_is_none_is_one_line(opened) -> None:
    run: Run = opened(DATA / "ddp_two_hosts")
    with pytest.raises(UsageError, match="no frame 'stepz': expected one of operations"):
        run.frame("stepz")


def test_chosen_steps_are_all_that_is_counted(opened) -> None:
    run = opened(DATA / "ddp_two_hosts")
    chosen, steps = run.select(Selection(steps=range(5, 8))), run.frame("steps")
    mine = steps[steps["step"].isin(range(5, 8))].reset_index(drop=True)
    found = chosen.frame("steps")
    same = ["rank", "step", "epoch", "start", "reads", "writes"]
    pandas.testing.assert_frame_equal(found[same], mine[same])
    assert chosen.summary.ops == (mine["reads"] + mine["writes"]).sum()
    with pytest.raises(UsageError, match="expected numbers of recorded steps"):
        run.select(Selection(steps=[1000]))


def test_chosen_ranks_are_as_if_there_were_no_others(opened) -> None:
    run = opened(DATA / "ddp_two_hosts")
    chosen, ranks = run.select(Selection(ranks=(1, 3))), run.frame("ranks")
    pandas.testing.assert_frame_equal(
        chosen.frame("ranks"), ranks[ranks["rank"].isin([1, 3])].reset_index(drop=True)
    )
    assert chosen.summary.ops == chosen.frame("ranks")["ops"].sum()
    assert set(chosen.frame("breakdown")["rank"]) == {1, 3}
    rest = run.select(Selection(ranks=(0, 2)))
    assert chosen.summary.bytes_read + rest.summary.bytes_read == run.summary.bytes_read
    with pytest.raises(UsageError, match="ranks: expected some of 0, 1, 2, 3, found"):
        run.select(Selection(ranks=(1, 9)))


def test_a_chosen_epoch_keeps_its_number_and_its_window(opened) -> None:
    run = opened(DATA / "ddp_two_hosts")
    chosen = run.select(Selection(epochs=[1]))
    assert set(chosen.frame("steps")["epoch"].dropna()) == {1}
    phases = run.frame("phases")
    (epoch,) = phases[phases["epoch"] == 1].itertuples()
    assert (chosen.frame("operations")["start_s"] >= epoch.start_s).all()
    assert (chosen.frame("operations")["start_s"] < epoch.end_s).all()
    with pytest.raises(UsageError, match="epochs: expected some of 0, 1 that follow"):
        run.select(Selection(epochs=[0, 7]))


def test_a_window_of_time_has_the_seconds_of_the_whole(opened) -> None:
    run = opened(DATA / "ddp_two_hosts")
    window = run.select(Selection(from_s=10.0, to_s=12.0))
    for name in ("operations", "steps", "timeline", "slowest"):
        starts = window.frame(name)["start_s"]
        assert starts.min() >= 9.99
        assert starts.max() < 12
    both = window.frame("steps").merge(run.frame("steps"), on=["rank", "step"])
    assert (both["start_x"] == both["start_y"]).all()


def test_a_table_of_runs_has_a_row_each(opened, tmp_path: Path) -> None:
    run = opened(DATA / "torch_fetches")
    rows = vanidl.table([run, DATA / "torch_fetches", tmp_path / "none"])
    assert rows["ops"].tolist()[:2] == [run.summary.ops] * 2
    assert rows["problem"].isna().tolist() == [True, True, False]
    assert str(rows["start"].dtype) == KEYS["start"]


def test_runs_lists_and_paths_are_compared_alike(opened) -> None:
    a, b = DATA / "torch_fetches", DATA / "torch_late_workers"
    paths = vanidl.compare_runs(a, b).to_dict()
    runs = vanidl.compare_runs(opened(a), b).to_dict()
    assert runs["metrics"] == paths["metrics"]
    repeats = vanidl.compare_runs([opened(a), a], [opened(b), b], labels=("old", "new"))
    assert [(side.name, len(side.samples)) for side in repeats.comparison.sides] == [
        ("old", 2), ("new", 2)
    ]  # fmt: skip
    with pytest.raises(UsageError, match="expected 2 to 26 runs"):
        vanidl.compare_runs(opened(a))
    with pytest.raises(UsageError, match="found an empty list"):
        vanidl.compare_runs(opened(a), [])


def test_results_in_json_fulfil_their_schema(opened) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    run = opened(DATA / "torch_fetches")
    jsonschema.validate(json.loads(run.to_json()), vanidl.output_schema("summary"))
    assert run.to_dict()["headline"] == run.headline
    with pytest.raises(UsageError, match="no schema 'sumary': expected one of summary, "):
        vanidl.output_schema("sumary")
