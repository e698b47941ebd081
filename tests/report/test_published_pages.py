"""Pages of logs by an enemy, made by the commands and opened in a real browser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.makers import browser
from tests.makers.darshan_logs import Log, Record, log_bytes
from tests.makers.pytorch_traces import event, steps, trace
from vanidl.cli import main

pytestmark = pytest.mark.browser

SCRIPT = "<script>window.owned=1</script>"
NASTY = (
    f"</script>{SCRIPT}",
    "<img src=http://example.invalid/x onerror=window.owned=1>",
    '"><svg onload=window.owned=1>',
    "{{7*7}}{% raw %}",
    "javascript:window.owned=1",
    "\u202egpj.exe\u2028`${window.owned=1}`",
    "<a href='javascript:window.owned=1'>x</a><b>%{x}</b>",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose file names, host, command, mounts, metadata and profiler names are hostile."""
    run = tmp_path_factory.mktemp("run")
    rows = [(4096 * i, 4096, i / 10, i / 10 + 0.01, 0) for i in range(20)]
    records = [Record(i, 0, NASTY[1][:60], rows[:3], rows) for i in range(1, len(NASTY) + 1)]
    log = Log(
        command=f"python {NASTY[0]} {NASTY[2]}".encode(),
        metadata=f"lib_ver={NASTY[0]}\n{NASTY[1]}=1\n".encode(),
        mounts=[(NASTY[2].replace(" ", ""), "/"), ("lustre", "/data/<b>")],
        names={i + 1: f"/data/<b>/{name}.h5".encode() for i, name in enumerate(NASTY)},
        dxt={"DXT_POSIX": [records]},
        job=(0, 4711, 1),
    )
    (run / "x_python_id4711-8342_1-2-3-4_1.darshan").write_bytes(log_bytes(log))
    seconds, more = log.start
    spans = [*steps(3), *(event(name, 1100 + i, 5) for i, name in enumerate(NASTY))]
    members = {"host_name": NASTY[1], "distributedInfo": {"rank": 0, "backend": NASTY[0]}}
    content = trace(spans, baseTimeNanoseconds=seconds * 10**9 + more, **members)
    (run / "x.pt.trace.json").write_text(json.dumps(content))
    (run / f"{NASTY[3]}.pt.trace.json").write_text("[]")
    return run


@pytest.mark.parametrize("public", [False, True], ids=["plain", "anonymized"])
@pytest.mark.parametrize("command", ["report", "compare"])
def test_a_page_of_hostile_names_runs_and_fetches_nothing(
    driver, capsys, tmp_path: Path, folder: Path, command: str, public: bool
) -> None:
    page = tmp_path / "page.html"
    runs = [str(folder)] * (2 if command == "compare" else 1)
    labels = ["--label", NASTY[0], "--label", NASTY[2]] if command == "compare" else []
    assert main([command, *runs, *labels, "-o", str(page), *(["--anonymize"] * public)]) == 0
    assert all(c == "\n" or c.isprintable() for c in capsys.readouterr().out)
    browser.opened(driver, page, width=1400)
    assert driver.execute_script("return window.owned") is None
    assert browser.console_errors(driver) == []
    assert browser.requests(driver) == []
    for tag in ("img", "svg[onload]", "a[href^=http]", "a[href^=javascript]"):
        assert driver.execute_script(f"return document.querySelectorAll({tag!r}).length") == 0
    if command == "report":
        assert (NASTY[1] in driver.execute_script("return document.body.textContent")) != public
