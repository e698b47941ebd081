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
    "advice/test_what_if.py",
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


LONG = (
    "advice/test_action_labels.py::test_synthetic_runs",
    "advice/test_rules.py::test_held_back_half_has_precision",
    "advice/test_rules.py::test_recorded_runs_have_the_findings_of_their_labels[public/darshan_logs/skew-app",
    "advice/test_streams.py::test_a_stream_is_split_before_workers",
    "advice/test_streams.py::test_nothing_of_the_kind_is_said_of_samples_by_index",
    "analyses/test_laws.py::test_overlap_order_and_clock",
    "analyses/test_laws.py::test_without_concurrency_nothing_is_hidden",
    "anonymize/test_canary.py::test_no_output_of_a_run_holds_a_secret",
    "anonymize/test_canary.py::test_no_survey_holds_a_secret",
    "anonymize/test_canary.py::test_the_search_would_notice",
    "anonymize/test_trace.py::test_no_name_goes_out",
    "commands/test_secrets.py::test_no_export_holds_a_secret[figures",
    "commands/test_secrets.py::test_no_export_holds_a_secret[parquet",
    "compare/test_browser.py",
    "compare/test_figures.py::test_every_figure_of_every_comparison",
    "compare/test_power.py",
    "compare/test_statistics.py::test_a_change_of_half_an_interval_is_seen",
    "compare/test_statistics.py::test_the_interval_holds_the_truth",
    "contrib/test_facility.py::test_a_log_that_cannot_be_read_stops_nothing",
    "encoding/test_budget.py::test_a_file_costs_no_more_memory",
    "encoding/test_budget.py::test_a_limit_is_named_with_its_number",
    "encoding/test_budget.py::test_steps_grow",
    "encoding/test_json_stream.py::test_equals_a_parser_of_the_whole_text",
    "export/test_chrome.py::test_perfetto_reads_back_what_was_written[ddp_two_hosts",
    "export/test_chrome.py::test_perfetto_reads_back_what_was_written[torch_pfs_workers4",
    "export/test_export.py::test_names_that_are_no_text_do_no_harm[figures",
    "formatting/test_secrets.py::test_long_words_take_their_length",
    "frames/test_frames.py::test_every_pair_is_joined_on_its_keys_and_no_row_is_lost_without_a_reason[beside",
    "frames/test_frames.py::test_keys_have_one_type_and_tables_without_rows_their_columns[beside",
    "fuzz/test_fuzz.py::test_no_mutant_is_silently_wrong[3.00",
    "fuzz/test_fuzz.py::test_no_mutant_is_silently_wrong[3.41",
    "interactive/test_run.py::test_every_figure_that_is_named_is_drawn[ddp_two_hosts",
    "interactive/test_run.py::test_every_figure_that_is_named_is_drawn[torch_pfs_workers0",
    "loaders/callers/test_resumes.py",
    "loaders/decoders/test_decode_gpu.py::test_a_rehearsal_runs_every_step",
    "loaders/decoders/test_kernels.py",
    "loaders/decoders/test_on_device.py",
    "loaders/pls/test_exchange.py",
    "loaders/pls/test_ranks.py::test_laws[forked-2",
    "loaders/pls/test_ranks.py::test_laws[mpi-2",
    "loaders/spatial/test_blocks.py::test_blocks_make_up_the_whole",
    "loaders/spatial/test_blocks.py::test_every_type_comes_back",
    "loaders/spatial/test_ranks.py::test_bytes_of_each_rank_by_system_trace",
    "loaders/spatial/test_ranks.py::test_nobody_waits_for_a_rank_whose_read_fails",
    "loaders/spatial/test_spatial_loader.py",
    "loaders/test_studies.py::test_encoded_samples_are_as_much_smaller",
    "loaders/test_studies.py::test_local_shuffling_loses_more",
    "loaders/test_training.py::test_a_run_leaves_a_trace",
    "loaders/test_training.py::test_two_ranks_train_in_step[torchrun",
    "loaders/workloads/test_applications.py::test_the_sizes_of_the_poster",
    "loaders/workloads/test_workloads.py::TestCosmoflow",
    "loaders/workloads/test_workloads.py::test_a_model_learns_its_workload[ptycho",
    "merge/clocks/test_clock_cases.py",
    "notebooks/test_notebooks.py::test_runs_and_holds_what_it_prints",
    "paper/test_paper.py::test_every_figure_of_every_run",
    "paper/test_paper.py::test_every_file_is_written",
    "paper/test_paper.py::test_the_panel_of_every_run",
    "paper/test_paper.py::test_the_same_run_gives_the_same_files",
    "parallel/test_executors.py::test_a_large_cluster",
    "parallel/test_executors.py::test_a_scheduler",
    "parallel/test_executors.py::test_dask_gives_the_same_results",
    "parallel/test_executors.py::test_nobody_else_gets_into_the_cluster",
    "readers/darshan/test_damaged.py::test_what_is_whole_equals_pydarshan[example-cut-in-STDIO",
    "readers/darshan/test_dxt.py::test_shared_logs_equal_pydarshan",
    "readers/darshan/test_pydarshan.py::test_a_report_gives_what_its_log_gives",
    "readers/test_hostile_files.py::test_a_cut_at_every_byte",
    "readers/test_hostile_files.py::test_any_value_in_the_place_of_any_other",
    "record/test_fetches.py::test_each_rank_of_torchrun",
    "record/test_fetches.py::test_fetches_are_those_of_the_program[1-forkserver",
    "record/test_fetches.py::test_fetches_are_those_of_the_program[1-spawn",
    "record/test_fetches.py::test_reading_and_decoding_are_divided_as_they_were_made[dftracer",
    "record/test_fetches.py::test_waits_and_steps_are_those_of_the_program[1-forkserver",
    "record/test_fetches.py::test_waits_and_steps_are_those_of_the_program[1-spawn",
    "record/test_framework_pages.py",
    "record/test_frameworks.py",
    "record/test_recording.py::test_ranks_of_torchrun[dftracer",
    "record/test_recording.py::test_workers_of_a_data_loader[dftracer",
    "record/test_window.py::test_profiled_steps_are_the_recorded_ones",
    "record/test_window.py::test_the_programs_own_profiler_wins",
    "record/tracer/test_written.py::test_a_program_ends_the_same[fork",
    "report/test_browser.py::test_a_printed_page_holds_every_picture",
    "report/test_browser.py::test_every_level_of_the_zoom",
    "report/test_browser.py::test_other_pages_break_no_rule_of_axe",
    "report/test_browser.py::test_page_draws_without_error_or_request",
    "survey/test_survey.py::test_nights_in_any_order",
    "tensorboard/test_plugin.py::test_the_tab_shows_the_page_of_a_run_beside_scalars",
    "viewer/test_browser.py::test_print_shows_every_lane",
    "viewer/test_room.py::test_a_page_of_any_run",
    "wording/test_laws.py::test_findings_of_extreme_values",
    "wording/test_laws.py::test_findings_read_well",
)
"""How the names begin of tests that repeat a law over many programs, formats or draws, or run other
people's frameworks: `make test-long`. Each takes seconds, and `make test` has shorter ones of the
same room; `pytest` by itself, `make check` and CI leave none out."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {ROOT / "tests" / name: i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))
    for item in items:
        if item.nodeid.removeprefix("tests/").startswith(LONG):
            item.add_marker(pytest.mark.long)


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
