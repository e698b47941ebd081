"""The reports of single jobs of a survey, to which its page leads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from vanidl.analyses import analyse
from vanidl.anonymize.pseudonyms import Pseudonyms
from vanidl.anonymize.trace import anonymous
from vanidl.encoding.one_file import read_one
from vanidl.errors import VanidlError
from vanidl.merge.load import Inputs, trace_of
from vanidl.parallel.limits import Limits, TimeLimit, limited
from vanidl.report.html import render_html
from vanidl.report.page import write_page
from vanidl.run import Run
from vanidl.survey.jobs import Job
from vanidl.survey.rows import Row, found_of

FOLDER = "reports"
_UNSAFE = re.compile(r"[^A-Za-z0-9+-]+")
_LONGEST_NAME = 40


def place_of(rank: int, row: Row) -> str:
    """Where the report of a job goes, relative to the page: `reports/001-446325.html`."""
    name = _UNSAFE.sub("-", row["job"] or "job")[:_LONGEST_NAME].strip("-")
    return f"{FOLDER}/{rank:03}-{name or 'job'}.html"


def report_texts(
    jobs: Sequence[tuple[int, Job]], limits: Limits, names: Pseudonyms | None
) -> list[str]:
    """The pages of jobs, "" of one that cannot be read within its limits."""
    return [_text(job, limits, names) for _, job in jobs]


def write_report(text: str, path: Path) -> None:
    """Writes a page: whole or not at all.

    Raises:
        VanidlError: it cannot be written there.
    """
    with suppress(OSError):  # writing says why it is not possible
        path.parent.mkdir(exist_ok=True)
    write_page(text, path)


def _text(job: Job, limits: Limits, names: Pseudonyms | None) -> str:
    try:
        with limited(limits):
            return read_one(lambda _: render_html(_run(job, names)), job.first)
    except (TimeLimit, VanidlError):
        return ""


def _run(job: Job, names: Pseudonyms | None) -> Run:
    trace = trace_of(found_of(job), Inputs())
    if names is not None:
        trace = anonymous(trace, names)
    name = "" if names is not None else Path(job.paths[0]).name
    return Run(trace, analyse(trace), name=name)
