"""The report as one HTML file that opens from disk, without network, now and later."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from datetime import datetime, timezone
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vanidl.analyses import Results
from vanidl.figures import FIGURES, Figure, Spec, Table
from vanidl.figures.labels import elided
from vanidl.figures.levels import packed
from vanidl.figures.palette import DARK
from vanidl.report.headline import headline
from vanidl.report.terms import TERMS
from vanidl.report.tiles import tiles
from vanidl.report.units import count, seconds, shown
from vanidl.trace import Trace
from vanidl.writing import write_whole

SCHEMA = "vanidl/1"
_SCRIPTS = (
    "plotly-cartesian-4.1.1.min.js",
    "tables.js",
    "levels.js",
    "plots.js",
    "views.js",
    "page.js",
)
_STYLES = ("page.css", "parts.css")
_UNSAFE = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def render_html(trace: Trace, results: Results) -> str:
    """The whole page as text; names from the logs can neither break out nor run."""
    figures = [figure(trace, results) for figure in FIGURES]
    scripts = [_asset(name) for name in _SCRIPTS]
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            policy=_policy(scripts),
            scripts=[Markup(script) for script in scripts],
            styles=[Markup(_asset(name)) for name in _STYLES],
            data=Markup(embedded(_data(figures))),
            sections=[(name, list(group)) for name, group in groupby(figures, lambda f: f.section)],
            headline=headline(trace, results),
            tiles=tiles(trace, results),
            facts=_facts(trace),
            warnings=_warnings(results),
            terms=TERMS,
            command=elided(trace.job.command, limit=2000),
            job=elided(trace.job.id or "run", limit=80),
            version=_version(),
            schema=SCHEMA,
        )
    )


def write_html(trace: Trace, results: Results, path: str | Path) -> None:
    """Write the page to `path`: whole or not at all.

    Raises:
        VanidlError: the file cannot be written there.
    """
    page = render_html(trace, results).encode("utf-8", errors="backslashreplace")
    write_whole(Path(path), page)


def embedded(value: object) -> str:
    """JSON that is inert inside a script element, whatever its strings hold."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_UNSAFE)


def _policy(scripts: list[str]) -> str:
    """Only these very scripts may run, and nothing may be fetched."""
    hashes = (hashlib.sha256(f"\n{script}\n".encode()).digest() for script in scripts)
    sources = " ".join(f"'sha256-{base64.b64encode(h).decode()}'" for h in hashes)
    return (
        f"default-src 'none'; script-src {sources}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


@cache
def _environment() -> Environment:
    loader = PackageLoader("vanidl.report")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["tight"] = _tight
    return environment


@cache
def _asset(name: str) -> str:
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8").strip()


def _tight(text: str) -> str:
    """Text in which no line breaks between a number and its unit."""
    return re.sub(r"(?<=\d) (?=(?:[numµ]?s|h|min|%|[KMGTPE]?i?B)\b|%)", "\N{NO-BREAK SPACE}", text)


def _data(figures: list[Figure]) -> Spec:
    return {
        "dark": DARK,
        "figures": [
            {
                "id": f.id,
                "spec": f.spec,
                "table": _cells(f.table) if f.table else None,
                "levels": packed(f.levels) if f.levels else None,
            }
            for f in figures
        ],
    }


def _cells(table: Table) -> Spec:
    """Columns and rows; a number travels as [value, text] so that it sorts and reads well."""
    units = [column.unit for column in table.columns]
    return {
        "columns": [[column.title, column.unit == "text"] for column in table.columns],
        "rows": [
            [
                value if isinstance(value, str) or value is None else [value, shown(value, unit)]
                for value, unit in zip(row, units, strict=True)
            ]
            for row in table.rows
        ],
        "cut": table.cut,
    }


def _version() -> str:
    try:
        return version("vanidl")
    except PackageNotFoundError:  # run from a checkout
        return "(from source)"


def _facts(trace: Trace) -> tuple[tuple[str, str], ...]:
    """What ran, in a line of small facts."""
    job = trace.job
    start = datetime.fromtimestamp(job.start_ns / 1e9, tz=timezone.utc)
    hosts = {p.host for p in trace.processes if p.host}
    return (
        ("job", elided(job.id or "not recorded", limit=80)),
        ("started", f"{start:%Y-%m-%d %H:%M:%S} UTC"),
        ("run time", seconds(job.run_time_s)),
        ("ranks", count(len(trace.ranks))),
        ("processes", count(len(trace.processes))),
        ("hosts", count(len(hosts)) if hosts else "not recorded"),
        ("tracer", job.tracer or "none"),
    )


def _warnings(results: Results) -> list[tuple[str, str, str]]:
    """(code, message, severity), what went wrong before what is worth knowing."""
    ordered = sorted(results.coverage.warnings, key=lambda w: w.severity == "info")
    return [(w.code, elided(w.message, limit=1000), w.severity) for w in ordered]
