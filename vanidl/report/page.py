"""What every HTML page of vanidl shares: inert data, a strict policy, scripts, safe writing."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.util import cache_from_source
from itertools import groupby
from pathlib import Path

import jinja2
from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.bccache import Bucket, FileSystemBytecodeCache
from markupsafe import Markup, escape

from vanidl import __version__
from vanidl.figures.downsample import pack_levels
from vanidl.figures.figure import Figure, Spec, Table
from vanidl.figures.palette import DARK
from vanidl.files.atomic import write_whole
from vanidl.formatting.units import Amount, Cell, Link, shown
from vanidl.report.overview import Overview
from vanidl.report.summary import SCHEMA
from vanidl.schema.dataclass import dataclass
from vanidl.sections.actions import Replayed
from vanidl.wording.cells import cells_of
from vanidl.wording.headline import Headline

# The words of the report and what each means, as its results define them.

TERMS: tuple[tuple[str, str], ...] = (
    (
        "Time in I/O (busy time)",
        "Length of the union of a rank's operations: time in which at least one operation of its "
        "processes was under way. Operations side by side count once.",
    ),
    (
        "Time by counters",
        "Seconds of reading and writing that the tracer added up over files and processes. Files "
        "read at the same time count twice, so it is not busy time.",
    ),
    (
        "Observed window",
        "From the start of the first to the end of the last profiled step of a rank. I/O outside "
        "it is unobserved: neither hidden nor exposed.",
    ),
    (
        "Input wait",
        "Time the training process spent waiting for the next batch, by the profiler. Where the "
        "profile has no such span it is not recorded, which is not zero.",
    ),
    (
        "Ceiling",
        "What the same steps take with batches from memory, measured by vanidl ceiling in a "
        "second run whose result is of no value. The most that any change of the input can gain.",
    ),
    (
        "Hidden",
        "I/O of a rank that ran under its compute, outside input waits. Where no compute was "
        "recorded but the whole loop was: while the training thread neither waited for input nor "
        "was in I/O itself. One process with one thread hides nothing.",
    ),
    (
        "Exposed",
        "I/O in the observed window that was not hidden: in input waits, behind communication, "
        "or under nothing recorded (checkpoints, logging).",
    ),
    (
        "Behind communication",
        "I/O under recorded collectives that compute does not cover. A rank that waits for "
        "another rank's reads waits there.",
    ),
    (
        "Lost to input",
        "Sum over steps of the longest input wait over ranks: what synchronous training loses.",
    ),
    (
        "Unique bytes, re-read factor",
        "Length of the union of all byte ranges read from a file; bytes read / unique bytes.",
    ),
    (
        "Visit",
        "A process's first read of a file, and each return to the lowest byte that it reads there "
        "after having read elsewhere. The order of visits compares all pairs of files of one pass.",
    ),
    (
        "Epoch",
        "Shown only where something marks its border: spans that name it, one more wait as the "
        "loader ends, workers started again, or the dataset read again.",
    ),
    (
        "Share",
        "Mean time in I/O over ranks / run time. Ranks without I/O count as 0.",
    ),
)

# Templates are compiled once and kept beside the bytecode of the modules.


class CompiledTemplates(FileSystemBytecodeCache):
    """Where Python itself would keep the bytecode of this package, and if it would keep any."""

    def __init__(self) -> None:
        folder = Path(cache_from_source(__file__)).parent
        super().__init__(str(folder), f"%s.jinja2-{jinja2.__version__}.cache")

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keeps a compiled template; a folder that cannot be written costs a compilation a run."""
        if not sys.dont_write_bytecode:
            with suppress(OSError):
                super().dump_bytecode(bucket)


# A key figure of a page: a number with its unit and what it means.


@dataclass(frozen=True, slots=True)
class Tile:
    """One key figure; `meaning` is its definition in a line."""

    label: str
    value: str
    meaning: str


SCRIPTS = (
    "plotly-cartesian-4.1.1.min.js",
    "units.js",
    "table-files.js",
    "tables.js",
    "levels.js",
    "plots.js",
    "views.js",
    "copy.js",
    "page.js",
)
VIEWER_SCRIPTS = (
    "viewer-data.js",
    "viewer-draw.js",
    "viewer-view.js",
    "viewer-panel.js",
    "viewer-model.js",
    "viewer-input.js",
    "viewer-paint.js",
    "viewer-select.js",
    "viewer-search.js",
    "viewer-address.js",
    "viewer.js",
)
"""Before the last of SCRIPTS, where a figure has a trace viewer."""

_STYLES = ("page.css", "first-screen.css", "parts.css", "viewer.css")
_UNSAFE = "<>&\u2028\u2029"


@dataclass(frozen=True, slots=True)
class Page:
    """The content of one page; every text may hold anything that a log may hold."""

    title: str
    kind: str  # what the page is, beside the name of the tool
    headline: Headline
    facts: tuple[tuple[str, str], ...]
    tiles: tuple[Tile, ...]
    warnings: tuple[tuple[str, str, str], ...]  # code, message, severity
    warned_section: str  # the section of the figures in which the warnings are listed
    figures: tuple[Figure, ...]
    terms: tuple[tuple[str, str], ...]
    commands: tuple[tuple[str, str], ...]  # whose command, and the command
    first_screen: Overview | None = None
    served: bool = False  # by `vanidl view`, which it asks for more of the run
    what_if: Replayed | None = None
    marked: frozenset[str] = frozenset()  # sections with what is to be acted on


def render_page(page: Page) -> str:
    """The whole page as text; names from the logs can neither break out nor run."""
    scripts = [_read_asset(name) for name in scripts_of(page.figures)]
    # Figures with something to show, by section; what is missing is listed once, below.
    shown = [f for f in page.figures if f.spec or f.table or f.viewer or not f.empty_reason]
    sections = [(name, list(group)) for name, group in groupby(shown, lambda f: f.section)]
    # Sections that are one line until they are opened: below the answer, without a finding.
    quiet = frozenset[str]()
    if page.first_screen:
        warned = {page.warned_section} if page.warnings else set()
        quiet = frozenset(name for name, _ in sections[1:]) - page.marked - warned
    return (
        _open_environment()
        .get_template("report.html.j2")
        .render(
            page=page,
            policy=_write_policy(scripts, served=page.served),
            scripts=[Markup(script) for script in scripts],
            styles=[Markup(_read_asset(name)) for name in _STYLES],
            data=Markup(embedded(_collect_data(page.figures))),
            sections=sections,
            quiet=quiet,
            missing=_list_missing([f for f in page.figures if f.id not in {s.id for s in shown}]),
            version=__version__,
            schema=SCHEMA,
        )
    )


def _list_missing(figures: Sequence[Figure]) -> list[tuple[str, list[Figure]]]:
    """What is not shown, by the reason: what several share is said once."""
    by_reason: dict[str, list[Figure]] = {}
    for figure in figures:
        by_reason.setdefault(figure.empty_reason, []).append(figure)
    return list(by_reason.items())


def scripts_of(figures: Sequence[Figure]) -> tuple[str, ...]:
    """The scripts that a page of these figures needs, in order."""
    viewer = VIEWER_SCRIPTS if any(figure.viewer for figure in figures) else ()
    return (*SCRIPTS[:-1], *viewer, SCRIPTS[-1])


def write_page(text: str, path: str | Path) -> None:
    """Write a rendered page to `path`: whole or not at all.

    Raises:
        VanidlError: the file cannot be written there.
    """
    write_whole(Path(path), text.encode("utf-8", errors="backslashreplace"))


def embedded(value: object) -> str:
    """JSON that is inert inside a script element, whatever its strings hold."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in _UNSAFE:  # str.translate takes ten times as long
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _write_policy(scripts: list[str], *, served: bool) -> str:
    """Only these very scripts may run; nothing may be fetched, but by a page from its server."""
    hashes = (hashlib.sha256(f"\n{script}\n".encode()).digest() for script in scripts)
    sources = " ".join(f"'sha256-{base64.b64encode(h).decode()}'" for h in hashes)
    own = " connect-src 'self';" if served else ""
    return (
        f"default-src 'none'; script-src {sources}; style-src 'unsafe-inline'; "
        f"img-src data: blob:;{own} base-uri 'none'; form-action 'none'"
    )


@cache
def _open_environment() -> Environment:
    loader = PackageLoader("vanidl.report")
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        bytecode_cache=CompiledTemplates(),
    )
    environment.filters["tight"] = unbroken
    environment.filters["slug"] = slug
    return environment


@cache
def _read_asset(name: str) -> str:
    """A style or script as the page holds it: without indents, which are for its authors."""
    text = (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8").strip()
    return text if name.startswith("plotly") else re.sub(r"\n[ \t]+", "\n", text)


def tight(text: str) -> str:
    """Text in which no line breaks between a number and its unit."""
    return re.sub(r"(?<=\d) (?=(?:[numµ]?s|h|min|%|[KMGTPE]?i?B)\b|%)", "\N{NO-BREAK SPACE}", text)


def unbroken(text: str) -> Markup:
    """Tight text in which no line breaks within an option: browsers break after its hyphens.

    Numbers of cells carry the key of their cell.
    """
    pieces, done = [], 0
    for cell in cells_of(text):
        end = cell.at + len(cell.text)
        shown = escape(tight(cell.text))
        pieces.append(escape(tight(text[done : cell.at])))
        pieces.append(Markup('<span data-cell="{}">{}</span>').format(cell.key, shown))
        done = end
    safe = str(Markup("").join([*pieces, escape(tight(text[done:]))]))
    return Markup(re.sub(r"(?<![\w-])--[a-z][a-z-]*", r'<span class="option">\g<0></span>', safe))


def slug(name: str) -> str:
    """A heading as part of an address: `input-and-compute`."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _collect_data(figures: Sequence[Figure]) -> Spec:
    return {
        "dark": DARK,
        "figures": [
            {
                "id": f.id,
                "spec": f.spec,
                "table": _list_cells(f.table) if f.table else None,
                "levels": pack_levels(f.levels) if f.levels else None,
                "viewer": f.viewer,
            }
            for f in figures
        ],
    }


def _list_cells(table: Table) -> Spec:
    """Columns and rows; a number travels as [value, text] so that it sorts and reads well."""
    units = [column.unit for column in table.columns]
    return {
        "columns": [[column.title, column.unit == "text"] for column in table.columns],
        "rows": [
            [_write_cell(value, unit) for value, unit in zip(row, units, strict=True)]
            for row in table.rows
        ],
        "cut": table.cut,
        "sorted": table.sorted_by,
    }


def _write_cell(value: Cell, unit: str) -> str | list[float | str] | None:
    if isinstance(value, Link):
        return [value.text, value.text, value.href]
    number = value.value if isinstance(value, Amount) else value
    return number if number is None or isinstance(number, str) else [number, shown(value, unit)]
