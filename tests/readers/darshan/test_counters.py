"""Counters decoded here equal those of Darshan's own library, bit for bit."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vanidl
from tests.makers.darshan_logs import MAGIC, Log, job_record
from tests.makers.large_logs import Workload, write_logs
from tests.makers.needed import needed
from tests.makers.pydarshan import counters_by_pydarshan
from tests.makers.sameness import same
from vanidl.errors import InputError
from vanidl.readers.darshan import counters as darshan_counters
from vanidl.readers.darshan import log as darshan_log
from vanidl.readers.darshan.counter_names import NAMES
from vanidl.readers.darshan.counters import HEATMAP_LAYERS, LAYERS, decode_mpi
from vanidl.readers.darshan.log import read_log
from vanidl.readers.records import Columns, CounterFile, TracerLog

# PyDarshan reads the module of only one log a process right, so each log has its own.
PEER = """
import json, sys
from darshan.backend import cffi_backend as peer
log = peer.log_open(sys.argv[1])
sync = peer.log_get_apmpi_record(log, "APMPI", "HEADER")["sync_flag"]
rows = []
while (r := peer.log_get_apmpi_record(log, "APMPI", "PERF")) is not None:
    c = r["all_counters"]
    rows.append([r["rank"], r["node_name"], c["MPI_TOTAL_COMM_TIME"],
                 c["MPI_TOTAL_COMM_SYNC_TIME"] if sync else None])
print(json.dumps(rows))
"""


def region(order: str, ranks: int, *, sync: int) -> bytes:
    head = struct.pack(f"{order}QqqI4xdd", 1, 0, int.from_bytes(b"APMPI", "big"), sync, 0.0, 0.0)
    form = struct.Struct(f"{order}Qq396Q238d2d128s")
    rows = [
        form.pack(2, r, *range(396), *[0.5] * 238, 10.0 + r, 0.25, b"node%02d" % r)
        for r in range(ranks)
    ]
    return head + b"".join(rows)


@pytest.mark.parametrize("order", ["<", ">"])
def test_every_rank(order):
    records, left = decode_mpi(region(order, 3, sync=1), order)
    assert left == 0
    assert [(r.rank, r.host, r.total_s, r.sync_s) for r in records] == [
        (r, f"node{r:02d}", 10.0 + r, 0.25) for r in range(3)
    ]


def test_waits_that_were_not_measured_are_unknown():
    records, _ = decode_mpi(region("<", 1, sync=0), "<")
    assert records[0].sync_s is None


@pytest.mark.parametrize("cut", [1, 5232, 5233])
def test_what_is_no_whole_record_is_counted(cut):
    data = region("<", 3, sync=1)
    records, left = decode_mpi(data[:-cut], "<")
    assert len(records) * 5232 + left == len(data) - 48 - cut
    assert left < 5232
    assert decode_mpi(b"", "<") == ((), 0)


@pytest.mark.usefixtures("darshan_library")
def test_shared_logs_equal_pydarshan(shared: Path):
    logs = sorted((shared / "data/public/darshan_logs").rglob("*.darshan"))
    with_mpi = [path for path in logs if "APMPI" in read_log(path).modules]
    assert len(with_mpi) > 5
    for path in [with_mpi[0], with_mpi[-1]]:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", PEER, str(path)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        mine = [[r.rank, r.host, r.total_s, r.sync_s] for r in read_log(path).mpi]
        assert mine == json.loads(done.stdout)


needed("darshan", reason="PyDarshan is not installed")

NUMBER = {"POSIX": 1, "MPI-IO": 2, "H5F": 3, "H5D": 4, "PNETCDF_FILE": 5, "PNETCDF_VAR": 6,
          "LUSTRE": 8, "STDIO": 9, "HEATMAP": 15, "DFS": 16, "DAOS": 17}  # fmt: skip
"""Module numbers of version 3.41 of the format."""

_LAST_TIMES = NAMES["POSIX"].times
LOST = {("POSIX", 3): {*_LAST_TIMES[-2:]}, ("POSIX", 2): {*_LAST_TIMES[-4:]}}
"""Time counters of older records that the library loses, as it moves too few bytes: 0."""


def log_with(regions: dict[str, tuple[int, bytes]], order: str = "<") -> bytes:
    """A log of version 3.41 with these inflated regions: module -> (version, bytes)."""
    form = struct.Struct(f"{order}8sqB7xQ{130}Q64I")
    table, versions = [0] * 130, [0] * 64
    body = zlib.compress(job_record(Log(byte_order=order)))
    for module, (version, raw) in sorted(regions.items(), key=lambda item: NUMBER[item[0]]):
        packed, number = zlib.compress(raw), NUMBER[module]
        table[2 * number + 2 : 2 * number + 4] = form.size + len(body), len(packed)
        versions[number] = version
        body += packed
    return form.pack(b"3.41", MAGIC, 0, 0, *table, *versions) + body


def both(path: Path) -> tuple[CounterFile | None, CounterFile]:
    """The counters of a log as decoded here, and by the library."""
    return darshan_log.read_log(path).counters, counters_by_pydarshan([str(path)])[str(path)]


def assert_same(mine: CounterFile, theirs: CounterFile, lost: set[str] = frozenset()) -> None:
    assert (mine.losses, mine.stripes) == (theirs.losses, theirs.stripes)
    assert [t.layer for t in mine.layers] == [t.layer for t in theirs.layers]
    for a, b in zip(mine.layers, theirs.layers, strict=True):
        assert (a.file.tobytes(), a.rank.tobytes()) == (b.file.tobytes(), b.rank.tobytes())
        for left, right in ((a.counters, b.counters), (a.seconds, b.seconds)):
            assert isinstance(left, Columns)
            assert isinstance(right, Columns)
            assert left.names == right.names
            assert (left.rows.dtype, left.rows.shape) == (right.rows.dtype, right.rows.shape)
            assert not left.rows.flags.writeable
            wrong = [n for n in left if left[n].tobytes() != right[n].tobytes()]
            assert set(wrong) <= lost
    for one, other in zip(mine.heatmaps, theirs.heatmaps, strict=True):
        assert (one.layer, one.rank, one.bin_ns) == (other.layer, other.rank, other.bin_ns)
        assert one.bytes_read.tobytes() == other.bytes_read.tobytes()
        assert one.bytes_written.tobytes() == other.bytes_written.tobytes()


def lost_by_library(path: str) -> set[str]:
    with Path(path).open("rb") as file:
        header = darshan_log.read_header(memoryview(file.read()), path)
    posix = header.regions.get("POSIX")
    return LOST.get(("POSIX", posix.version), set()) if posix is not None else set()


def assert_all_same(paths: Sequence[Path]) -> int:
    """How many of the logs were decoded here; those equal the library's."""
    mine = {}
    for path in paths:
        try:
            log = darshan_log.read_log(path)
        except InputError:
            continue
        if log.whole and log.counters is not None:
            mine[str(path)] = log.counters
    for path, theirs in counters_by_pydarshan(list(mine)).items():
        assert_same(mine[path], theirs, lost_by_library(path))
    return len(mine)


@pytest.mark.usefixtures("darshan_library")
def test_names_are_the_librarys() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from darshan.backend import cffi_backend as peer
    for module, names in NAMES.items():
        assert list(names.counters) == peer.counter_names(module)
        assert list(names.times) == peer.fcounter_names(module)
    assert NAMES.keys() == LAYERS.keys()


@pytest.mark.usefixtures("darshan_library")
def test_recorded_and_public_logs(finished_logs: tuple[Path, ...]) -> None:
    assert assert_all_same(finished_logs) > len(finished_logs) * 3 // 4


@pytest.mark.usefixtures("darshan_library")
def test_example_logs_of_the_wheel(wheel_logs: tuple[Path, ...]) -> None:
    assert assert_all_same(wheel_logs) == len(wheel_logs)


@pytest.mark.usefixtures("darshan_library")
def test_generated_logs(tmp_path: Path) -> None:
    for i, log in enumerate([Log(), Log("3.21", ">"), Log("3.10", compression="none")]):
        (tmp_path / f"{i}").mkdir()
        paths = write_logs(tmp_path / f"{i}", 3, Workload(50, files=4), log)
        assert assert_all_same(paths) == 3


FOPENS = 6
"""Place of a counter of STDIO among those of POSIX's first version; no record here counts any."""


def random_region(module: str, version: int, order: str, records: int = 3) -> bytes:
    """Records of any numbers that are possible."""
    rng = np.random.default_rng(len(module) + version)
    form, names = darshan_counters.FORMS[module, version], NAMES[module]
    times = len(names.plain_times) - len(form.absent_times)
    head = rng.integers(0, 2**62, (records, form.head))
    values = rng.integers(-1, 2**40, (records, form.width(names) - form.head - form.behind - times))
    if (module, version) == ("POSIX", 1):
        values[:, FOPENS] = 0
    seconds = rng.random((records, times)).astype(f"{order}f8")
    behind = rng.integers(0, 2**62, (records, form.behind))
    rows = zip(head.astype(f"{order}i8"), values.astype(f"{order}i8"), seconds, behind, strict=True)
    return b"".join(column.tobytes() for row in rows for column in row)


Case = tuple[str, int, str]
CASES: list[Case] = [(*form, order) for form in sorted(darshan_counters.FORMS) for order in "<>"]


@pytest.fixture(scope="module")
def of_every_version(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[Case, tuple[CounterFile | None, CounterFile]]:
    """A log for each case, as decoded here and by the library, whose child reads all at once."""
    folder = tmp_path_factory.mktemp("versions")
    paths = {case: folder / f"{i}.darshan" for i, case in enumerate(CASES)}
    for (module, version, order), path in paths.items():
        raw = random_region(module, version, order)
        path.write_bytes(log_with({module: (version, raw)}, order))
    theirs = counters_by_pydarshan([str(path) for path in paths.values()])
    return {
        case: (darshan_log.read_log(path).counters, theirs[str(path)])
        for case, path in paths.items()
    }


@pytest.mark.usefixtures("darshan_library")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_version_of_every_module(
    case: Case, of_every_version: dict[Case, tuple[CounterFile | None, CounterFile]]
) -> None:
    module, version, order = case
    newest = max(v for m, v in darshan_counters.FORMS if m == module)
    mine, theirs = of_every_version[case]
    assert mine is not None
    if order == ">" and version < newest:  # the library swaps these wrongly
        same_numbers, _ = of_every_version[module, version, "<"]
        assert same_numbers is not None
        assert_same(mine, same_numbers)
    else:
        assert len(theirs.layers[0].file) == 3
        assert_same(mine, theirs, LOST.get((module, version), set()))


@pytest.mark.parametrize("odd", ["whole", "impossible", "cut"])
def test_counters_of_many_logs_at_once_are_those_of_each(odd: str, tmp_path: Path) -> None:
    """Of every version and both orders of bytes; with one log of records that cannot be, or cut."""
    paths = []
    for i, (module, version, order) in enumerate(CASES):
        for records in (1, 3, 2):
            raw = random_region(module, version, order, records)
            paths.append(tmp_path / f"{i}-{records}.darshan")
            paths[-1].write_bytes(log_with({module: (version, raw)}, order))
    raw = random_region("STDIO", 2, "<")
    wrong = {"whole": raw, "impossible": raw[:16] + b"\x7f" * (len(raw) - 16), "cut": raw[:-8]}
    paths.append(tmp_path / "odd.darshan")
    paths[-1].write_bytes(log_with({"STDIO": (2, wrong[odd])}, "<"))
    for path, found in zip(paths, darshan_log.read_logs(paths), strict=True):
        assert isinstance(found, TracerLog)
        assert same(found.counters, darshan_log.read_log(path).counters), path
    assert isinstance(found, TracerLog)
    assert found.counters is not None
    assert bool(found.counters.losses) == (odd != "whole")


@pytest.mark.usefixtures("darshan_library")
def test_objects_that_are_files_of_dfs_are_a_layer_apart(tmp_path: Path) -> None:
    """Both modules count their bytes: the storage total holds them once."""
    files, objects = (random_region(module, 1, "<") for module in ("DFS", "DAOS"))
    ids = np.frombuffer(files, "<u8")[:: len(files) // 24]
    table = np.frombuffer(objects, "<i8").reshape(3, -1).copy()
    table[1, 0] = ids[2]
    path = tmp_path / "log.darshan"
    path.write_bytes(log_with({"DFS": (1, files), "DAOS": (1, table.tobytes())}))
    mine, theirs = both(path)
    assert mine is not None
    assert_same(mine, theirs)
    sizes = {records.layer: records.file.tolist() for records in mine.layers}
    assert sizes["DAOS of DFS"] == [int(ids[2])]
    assert len(sizes["DAOS"]) == 2
    run = vanidl.open_run(path)
    read = {r.layer: int(next(v for k, v in r.counters.items() if k.endswith("_BYTES_READ")).sum())
            for r in mine.layers}  # fmt: skip
    assert run.summary.storage_bytes_read == read["DFS"] + read["DAOS"]
    assert "modules_not_read" not in {w.code for w in run.coverage.warnings}
    assert "DFS read" in run.headline


@pytest.mark.usefixtures("darshan_library")
def test_records_of_posix_that_count_stdio_are_left_out_and_said(tmp_path: Path) -> None:
    raw = np.frombuffer(random_region("POSIX", 1, "<", 5), "<i8").reshape(5, -1).copy()
    raw[[1, 3], 2 + FOPENS] = 1
    path = tmp_path / "log.darshan"
    path.write_bytes(log_with({"POSIX": (1, raw.tobytes())}))
    mine, theirs = both(path)
    assert mine is not None
    assert (
        mine.layers[0].file.tolist() == theirs.layers[0].file.tolist() == raw[[0, 2, 4], 0].tolist()
    )
    assert mine.losses[0].startswith("POSIX: 2 of 5 records count calls of STDIO, too")


@pytest.mark.parametrize("behind", [b"\0" * 8, b"\0" * 687])
def test_of_a_region_that_is_not_filled_by_records_whole_ones_are_read(
    behind: bytes, tmp_path: Path
) -> None:
    raw = random_region("POSIX", 4, "<")
    whole, longer, shorter = (tmp_path / f"{name}.darshan" for name in ("whole", "longer", "less"))
    whole.write_bytes(log_with({"POSIX": (4, raw)}))
    longer.write_bytes(log_with({"POSIX": (4, raw + behind)}))
    shorter.write_bytes(log_with({"POSIX": (4, raw[: -len(behind)])}))
    all_of, some, fewer = (darshan_log.read_log(p).counters for p in (whole, longer, shorter))
    assert all_of is not None
    assert some is not None
    assert fewer is not None
    said = (
        f"POSIX: only 3 whole records could be read; {len(behind)} bytes behind them are no record"
    )
    assert some.losses == (said,)
    assert same(some.layers, all_of.layers)
    assert fewer.losses[0].startswith("POSIX: only 2 whole records could be read; ")
    assert fewer.layers[0].file.tolist() == all_of.layers[0].file.tolist()[:2]


def test_unknown_versions_are_named_and_nothing_of_them_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.darshan"
    stdio = random_region("STDIO", 2, "<")
    path.write_bytes(log_with({"POSIX": (9, b"\0" * 704), "STDIO": (2, stdio)}))
    found = darshan_log.read_log(path).counters
    assert found is not None
    assert (found.unread, found.losses) == ({"POSIX": 9}, ())
    assert [records.layer for records in found.layers] == ["STDIO"]


def words(order: str, *numbers: int) -> bytes:
    return struct.pack(f"{order}{len(numbers)}q", *numbers)


WHOLE = (0, -1)


def layout(
    order: str,
    file: int,
    parts: list[tuple[int, list[int]]],
    extents: list[tuple[int, int]] | None = None,
) -> bytes:
    """A Lustre record of version 2: (stripe size, targets) by component, and their extents."""
    ends = extents or [WHOLE] * len(parts)
    targets = [t for _, some in parts for t in some]
    head = words(order, file, 0, len(parts), len(targets))
    each = (
        words(order, size, len(some), 1, 0, *ends[i], 0) + b"pool".ljust(16)
        for i, (size, some) in enumerate(parts)
    )
    return head + b"".join(each) + words(order, *targets)


@pytest.mark.usefixtures("darshan_library")
@pytest.mark.parametrize("order", ["<", ">"])
def test_layouts_on_lustre(order: str, tmp_path: Path) -> None:
    parts = [(1 << 20, [3, 4]), (1 << 22, [5])]
    two = layout(order, 7, parts, [(0, 1 << 24), (1 << 24, -1)]) + layout(order, 8, [(64, [])])
    one = words(order, 7, 0, 10, 1, -1, 1 << 20, 2, 5, 6) + words(order, 9, 0, 10, 1, 0, 64, 0)
    for version, raw in ((2, two), (1, one)):
        path = tmp_path / f"{version}.darshan"
        path.write_bytes(log_with({"LUSTRE": (version, raw)}, order))
        mine, theirs = both(path)
        extents = [(s.extent_start, s.extent_end) for s in theirs.stripes if s.file == 7]
        assert extents == ([(0, 1 << 24), (1 << 24, None)] if version == 2 else [(0, None)])
        assert mine == theirs


def stripes_of(raw: bytes, path: Path) -> tuple[list[tuple[int, tuple[int, ...]]], tuple[str, ...]]:
    path.write_bytes(log_with({"LUSTRE": (2, raw)}))
    found = darshan_log.read_log(path).counters
    assert found is not None
    return [(s.file, s.osts) for s in found.stripes], found.losses


@pytest.mark.usefixtures("darshan_library")
def test_components_that_were_never_used_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log.darshan"
    raw = layout("<", 7, [(1 << 20, [3, 4]), (-1, [])]) + layout("<", 8, [(64, [9])])
    assert stripes_of(raw, path) == ([(7, (3, 4)), (8, (9,))], ())
    assert darshan_log.read_log(path).counters == counters_by_pydarshan([path])[str(path)]


@pytest.mark.parametrize(
    "odd",
    [
        layout("<", 7, [(1 << 20, [3, 4])])[:-8],
        words("<", 7, 0, 1 << 60, 1 << 61),
        words("<", 7, 0, -1, 0),
        words("<", 7, 0, 1, -1),
        words("<", 7, 0, 1),
    ],
)
def test_of_odd_layouts_those_before_are_read(odd: bytes, tmp_path: Path) -> None:
    before = layout("<", 8, [(64, [9])])
    found, losses = stripes_of(before + odd, tmp_path / "log.darshan")
    assert found == [(8, (9,))]
    behind = f"{len(odd)} bytes behind them are no record"
    assert losses == (f"LUSTRE: only 1 whole record could be read; {behind}",)


def test_targets_are_never_more_than_there_are(tmp_path: Path) -> None:
    raw = np.frombuffer(layout("<", 7, [(64, [3, 4]), (64, [5])]), "<i8").copy()
    raw[4 + 1] = 9  # of the first component, which announces them all
    assert stripes_of(raw.tobytes(), tmp_path / "log.darshan")[0] == [(7, (3, 4, 5)), (7, ())]


def heat(order: str, key: int, width_s: float, written: list[int], read: list[int]) -> bytes:
    head = struct.pack(f"{order}Qqdq16x", key, 3, width_s, len(written))
    return head + words(order, *written, *read)


@pytest.mark.usefixtures("darshan_library")
@pytest.mark.parametrize("order", ["<", ">"])
def test_heat_maps(order: str, tmp_path: Path) -> None:
    keys = [*HEATMAP_LAYERS, 5]
    raw = b"".join(heat(order, key, 0.1 * (i + 1), [i, 7], [8, i]) for i, key in enumerate(keys))
    path = tmp_path / "log.darshan"
    path.write_bytes(log_with({"HEATMAP": (1, raw)}, order))
    mine, theirs = both(path)
    assert mine is not None
    assert len(mine.heatmaps) == len(HEATMAP_LAYERS)
    assert_same(mine, theirs)


def test_a_log_of_heat_maps_alone_says_what_they_hold(tmp_path: Path) -> None:
    raw = heat("<", next(iter(HEATMAP_LAYERS)), 0.1, [1 << 20, 2 << 20], [0, 5])
    path = tmp_path / "log.darshan"
    path.write_bytes(log_with({"HEATMAP": (1, raw)}))
    headline = vanidl.open_run(path).headline
    assert "heat maps" in headline
    assert "read 5 B and wrote 3 MiB through POSIX" in headline
    path.write_bytes(log_with({}))
    assert "no I/O at all" in vanidl.open_run(path).headline


@pytest.mark.parametrize("counts", [(2, 3), (3, 2), (2, 5)])
def test_heat_maps_of_different_lengths_are_as_they_are(
    counts: tuple[int, int], tmp_path: Path
) -> None:
    """The library makes them equally long, and loses where their bins of reads begin."""
    raw = b"".join(heat("<", next(iter(HEATMAP_LAYERS)), 0.1, [1] * n, [2] * n) for n in counts)
    path = tmp_path / "log.darshan"
    path.write_bytes(log_with({"HEATMAP": (1, raw)}))
    mine = darshan_log.read_log(path).counters
    assert mine is not None
    assert [one.bytes_written.tolist() for one in mine.heatmaps] == [[1] * n for n in counts]
    assert [one.bytes_read.tolist() for one in mine.heatmaps] == [[2] * n for n in counts]
    path.write_bytes(log_with({"HEATMAP": (1, raw[:-8])}))
    cut = darshan_log.read_log(path).counters
    assert cut is not None
    assert [len(one.bytes_read) for one in cut.heatmaps] == list(counts[:1])
    assert cut.losses[0].startswith("HEATMAP: only 1 whole record could be read")


def test_widths_that_are_no_number(tmp_path: Path) -> None:
    key = next(iter(HEATMAP_LAYERS))
    widths: list[Any] = [float("nan"), float("inf"), -1.0, 0.0, 1e300]
    raw = b"".join(heat("<", key, width, [1], [2]) for width in widths)
    path = tmp_path / "log.darshan"
    path.write_bytes(log_with({"HEATMAP": (1, raw)}))
    mine, theirs = both(path)
    assert mine is not None
    assert mine.heatmaps == theirs.heatmaps == ()


@pytest.mark.usefixtures("darshan_library")
def test_impossible_records_are_left_out_and_counted(tmp_path: Path) -> None:
    good, bad = random_region("STDIO", 2, "<", 2), words("<", *[2**62] * 31)
    path = tmp_path / "log.darshan"
    path.write_bytes(log_with({"STDIO": (2, good + bad)}))
    mine, theirs = both(path)
    assert mine is not None
    assert mine.losses == ("STDIO: 1 of 3 records hold impossible numbers and are left out",)
    assert_same(mine, theirs)


def test_a_damaged_stream_gives_no_record(tmp_path: Path) -> None:
    path = tmp_path / "log.darshan"
    for number in range(1, 10):
        content = bytearray(log_with({"POSIX": (4, random_region("POSIX", 4, "<"))}))
        content[-number * 50] ^= 64
        path.write_bytes(content)
        log = darshan_log.read_log(path)
        assert log.counters is not None
        assert log.counters.layers == ()
        assert log.counters.losses == ("POSIX: only 0 whole records could be read",)
        assert log.losses[0].startswith("POSIX is damaged: ")


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("version", ["3.00", "3.10", "3.20", "3.21", "3.41"])
@pytest.mark.parametrize("compression", ["bz2", "none"])
def test_counters_are_those_of_the_same_log_in_zlib(
    tmp_path: Path, version: str, order: str, compression: str
) -> None:
    found = []
    for one in ("zlib", compression):
        (tmp_path / one).mkdir()
        (path,) = write_logs(tmp_path / one, 1, Workload(50, files=4), Log(version, order, one))
        found.append(darshan_log.read_log(path).counters)
    assert found[0] is not None
    assert found[0].layers
    assert same(*found)
