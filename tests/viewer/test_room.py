"""A page stays below 4 MB whatever the run, and says what it does not hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.makers.records import Io, darshan_log
from vanidl.analyses.results import analyse
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import assemble
from vanidl.model.trace import Files
from vanidl.report import html
from vanidl.run import Run
from vanidl.sections import timeline
from vanidl.viewer.content import Room


@pytest.fixture(scope="module")
def incompressible() -> Run:
    """300,000 operations whose every number is random, on as many files as names can be."""
    trace = assemble(Group((darshan_log([Io(0, 5, 0, 9)]),), ()), {})
    (part,) = trace.io
    random, count = np.random.default_rng(0), 300_000
    start = part.start[0] + np.sort(random.integers(0, 9 * 10**9, count))
    part = replace(
        part,
        start=start,
        end=start + random.integers(1, 2**24, count),
        offset=random.integers(0, 2**50, count),
        nbytes=random.integers(0, 2**40, count),
        thread=np.full(count, -1, np.int32),
        file=random.integers(0, 30_000, count).astype(np.int32),
        op=random.integers(0, 2, count).astype(np.uint8),
    )
    names = tuple(f"/data/{x:032x}" for x in random.integers(0, 2**62, 30_000).tolist())
    files = Files(names, *(("dataset",) * 30_000 for _ in range(3)))
    trace = replace(trace, io=(part,), files=files)
    return Run(trace, analyse(trace))


@pytest.fixture(scope="module")
def page(incompressible: Run) -> str:
    return html.render_html(incompressible)


def test_a_page_of_any_run_stays_below_its_limit(page):
    assert len(page.encode("utf-8", "backslashreplace")) <= html.LIMIT_NBYTES


def test_what_is_left_out_is_said(incompressible):
    made = timeline.draw_timeline(incompressible, Room(slices=5000))
    held, total = made.viewer["held"], made.viewer["total"]
    assert 0 < held <= 5000 < total == 300_000
    assert f"{held:,} of 300,000 slices" in made.caption
    assert made.viewer["bins"]["series"]


def test_a_crowded_page_makes_room(incompressible, page, monkeypatch):
    monkeypatch.setattr(html, "LIMIT_NBYTES", len(page) - 1)
    assert len(html.render_html(incompressible)) < len(page)


def test_nothing_but_its_own_server_is_asked(incompressible: Run, page: str):
    room = Room(0, 9, served=True)
    served = html.render_page(html.page_with(html.page_of(incompressible), incompressible, room))
    assert "connect-src &#39;self&#39;;" in served.split("</head>")[0]
    assert "connect-src" not in page.split("</head>")[0]
