"""TensorBoard's plugin: which addresses there are, and what each answers.

The protocol is that of TensorBoard's dynamic plugins (`tensorboard.plugins.base_plugin`). Pages are
made off the thread that answers, one at a time, and kept while their runs stay the same (`Pages`).
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug.wrappers import Request

from vanidl.compare.page import render_comparison
from vanidl.compare.runs import compare_runs
from vanidl.errors import InputError, VanidlError
from vanidl.export.registry import export
from vanidl.readers.discover import find_runs, get_signature, is_within
from vanidl.report.html import render_html
from vanidl.run import open_run

_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
_FRONT = Path(__file__).with_name("index.js")
_PREPARING, _UNUSABLE = 202, 422  # status of HTTP: accepted, and unprocessable
FRESH_S = 1.0
"""How old a listing of the log folder may be, in seconds from its end."""
MOST_KEPT = 16
"""Results that are kept; the one that was asked for longest ago goes first."""

Result = bytes | VanidlError
Answer = Callable[..., Any]


class IoPlugin(base_plugin.TBPlugin):  # type: ignore[misc]  # TensorBoard has no types
    """The tab "I/O"."""

    plugin_name = "vanidl"

    def __init__(self, context: Any) -> None:  # noqa: ANN401 - TensorBoard's context
        self._root = Path(context.logdir).absolute() if context.logdir else None
        self._pages = Pages()
        self._listed = (-math.inf, dict[str, Path]())  # when, and what

    def is_active(self) -> bool:
        """Whether a run with I/O lies below the log folder."""
        return bool(self._runs())

    def frontend_metadata(self) -> Any:  # noqa: ANN401 - TensorBoard's record
        """The module that draws the tab."""
        return base_plugin.FrontendMetadata(es_module_path="/index.js", tab_name="I/O")

    def get_plugin_apps(self) -> Mapping[str, Answer]:
        """Answers by address, below `/data/plugin/vanidl`."""
        answers: dict[str, Callable[[Request], Any]] = {
            "/index.js": self._send_front,
            "/runs": self._send_runs,
            "/state": self._send_state,
            "/report": partial(self._send_page, "report", 1),
            "/comparison": partial(self._send_page, "comparison", 2),
            "/timeline": partial(self._send_page, "timeline", 1),
        }
        return {address: Request.application(answer) for address, answer in answers.items()}

    def _runs(self) -> dict[str, Path]:
        """The runs as they were within the last second: TensorBoard asks at each poll."""
        if self._root and monotonic() - self._listed[0] >= FRESH_S:
            runs = find_runs(self._root)
            self._listed = (monotonic(), runs)
        return self._listed[1]

    def _send_front(self, request: Request) -> Any:  # noqa: ANN401 - a response
        text = _FRONT.read_text(encoding="utf-8")
        return http_util.Respond(request, text, "text/javascript")

    def _send_runs(self, request: Request) -> Any:  # noqa: ANN401 - a response
        return http_util.Respond(request, list(self._runs()), "application/json")

    def _send_state(self, request: Request) -> Any:  # noqa: ANN401 - a response
        """What changes when a file of the runs does that `?run=` names."""
        try:
            state = [get_signature(run) for run in self._find_asked(request, (1, 2))]
        except VanidlError as error:
            return _refuse(request, error)
        digest = hashlib.sha256(repr(state).encode("utf-8", "backslashreplace")).hexdigest()
        return http_util.Respond(request, digest, "text/plain")

    def _send_page(self, kind: str, count: int, request: Request) -> Any:  # noqa: ANN401 - a response
        """What was made of the runs that `?run=` names."""
        try:
            result = self._pages.get(kind, self._find_asked(request, (count,)))
        except VanidlError as error:
            return _refuse(request, error)
        content_type = "application/json" if kind == "timeline" else "text/html"
        if result is None:
            return http_util.Respond(request, "being prepared", "text/plain", _PREPARING)
        if isinstance(result, VanidlError):
            return http_util.Respond(request, str(result), "text/plain", _UNUSABLE)
        policy = hash_scripts(result) if content_type == "text/html" else None
        return http_util.Respond(request, result, content_type, csp_scripts_sha256s=policy)

    def _find_asked(self, request: Request, counts: Sequence[int]) -> list[Path]:
        """The runs that `?run=` names: found among the known, never opened.

        Raises:
            InputError: one is not among them, or has a link out of the log folder, or there are not
            as many as are allowed.
        """
        known, names = self._runs(), request.args.getlist("run")
        if len(names) not in counts or any(name not in known for name in names):
            raise InputError("no such run")
        if self._root is None or not all(is_within(known[name], [self._root]) for name in names):
            raise InputError("a file of the run is a link to outside of the log folder: not read")
        return [known[name] for name in names]


def _refuse(request: Request, error: VanidlError) -> Any:  # noqa: ANN401 - a response
    """Also for a run that is gone since it was listed."""
    return http_util.Respond(request, str(error), "text/plain", 404)


def hash_scripts(page: bytes) -> list[str]:
    """Base64 SHA-256 of every inline script, as a content security policy names them."""
    digests = (hashlib.sha256(script).digest() for script in _SCRIPT.findall(page))
    return [base64.b64encode(digest).decode() for digest in digests]


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
        key = (kind, tuple(get_signature(run) for run in runs))
        future = self._kept.pop(key, None) or self._worker.submit(
            _render_or_error, RENDER[kind], runs
        )
        self._kept[key] = future
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)[1].cancel()
        return future.result() if future.done() else None


def _render_or_error(render: Callable[[Sequence[Path]], bytes], runs: Sequence[Path]) -> Result:
    try:
        return render(runs)
    except VanidlError as error:
        return error


def _render_report(runs: Sequence[Path]) -> bytes:
    return _encode(render_html(open_run(runs[0])))


def _render_comparison(runs: Sequence[Path]) -> bytes:
    return _encode(render_comparison(compare_runs(*runs).comparison))


def _render_timeline(runs: Sequence[Path]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "timeline.json"
        export(open_run(runs[0]), "chrome", path)
        return path.read_bytes()


def _encode(page: str) -> bytes:
    return page.encode("utf-8", errors="backslashreplace")


RENDER: dict[str, Callable[[Sequence[Path]], bytes]] = {
    "report": _render_report,
    "comparison": _render_comparison,
    "timeline": _render_timeline,
}
