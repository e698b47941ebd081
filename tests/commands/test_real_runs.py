"""The figures that real runs must give, against values computed independently."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

import vanidl
from vanidl.report.summary import summary_object

RUNS = {}


@pytest.fixture
def run_of(shared: Path):
    def opened(name: str) -> vanidl.Run:
        if name not in RUNS:
            RUNS[name] = vanidl.open_run(shared / "data" / name)
        return RUNS[name]

    return opened


def json_of(run: vanidl.Run) -> dict:
    return json.loads(json.dumps(summary_object(run), allow_nan=False))


@pytest.fixture
def cosmic(run_of) -> dict:
    return json_of(run_of("public/vanidl_cosmictagger/cosmictagger_8ranks.darshan"))


@pytest.fixture
def oracle(shared: Path) -> dict:
    return json.loads((shared / "data/oracle/cosmictagger.json").read_text())


def test_cosmictagger_totals(cosmic):
    io = cosmic["io"]
    assert (io["ops"], io["bytes_read"], io["bytes_written"]) == (313_872, 1_621_775_582, 271_464)
    time = io["time"]
    expected = {
        "per_rank_mean_s": 16.228,
        "per_rank_max_s": 40.884,
        "any_rank_s": 104.774,
        "sum_s": 129.828,
    }
    assert {k: time[k] for k in expected} == pytest.approx(expected, rel=1e-3)
    assert cosmic["storage"]["bytes_written"] == 271_464 + 999_953_084
    assert cosmic["storage"]["by_layer"]["STDIO"]["bytes_written"] == 999_953_084
    assert cosmic["job"]["run_time_s"] == 988
    assert cosmic["job"]["start"] == "2020-06-11T03:25:34Z"


def test_cosmictagger_access_is_darshans_own_count(cosmic):
    read = cosmic["io"]["access"]["read"]
    assert (read["sequential_darshan"], read["consecutive_darshan"]) == (300_075, 276_501)
    assert (read["sequential_counted"], read["consecutive_counted"]) == (300_075, 276_501)
    assert sum(read[k] for k in ("first", "consecutive", "forward", "backward")) == read["ops"]


def test_cosmictagger_ranks_and_hosts(cosmic, oracle):
    assert cosmic["job"]["ranks"] == 8
    assert cosmic["job"]["hosts"] == sorted(oracle["rank_host"].values())
    rows = cosmic["io"]["balance"]["rows"]
    union = oracle["independent"]["all"]["per_rank_union"]
    for row in rows:
        rank = str(row["rank"])
        assert row["host"] == oracle["rank_host"][rank]
        assert row["busy_s"] == pytest.approx(union[rank], rel=1e-6)
        assert row["ops"] == oracle["independent"]["all"]["per_rank_n"][rank]


def test_cosmictagger_sizes_files_and_coverage(cosmic, oracle, run_of):
    run = run_of("public/vanidl_cosmictagger/cosmictagger_8ranks.darshan")
    sizes = cosmic["io"]["sizes"]
    assert (sizes["min"], sizes["max"]) == (0, 6_553_600)
    assert sizes["mean"] == pytest.approx(1_622_047_046 / 313_872)
    train = next(r for r in run.files.rows if r.path.endswith("cosmic_tagging_train.h5"))
    known = oracle["independent"]["train_h5"]
    assert (train.reads, train.bytes_read) == (known["n"], known["bytes"])
    assert train.io_s == pytest.approx(known["sum_dur_all"], rel=1e-6)
    assert cosmic["io"]["bandwidth"]["per_op_median_bytes_per_s"] == pytest.approx(
        254_853_900, rel=0.01
    )
    cover = cosmic["coverage"]["layers"]["POSIX"]
    assert (cover["traced_fraction"], cover["partial"]) == (1.0, False)


SPLIT = ("io_s", "unobserved_s", "in_wait_s", "hidden_s", "other_s", "input_wait_s")


@pytest.mark.parametrize(
    ("name", "processes", "expected"),
    [
        # 60 steps: the 61st mark stood open when the loop had ended. The wait of the second holds
        # 0.102 s of starting workers, and not the 0.100 s in which they were stopped at the end.
        ("torch_pfs_workers0", 1, (11.765, 0.883, 10.868, 0.000, 0.014, 15.858)),
        ("torch_pfs_workers4", 9, (8.583, 1.254, 0.547, 6.644, 0.137, 0.782)),
    ],
)
def test_split_of_the_pfs_pair(run_of, name, processes, expected):
    result = json_of(run_of(f"recorded/{name}"))
    assert (result["job"]["processes"], result["job"]["ranks"]) == (processes, 1)
    (rank,) = result["overlap"]["per_rank"]
    assert [rank[k] for k in SPLIT] == pytest.approx(expected, rel=0.01, abs=5e-4)
    parts = ("unobserved_s", "in_wait_s", "hidden_s", "behind_communication_s", "other_s")
    assert sum(rank[k] for k in parts) == pytest.approx(rank["io_s"], rel=1e-9)
    assert result["io"]["time"]["per_rank_mean_s"] == pytest.approx(rank["io_s"])


def test_hidden_fraction_with_workers(run_of):
    assert run_of("recorded/torch_pfs_workers4").overlap.hidden_fraction == pytest.approx(
        0.911, rel=0.01
    )


def cut_to_steps(source: Path, target: Path, wanted: range) -> None:
    """The trace as a profiler that recorded only these steps would have written it."""
    with gzip.open(source) as file:
        content = json.load(file)
    events = content["traceEvents"]
    steps = [
        e for e in events
        if e.get("name", "").startswith("ProfilerStep#") and int(e["name"].split("#")[1]) in wanted
    ]  # fmt: skip
    low, high = min(e["ts"] for e in steps), max(e["ts"] + e["dur"] for e in steps)
    content["traceEvents"] = [
        e for e in events
        if e.get("ph") != "X" or e["cat"] == "Trace"
        or (e["ts"] >= low and e["ts"] + e["dur"] <= high)
    ]  # fmt: skip
    with gzip.open(target, "wt") as file:
        json.dump(content, file)


def test_a_short_window_observes_little(shared, tmp_path):
    source = shared / "data/recorded/torch_pfs_workers4"
    shutil.copytree(source / "darshan", tmp_path / "darshan")
    (trace,) = (source / "tb").glob("*.pt.trace.json.gz")
    cut_to_steps(trace, tmp_path / trace.name, range(24, 29))
    rank = vanidl.open_run(tmp_path).overlap.per_rank[0]
    assert rank.io_s - rank.unobserved_s == pytest.approx(0.0962, rel=0.01)
    assert rank.hidden_s == pytest.approx(0.0929, rel=0.01)


def test_a_wait_that_is_mostly_not_io_is_said_in_words(run_of):
    run = run_of("recorded/torch_hdf5_workers0")
    rank = run.overlap.per_rank[0]
    assert (rank.input_wait_s, rank.input_wait_io_s) == pytest.approx((3.421, 0.112), rel=0.01)
    assert "of that 3.31 s decoding or other work of the loader, 114 ms storage" in run.headline


def test_ddp_on_two_hosts_is_one_run_of_four_ranks(run_of):
    run = run_of("recorded/ddp_two_hosts")
    result = json_of(run)
    assert (result["job"]["ranks"], result["job"]["processes"]) == (4, 8)
    assert result["job"]["hosts"] == ["node01", "node02"]
    ranks = result["overlap"]["per_rank"]
    assert [r["rank"] for r in ranks] == [0, 1, 2, 3]
    assert [r["input_wait_s"] for r in ranks] == pytest.approx(
        [5.730, 0.528, 5.791, 0.502], rel=0.01
    )
    communication = [ranks[1]["communication_s"], ranks[3]["communication_s"]]
    assert communication == pytest.approx([4.87, 4.86], rel=0.01)
    assert result["overlap"]["lost_to_input_s"] >= max(r["input_wait_s"] for r in ranks)
    assert "lost to input" in run.headline


def test_thread_ids_of_dxt_version_2(run_of):
    run = run_of("recorded/torch_hdf5_dxt_v2")
    assert run.summary.ops == 2_981
    assert all((part.thread >= 0).all() for part in run.trace.io)


def test_files_that_were_not_recorded_are_not_claimed_unread(run_of):
    run = run_of("recorded/tf_tfrecord_default_limits")
    codes = {w.code for w in run.coverage.warnings}
    assert {"records_exhausted", "partial", "truncated"} <= codes
    assert not run.coverage.complete
    assert not [r for r in run.files.rows if "tfrecord" in r.path.rsplit("/", 1)[-1]]


@pytest.mark.parametrize(("workers", "compute_s"), [(4, 0.587), (0, None)])
def test_gpu_profile_without_darshan_log(run_of, workers, compute_s):
    result = json_of(run_of(f"public/kineto_resnet50_v100/num_workers_{workers}.pt.trace.json.gz"))
    overlap = result["overlap"]
    (rank,) = overlap["per_rank"]
    assert overlap["basis"] == "device"
    assert rank["io_s"] is None
    assert overlap["hidden_fraction"] is None
    assert rank["compute_s"] < rank["window_s"] - rank["input_wait_s"]
    if compute_s:
        assert rank["compute_s"] == pytest.approx(compute_s, rel=0.01)
    else:  # part of the wait passes while the device still works
        assert rank["input_wait_s"] == pytest.approx(0.416, rel=0.01)
        assert rank["input_wait_s"] - rank["starving_wait_s"] == pytest.approx(0.060, rel=0.02)
