"""Storage, layers and I/O of damaged logs equal those of what PyDarshan reads of the whole part."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.makers.damaged_logs import LOGS, Case, compared, damaged_logs
from tests.makers.needed import needed

needed("darshan", reason="PyDarshan is not installed")
NAMES = [name for name, _ in damaged_logs()]


def test_there_are_logs_of_every_kind() -> None:
    assert len(NAMES) == 22
    assert {name.split("-cut-")[0] for name in NAMES if "-cut-" in name} == {*LOGS}


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory, darshan_library: object) -> dict[str, Case]:
    del darshan_library  # there is one
    return {case.name: case for case in compared(tmp_path_factory.mktemp("damaged"))}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_whole_equals_pydarshan(name: str, cases: dict[str, Case], tmp_path: Path) -> None:
    case = cases[name]
    assert case.mine == case.theirs
    assert case.is_damaged
    assert case.mine is not None


def test_most_of_them_still_say_what_went_to_storage(cases: dict[str, Case]) -> None:
    assert sum(bool(case.mine and case.mine["storage"]["by_layer"]) for case in cases.values()) > 14
