"""The tab "I/O" of TensorBoard: its answers, and what a browser shows."""

from __future__ import annotations

import json
import os
import shutil
import time
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import DATA

pytest.importorskip("tensorboard")

from werkzeug.test import Client

from vanidl.readers import discover as runs
from vanidl.tensorboard import plugin as plugin_module
from vanidl.tensorboard.plugin import IoPlugin, hash_scripts

PREPARING = 202


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("logdir")
    shutil.copytree(DATA / "torch_pfs_workers0", root / "experiments" / "workers0")
    shutil.copytree(DATA / "torch_pfs_workers4", root / "experiments" / "workers4")
    (root / "scalars_only").mkdir()
    shutil.copy(next((DATA / "torch_pfs_workers0" / "tb").glob("events*")), root / "scalars_only")
    (root / "broken" / "darshan").mkdir(parents=True)
    (root / "broken" / "darshan" / "a.darshan").write_bytes(b"")
    return root


@pytest.fixture(scope="module")
def plugin(logdir: Path) -> IoPlugin:
    return IoPlugin(SimpleNamespace(logdir=str(logdir)))


def asked(plugin: IoPlugin, address: str, *names: str) -> Any:
    """The answer once it is no longer being prepared."""
    client = Client(plugin.get_plugin_apps()[address])
    end = time.monotonic() + 60
    while time.monotonic() < end:
        answer = client.get("/", query_string=[("run", name) for name in names])
        if answer.status_code != PREPARING:
            return answer
        time.sleep(0.05)
    raise AssertionError("never prepared")


def test_runs_are_found_below_the_log_folder(plugin: IoPlugin) -> None:
    answer = asked(plugin, "/runs")
    assert json.loads(answer.get_data()) == [
        "broken", "experiments/workers0", "experiments/workers4",
    ]  # fmt: skip
    assert plugin.is_active()


def test_the_log_folder_is_walked_once_a_second(plugin: IoPlugin, monkeypatch) -> None:
    times, walks = [100.0], []
    monkeypatch.setattr(plugin_module, "monotonic", lambda: times[0])
    monkeypatch.setattr(plugin_module, "find_runs", lambda root: walks.append(times[0]) or {})
    polled = IoPlugin(SimpleNamespace(logdir="/logs"))
    for times[0] in (100.0, 100.5, 100.9, 101.0, 101.9, 102.0):
        polled.is_active()
    assert walks == [100.0, 101.0, 102.0]


def test_a_recorded_run_is_one_run_wherever_its_logs_lie(tmp_path: Path) -> None:
    log = next((DATA / "torch_pfs_workers0" / "darshan").glob("*.darshan"))
    for folder in ("recorded/rank0", "recorded/rank1", "plain"):
        (tmp_path / folder).mkdir(parents=True)
        shutil.copy(log, tmp_path / folder)
    (tmp_path / "recorded" / "run.json").write_text("{}")
    assert list(runs.find_runs(tmp_path)) == ["plain", "recorded"]


@pytest.mark.parametrize("logdir", ["", None, "/nowhere/at/all"])
def test_without_a_log_folder_there_is_no_tab(logdir: str | None) -> None:
    assert not IoPlugin(SimpleNamespace(logdir=logdir)).is_active()


@pytest.mark.parametrize(
    "names",
    [["nothing"], ["../experiments/workers0"], ["/etc"], ["scalars_only"], [""], [],
     ["experiments/workers0", "experiments/workers4"]],
)  # fmt: skip
def test_what_is_no_run_is_not_found(plugin: IoPlugin, names: list[str]) -> None:
    assert asked(plugin, "/report", *names).status_code == 404
    if len(names) < 2:
        assert asked(plugin, "/state", *names).status_code == 404


def test_the_report_runs_its_own_scripts_alone(plugin: IoPlugin) -> None:
    answer = asked(plugin, "/report", "experiments/workers0")
    page = answer.get_data()
    assert b"Training waited" in page
    named = hash_scripts(page)
    policy = answer.headers["Content-Security-Policy"]
    assert named
    assert all(f"'sha256-{one}'" in policy and f"sha256-{one}".encode() in page for one in named)


def test_a_comparison_takes_two(plugin: IoPlugin) -> None:
    both = ("experiments/workers0", "experiments/workers4")
    assert b"Comparison" in asked(plugin, "/comparison", *both).get_data()
    assert asked(plugin, "/comparison", both[0]).status_code == 404


def test_the_timeline_is_chrome_s_format(plugin: IoPlugin) -> None:
    answer = asked(plugin, "/timeline", "experiments/workers0")
    assert json.loads(answer.get_data())["traceEvents"]


def test_a_run_that_cannot_be_read_says_why(plugin: IoPlugin) -> None:
    answer = asked(plugin, "/report", "broken")
    assert answer.status_code == 422
    assert "empty file" in answer.get_data(as_text=True)


def test_a_changed_run_is_read_again(tmp_path: Path) -> None:
    log = next((DATA / "torch_pfs_workers0" / "darshan").glob("*.darshan"))
    run = tmp_path / "run"
    run.mkdir()
    (run / "a.darshan").write_bytes(b"")
    changing = IoPlugin(SimpleNamespace(logdir=str(tmp_path)))
    assert asked(changing, "/report", "run").status_code == 422
    before = asked(changing, "/state", "run").get_data()
    assert asked(changing, "/state", "run").get_data() == before
    shutil.copy(log, run / "a.darshan")
    assert asked(changing, "/state", "run").get_data() != before
    assert asked(changing, "/report", "run").status_code == 200
    shutil.rmtree(run)
    assert asked(changing, "/report", "run").status_code == 404
    assert asked(changing, "/state", "run").status_code == 404


def test_tensorboard_finds_the_plugin_by_its_entry_point() -> None:
    found = entry_points(group="tensorboard_plugins", name="vanidl")
    assert {one.load() for one in found} == {IoPlugin}


@pytest.fixture
def changing(logdir: Path, tmp_path: Path) -> Path:
    """The log folder, for a test that writes to it."""
    return shutil.copytree(logdir, tmp_path / "logdir")


@pytest.fixture
def address(changing: Path) -> str:
    """TensorBoard itself, on a free port."""
    from tensorboard import default, program

    board = program.TensorBoard(plugins=[*default.get_static_plugins(), IoPlugin])
    board.configure(logdir=str(changing), port=0, load_fast="false")
    return board.launch()


@pytest.mark.browser
@pytest.mark.filterwarnings("ignore")  # TensorBoard's own
def test_the_tab_shows_the_page_of_a_run_beside_scalars(
    address: str, changing: Path, driver: Any
) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select, WebDriverWait

    driver.get(f"{address}#vanidl")
    wait = WebDriverWait(driver, 60)
    tab = wait.until(lambda d: d.find_element(By.CSS_SELECTOR, "plugins iframe, .plugins iframe"))
    driver.switch_to.frame(tab)
    choice = wait.until(lambda d: d.find_element(By.ID, "run"))
    Select(choice).select_by_value("experiments/workers0")
    wait.until(lambda d: d.find_element(By.ID, "page").get_attribute("src"))
    driver.switch_to.frame("page")
    wait.until(lambda d: "Training waited" in d.find_element(By.TAG_NAME, "h1").text)
    driver.execute_script("window.scrollTo(0, document.body.scrollHeight / 2)")
    wait.until(lambda d: d.find_elements(By.CSS_SELECTOR, "svg, canvas"))  # drawn when in sight

    driver.execute_script("window.old = true;")
    log = next((changing / "experiments" / "workers0").rglob("*.darshan"))
    os.utime(log, (1, 1))
    shutil.copytree(log.parents[1], changing / "later")
    driver.switch_to.parent_frame()

    def looked(d: Any) -> bool:  # as it does when the tab is seen again, and twice a minute
        d.execute_script("document.dispatchEvent(new Event('visibilitychange'))")
        return "later" in d.execute_script(f"return [...{runs}.options].map(one => one.value)")

    runs = "document.getElementById('run')"
    wait.until(looked)
    assert driver.execute_script(f"return {runs}.value") == "experiments/workers0"
    driver.switch_to.frame("page")
    wait.until(lambda d: not d.execute_script("return window.old"))
    wait.until(lambda d: "Training waited" in d.find_element(By.TAG_NAME, "h1").text)
    driver.switch_to.default_content()
    messages = [entry["message"] for entry in driver.get_log("browser")]
    assert [text for text in messages if "vanidl" in text and "Security Policy" in text] == []


def test_a_link_out_of_the_log_folder_is_not_read(tmp_path: Path) -> None:
    log = next((DATA / "torch_pfs_workers0" / "darshan").glob("*.darshan"))
    for run in ("linked", "within"):
        (tmp_path / "logs" / run).mkdir(parents=True)
    shutil.copy(log, tmp_path / "logs")
    (tmp_path / "logs" / "linked" / log.name).symlink_to(log)
    plugin = IoPlugin(SimpleNamespace(logdir=str(tmp_path / "logs")))
    (tmp_path / "logs" / log.name).rename(tmp_path / "logs" / "within" / log.name)
    for address in ("/report", "/timeline", "/state"):
        answer = asked(plugin, address, "linked")
        assert answer.status_code == 404
        assert b"outside" in answer.get_data()
        assert asked(plugin, address, "within").status_code == 200
