"""Use of layers: what PyDarshan's job summary says of the same logs, by loops over records."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import vanidl
from tests.makers.needed import needed
from vanidl.analyses.layers import LayerUse

MODULES = {
    "POSIX": "POSIX",
    "MPI-IO": "MPIIO",
    "STDIO": "STDIO",
    "H5F": "H5F",
    "H5D": "H5D",
    "PNETCDF_FILE": "PNETCDF_FILE",
    "PNETCDF_VAR": "PNETCDF_VAR",
    "DFS": "DFS",
}
LAYERS = {"PNETCDF_FILE": "PNETCDF"}
CALLS = {
    "POSIX": {"opens": ["OPENS"], "reads": ["READS"], "writes": ["WRITES"], "seeks": ["SEEKS"],
              "stats": ["STATS"], "memory maps": ["MMAPS"], "syncs": ["FSYNCS", "FDSYNCS"]},
    "MPI-IO": {"independent opens": ["INDEP_OPENS"], "independent reads": ["INDEP_READS"],
               "independent writes": ["INDEP_WRITES"], "collective opens": ["COLL_OPENS"],
               "collective reads": ["COLL_READS"], "collective writes": ["COLL_WRITES"],
               "split reads": ["SPLIT_READS"], "split writes": ["SPLIT_WRITES"],
               "non-blocking reads": ["NB_READS"], "non-blocking writes": ["NB_WRITES"],
               "syncs": ["SYNCS"], "views": ["VIEWS"], "hints": ["HINTS"]},
    "STDIO": {"opens": ["OPENS"], "reads": ["READS"], "writes": ["WRITES"], "seeks": ["SEEKS"],
              "flushes": ["FLUSHES"]},
    "H5F": {"opens": ["OPENS"], "flushes": ["FLUSHES"]},
    "H5D": {"opens": ["OPENS"], "reads": ["READS"], "writes": ["WRITES"], "flushes": ["FLUSHES"]},
    "PNETCDF_FILE": {"creates": ["CREATES"], "opens": ["OPENS"], "syncs": ["SYNCS"],
                     "independent waits": ["INDEP_WAITS"], "collective waits": ["COLL_WAITS"]},
    "PNETCDF_VAR": {"opens": ["OPENS"], "independent reads": ["INDEP_READS"],
                    "independent writes": ["INDEP_WRITES"], "collective reads": ["COLL_READS"],
                    "collective writes": ["COLL_WRITES"], "non-blocking reads": ["NB_READS"],
                    "non-blocking writes": ["NB_WRITES"]},
}  # fmt: skip
CLASSES = ("0_100", "100_1K", "1K_10K", "10K_100K", "100K_1M", "1M_4M", "4M_10M", "10M_100M",
           "100M_1G", "1G_PLUS")  # fmt: skip
LOGS = ("sample.darshan", "sample-badost.darshan", "ior_hdf5_example.darshan", "noposix.darshan",
        "shane_macsio_id29959_5-22-32552-7035573431850780836_1590156158.darshan")  # fmt: skip


needed("darshan", reason="its records are the oracle")


@pytest.fixture(params=LOGS, ids=lambda name: name[:20])
def path(request: pytest.FixtureRequest) -> Path:
    """A log that comes with PyDarshan."""
    folder = Path(str(importlib.import_module("darshan").__file__)).parent
    found = next(folder.rglob(request.param), None)
    if found is None:
        pytest.skip("this PyDarshan comes without the log")
    return found


def rows_of(report: Any, module: str) -> list[dict[str, float]]:
    """The records of a module, each as one dict of all its counters."""
    frames = report.records[module].to_df(attach=["id", "rank"])
    both = frames["counters"].merge(
        frames["fcounters"].drop(columns=["id", "rank"]), left_index=True, right_index=True
    )
    return both.to_dict("records")


def total(rows: list[dict[str, float]], name: str) -> float | None:
    known = [row[name] for row in rows if name in row and row[name] >= 0]
    return sum(known) if known else None


def check_cost(use: LayerUse, rows: list[dict[str, float]], prefix: str, ranks: int) -> None:
    for said, name in ((use.read_s, "READ"), (use.write_s, "WRITE"), (use.meta_s, "META")):
        spent = total(rows, f"{prefix}_F_{name}_TIME")
        assert said == (None if spent is None else pytest.approx(spent / ranks))


def check_files(use: LayerUse, rows: list[dict[str, float]], prefix: str) -> None:
    moved: dict[int, list[float]] = {}
    for row in rows:
        sums = moved.setdefault(int(row["id"]), [0, 0, 0])
        for k, name in enumerate(("READ", "WRITTEN")):
            nbytes = max(row.get(f"{prefix}_BYTES_{name}", 0), 0)
            sums[k] += nbytes
            if nbytes and f"{prefix}_MAX_BYTE_{name}" in row:
                sums[2] = max(sums[2], row[f"{prefix}_MAX_BYTE_{name}"] + 1)
    kinds = {
        "all": list(moved.values()),
        "read only": [s for s in moved.values() if s[0] and not s[1]],
        "written only": [s for s in moved.values() if s[1] and not s[0]],
        "read and written": [s for s in moved.values() if s[0] and s[1]],
    }
    for by in use.files:
        assert by.files == len(kinds[by.use])
        if by.max_nbytes is not None:
            assert by.max_nbytes == max(s[2] for s in kinds[by.use])
            assert by.mean_nbytes == pytest.approx(sum(s[2] for s in kinds[by.use]) / by.files)


def check_common(use: LayerUse, rows: list[dict[str, float]], prefix: str) -> None:
    counts: Counter[int] = Counter()
    for row in rows:
        for i in range(1, 5):
            if row.get(f"{prefix}_ACCESS{i}_COUNT", 0) > 0:
                counts[int(row[f"{prefix}_ACCESS{i}_ACCESS"])] += int(
                    row[f"{prefix}_ACCESS{i}_COUNT"]
                )
    expected = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:4]
    assert [(size.nbytes, size.ops) for size in use.common] == expected


def check_sizes(use: LayerUse, rows: list[dict[str, float]], prefix: str) -> None:
    """Of layers whose records have classes; `AGG` stands in the names of all but POSIX and DFS."""
    for way in ("READ", "WRITE"):
        names = [f"{prefix}_SIZE_{way}_{part}{name}" for name in CLASSES for part in ("", "AGG_")]
        expected = [total(rows, name) for name in names if name in rows[0]]
        assert [size.reads if way == "READ" else size.writes for size in use.sizes] == expected


@pytest.mark.usefixtures("darshan_library")
def test_layers_are_those_of_pydarshan(path: Path) -> None:
    report = importlib.import_module("darshan").DarshanReport(str(path))
    uses = {use.layer: use for use in vanidl.open_run(path).results.layers}
    ranks = report.metadata["job"]["nprocs"]
    seen = 0
    for module, prefix in MODULES.items():
        if module not in report.records or not len(report.records[module]):
            continue
        seen += 1
        use, rows = uses[LAYERS.get(module, module)], rows_of(report, module)
        check_cost(use, rows, prefix, ranks)
        check_files(use, rows, prefix)
        check_common(use, rows, prefix)
        check_sizes(use, rows, prefix)
        for name, suffixes in CALLS.get(module, {}).items():
            totals = [total(rows, f"{prefix}_{suffix}") for suffix in suffixes]
            known = [n for n in totals if n is not None]  # -1 in a record: not monitored
            assert use.calls.get(name) == (sum(known) if known else None), (module, name)
    assert seen


@pytest.mark.usefixtures("darshan_library")
def test_rates_are_those_of_darshans_accumulators(path: Path) -> None:
    accumulate_records = importlib.import_module("darshan.backend.cffi_backend").accumulate_records
    report = importlib.import_module("darshan").DarshanReport(str(path))
    uses = {use.layer: use for use in vanidl.open_run(path).results.layers}
    for module in {"POSIX", "MPI-IO", "STDIO"} & set(report.records):
        records = report.records[module].to_df()
        metrics = accumulate_records(records, module, report.metadata["job"]["nprocs"])
        expected = metrics.derived_metrics.agg_perf_by_slowest * 2**20
        # Where some ranks alone have a file, the library leaves out the time of rank 0.
        if expected or not total(rows_of(report, module), f"{MODULES[module]}_F_WRITE_TIME"):
            assert uses[module].bytes_per_s == pytest.approx(expected)
        categories = metrics.derived_metrics.category_counters
        counted = [int(categories[k].count) for k in range(4)]
        assert [by.files for by in uses[module].files] == counted


@pytest.mark.usefixtures("darshan_library")
def test_targets_are_those_of_pydarshans_segments() -> None:
    darshan = importlib.import_module("darshan")
    path = next(Path(darshan.__file__).parent.rglob("ior_hdf5_example.darshan"))
    report = darshan.DarshanReport(str(path), read_all=False)
    report.mod_read_all_lustre_records()
    report.mod_read_all_dxt_records("DXT_POSIX")
    layouts = {}
    for record in report.records["LUSTRE"]:
        (part,) = record["components"]
        layouts[record["id"]] = int(part["counters"][0]), part["ost_ids"].tolist()
    moved: Counter[tuple[int, str]] = Counter()
    for record in report.records["DXT_POSIX"]:
        stripe, osts = layouts[record["id"]]
        for op in ("read", "write"):
            for segment in record[f"{op}_segments"]:
                at, end = segment["offset"], segment["offset"] + segment["length"]
                while at < end:
                    behind = min(end, (at // stripe + 1) * stripe)
                    moved[osts[at // stripe % len(osts)], op] += behind - at
                    at = behind
    found = vanidl.open_run(path).results.osts
    assert found is not None
    said = {(row.ost, "read"): row.bytes_read for row in found.rows}
    said |= {(row.ost, "write"): row.bytes_written for row in found.rows}
    assert {key: nbytes for key, nbytes in said.items() if nbytes} == dict(moved)
