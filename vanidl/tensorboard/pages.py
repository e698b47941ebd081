"""Pages made off the thread that answers, one at a time, kept while their runs stay the same."""

from __future__ import annotations

import tempfile
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from vanidl.compare.page import render_comparison
from vanidl.compare.runs import compare_runs
from vanidl.errors import VanidlError
from vanidl.export import export
from vanidl.readers.runs_below import signature
from vanidl.report.html import render_html
from vanidl.run import open_run

MOST_KEPT = 16
"""Results that are kept; the one that was asked for longest ago goes first."""

Result = bytes | VanidlError


class Pages:
    """Results of `render`ing runs, by what their files were when it began."""

    def __init__(self) -> None:
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="vanidl")
        self._kept: OrderedDict[object, Future[Result]] = OrderedDict()

    def get(self, kind: str, runs: Sequence[Path]) -> Result | None:
        """The result for these runs as they are now; None while it is being made.

        Raises:
            InputError: a run is gone.
        """
        key = (kind, tuple(signature(run) for run in runs))
        future = self._kept.pop(key, None) or self._worker.submit(_result, RENDER[kind], runs)
        self._kept[key] = future
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)[1].cancel()
        return future.result() if future.done() else None


def _result(render: Callable[[Sequence[Path]], bytes], runs: Sequence[Path]) -> Result:
    try:
        return render(runs)
    except VanidlError as error:
        return error


def _report(runs: Sequence[Path]) -> bytes:
    return _encoded(render_html(open_run(runs[0])))


def _comparison(runs: Sequence[Path]) -> bytes:
    return _encoded(render_comparison(compare_runs(*runs).comparison))


def _timeline(runs: Sequence[Path]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "timeline.json"
        export(open_run(runs[0]), "chrome", path)
        return path.read_bytes()


def _encoded(page: str) -> bytes:
    return page.encode("utf-8", errors="backslashreplace")


RENDER: dict[str, Callable[[Sequence[Path]], bytes]] = {
    "report": _report,
    "comparison": _comparison,
    "timeline": _timeline,
}
