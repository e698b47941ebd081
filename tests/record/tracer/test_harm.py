"""Programs end the same with the tracer as without it; all 59 are in benchmarks/truth/harm.py."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks.truth import harm
from tests.makers.recorded_calls import library

QUICK = (
    "errno kept", "stream errors", "numbers", "close all", "close_range",
    "dup2 over all", "passed descriptor", "fork", "clone", "posix_spawn", "exec", "daemon",
    "small signal stack", "signal masks", "removed folder", "RLIMIT_NOFILE", "RLIMIT_FSIZE",
    "512 threads", "mapped file", "streams", "wide streams", "folders", "copies", "long names",
    "seccomp strict", "seccomp filter", "short threads", "SIGPIPE", "own allocator, streams",
    "file size limit from outside",
)  # fmt: skip


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, harm.Case]:
    library()
    if not shutil.which("cc"):
        pytest.skip("no C compiler for the programs")
    built = tmp_path_factory.mktemp("built")
    harm.build(built)
    return {case.name: case for case in harm.cases(built)}


@pytest.mark.parametrize("name", QUICK)
def test_a_program_ends_the_same(name: str, programs: dict[str, harm.Case], tmp_path: Path) -> None:
    alone = harm.run_case(programs[name], "none", None, tmp_path / "alone")
    recorded = harm.run_case(programs[name], "vanidl", None, tmp_path / "recorded")
    assert not alone.differences(recorded)
    assert recorded.traced
