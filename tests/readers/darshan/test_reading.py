"""Modules of a log that are not read: said, and nothing is claimed over all I/O."""

from __future__ import annotations

import re

import pytest

import vanidl
from tests.makers.darshan_logs import (
    STDIO_COUNTERS,
    STDIO_TIMES,
    Log,
    log_bytes,
    random_records,
)
from tests.readers.darshan.test_counters import NUMBER, log_with, random_region
from vanidl.cli import main
from vanidl.model.warnings import serious_codes
from vanidl.readers.darshan.counters import LAYERS
from vanidl.sections.job import name_storage_layers

STDIO_NAMES = ("OPENS", "FDOPENS", "READS", "WRITES", "SEEKS", "FLUSHES", "BYTES_WRITTEN",
               "BYTES_READ")  # fmt: skip
MODULES = ("module 20", "module 21")


def written(path, *modules: str, stdio: bool = False, dxt: bool = False):
    """A log with these modules; with STDIO 32 MiB written, with DXT traced operations."""
    counters = [0] * STDIO_COUNTERS
    times = [0.0, 5.0, *[0.0] * (STDIO_TIMES - 2)]  # of writing
    counters[STDIO_NAMES.index("WRITES")] = 2
    counters[STDIO_NAMES.index("BYTES_WRITTEN")] = 32 << 20
    log = Log(
        job=(1000, 7, 1),
        names={1: b"/out/a.dat"},
        counters={"STDIO": [(1, 0, counters, times)]} if stdio else {},
        dxt={"DXT_POSIX": random_records(1, ranks=1)} if dxt else {},
        raw=dict.fromkeys(modules, b"records of this module"),
    )  # fmt: skip
    path.write_bytes(log_bytes(log))
    return vanidl.open_run(path)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(("stdio", "dxt"), [(False, False), (True, False), (True, True)])
def test_nothing_is_claimed_over_what_is_not_read(tmp_path, capsys, module, stdio, dxt):
    path = tmp_path / "u_prog_id7-42_11-14-80000-1_1.darshan"
    run = written(path, module, stdio=stdio, dxt=dxt)
    assert "modules_not_read" in serious_codes(run.coverage.warnings)
    assert not run.coverage.complete
    assert module in run.headline
    assert not re.search(r"No (POSIX |I/O|operation)|no I/O at all", run.headline)
    assert not {"stdio_share", "mostly_writes"} & {f.code for f in run.findings}
    assert main(["summary", str(path)]) == 0
    out = capsys.readouterr().out
    assert "of the bytes go" not in out
    assert module in out


def test_the_same_log_without_such_a_module_makes_the_claims(tmp_path):
    run = written(tmp_path / "u_prog_id7-42_11-14-80000-1_1.darshan", stdio=True)
    assert "stdio_share" in {f.code for f in run.findings}
    assert run.coverage.complete


def test_counters_of_the_machine_limit_no_claim(tmp_path):
    run = written(tmp_path / "u_prog_id7-42_11-14-80000-1_1.darshan", "APXC", stdio=True)
    assert "modules_not_read" in {w.code for w in run.coverage.warnings}
    assert run.coverage.complete
    assert "stdio_share" in {f.code for f in run.findings}


@pytest.mark.usefixtures("darshan_library")
@pytest.mark.parametrize("other", ["STDIO", "POSIX"])
def test_records_of_an_unknown_version_are_no_damage_and_in_no_total(tmp_path, capsys, other):
    modules = sorted({*NUMBER} & {*LAYERS} - {other})
    version = {"POSIX": 4, "STDIO": 2}[other]
    regions = dict.fromkeys(modules, (99, random_region("DFS", 1, "<")))
    path = tmp_path / "u_prog_id7-42_11-14-80000-1_1.darshan"
    path.write_bytes(log_with({other: (version, random_region(other, version, "<")), **regions}))
    run = vanidl.open_run(path)
    codes = {w.code: w.message for w in run.coverage.warnings}
    assert "damaged" not in codes
    assert all(module in codes["modules_not_read"] for module in modules)
    assert not {layer.layer for layer in run.summary.layers} & set(modules)
    assert name_storage_layers(run) == other
    main(["check", str(path)])
    said = capsys.readouterr().out
    assert "damaged" not in said
    assert all(f"{module}: its records are of version 99" in said for module in modules)
