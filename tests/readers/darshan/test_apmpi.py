from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from vanidl.readers.darshan.apmpi import decode
from vanidl.readers.darshan.log import read_log

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
    records, left = decode(region(order, 3, sync=1), order)
    assert left == 0
    assert [(r.rank, r.host, r.total_s, r.sync_s) for r in records] == [
        (r, f"node{r:02d}", 10.0 + r, 0.25) for r in range(3)
    ]


def test_waits_that_were_not_measured_are_unknown():
    records, _ = decode(region("<", 1, sync=0), "<")
    assert records[0].sync_s is None


@pytest.mark.parametrize("cut", [1, 5232, 5233])
def test_what_is_no_whole_record_is_counted(cut):
    data = region("<", 3, sync=1)
    records, left = decode(data[:-cut], "<")
    assert len(records) * 5232 + left == len(data) - 48 - cut
    assert left < 5232
    assert decode(b"", "<") == ((), 0)


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
