from __future__ import annotations

import gc
import importlib
import importlib.util
import signal
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings

import vanidl
from tests import ROOT, SHARED
from tests.makers import browser
from tests.makers.once import once

settings.register_profile("explore", deadline=None, max_examples=5000)  # busy is no failure
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=25)
settings.load_profile("repeatable")  # what passes once passes again; `make fuzz` explores

# A seventh of the suite's time was the collector's, which every 700 objects looks through new ones.
gc.set_threshold(100_000)

# A shell's background job ignores Ctrl-C, and so would every program that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def collect() -> Iterator[Callable[[], object]]:
    """Looks for garbage in what a test made: in all that a suite holds it takes ten seconds."""
    gc.freeze()
    yield gc.collect
    gc.unfreeze()


LONGEST = (
    "report/test_browser.py",
    "compare/test_browser.py",
    "paper/test_paper.py",
    "wording/test_laws.py",
    "loaders/decoders/test_kernels.py",
    "record/test_recording.py",
    "record/test_fetches.py",
    "commands/test_secrets.py",
    "advice/test_rules.py",
    "analyses/test_laws.py",
    "advice/test_action_labels.py",
    "advice/test_streams.py",
    "encoding/test_budget.py",
    "commands/test_every_log.py",
    "export/test_export.py",
    "compare/test_statistics.py",
    "loaders/spatial/test_ranks.py",
    "readers/darshan/test_counters.py",
    "loaders/spatial/test_blocks.py",
    "anonymize/test_canary.py",
    "readers/test_hostile_files.py",
    "record/test_frameworks.py",
    "compare/test_power.py",
    "fuzz/test_fuzz.py",
    "parallel/test_executors.py",
    "merge/clocks/test_clock_cases.py",
    "survey/test_survey.py",
    "loaders/callers/test_resumes.py",
    "compare/test_runs.py",
    "record/test_window.py",
    "commands/test_terminal.py",
    "advice/test_predict.py",
    "loaders/test_training.py",
    "notebooks/test_notebooks.py",
    "export/test_chrome.py",
    "loaders/decoders/test_on_device.py",
    "contrib/test_facility.py",
    "record/test_phased_training.py",
    "model/test_intervals.py",
    "commands/test_console.py",
)
"""Files of 5 to 60 s, as `python -m tests.costs` measures: they begin first, so that no worker ends
long after another."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {ROOT / "tests" / name: i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


def pytest_collection_finish() -> None:
    """What imports made stays: neither the collector nor the end of a worker looks through it."""
    gc.freeze()


DEAR = ("skew-app.darshan",)
"""Logs that take seconds to analyse; once they are, a tenth of that to read back."""


@pytest.fixture(scope="session")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], vanidl.Run]:
    """`vanidl.open_run` without options, once per path and process: runs are frozen."""

    def open_analysed(path: Path) -> vanidl.Run:
        run = vanidl.open_run(path)
        _ = run.diagnoses  # with the account, findings and predictions that they are made of
        return run

    def open_run(path: Path) -> vanidl.Run:
        if path.name in DEAR:
            return once(tmp_path_factory, f"opened-{path.name}", lambda: open_analysed(path))
        return vanidl.open_run(path)

    return cache(open_run)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser of this session; tests take `driver`."""
    if browser.missing():
        pytest.skip(browser.missing())
    with browser.chromium() as session:
        yield session


@pytest.fixture
def driver(chromium: Any) -> Any:
    """The session's browser as if it were new: light, its logs empty."""
    browser.reset(chromium)
    return chromium


@pytest.fixture
def shown(chromium: Any, pages: Path, name: str) -> Any:
    """The page of a module's example, drawn whole, 1400 wide, for tests that leave it so."""
    browser.shown(chromium, pages / f"{name}.html", width=1400)
    return chromium


@pytest.fixture
def hangup() -> Iterator[None]:
    """A hang-up ends what the test starts, though the tests themselves may run behind nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recorded runs and public logs beside the repository."""
    if not SHARED.is_dir():
        pytest.skip(f"no test data: {SHARED.name}/ is not beside the repository")
    return SHARED


@pytest.fixture(scope="session")
def darshan_library() -> ModuleType:
    """PyDarshan's binding of Darshan's own library."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module("darshan.backend.cffi_backend")
        except RuntimeError:
            pytest.skip("PyDarshan has no wheel with Darshan's library for this Python")


@pytest.fixture(scope="session")
def wheel_logs() -> tuple[Path, ...]:
    """The logs that come with PyDarshan."""
    spec = importlib.util.find_spec("darshan")
    folders = spec.submodule_search_locations if spec else None
    logs = sorted(Path(folders[0]).rglob("*.darshan")) if folders else []
    if not logs:
        pytest.skip("PyDarshan is not installed with its example logs")
    return tuple(logs)
