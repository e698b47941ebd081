"""The commands, what each takes, and the parser: no package is needed, so that help comes at once.

A line in COMMANDS and a function a command, listed in ARGUMENTS; its module has `run`, and is
imported when the command is run: no command pays for another.
"""

from __future__ import annotations

import argparse
import difflib
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import import_module
from typing import Any, NoReturn, Protocol, cast

import vanidl
from vanidl.errors import UsageError
from vanidl.export.registry import FORMATS
from vanidl.parallel.limits import Limits
from vanidl.record.recorder import TRACERS
from vanidl.record.steps import PROFILED_STEPS, WARM_UP

COMMANDS: dict[str, str] = {
    "summary": "print where the time went to I/O",
    "report": "write one self-contained HTML page",
    "view": "serve the report to this machine's browser, with every operation behind it",
    "compare": "compare runs: what changed, by how much, and how sure that is",
    "record": "run a command under a tracer and leave a RUN for report and compare",
    "watch": "show what a run that is being recorded does: its state, steps, waits, reads",
    "ab": "run two commands alternately under the recorder and compare them",
    "ceiling": "measure what input costs: run a command with batches from memory",
    "check": "say of each log whether it is whole, and what it misses; exit status 0, or 1 where "
    "no file could be read at all",
    "export": "write operations, results or figures as files for other programs",
    "demo": "write the report of a recorded training that comes with vanidl",
    "completion": "print the completion script of a shell",
    "schema": "print the JSON Schema of the JSON outputs: every field, its meaning and unit",
    "mcp": "answer assistants about runs, by the Model Context Protocol",
    "survey": "read the Darshan logs of many jobs: a table with one row per job, and one page "
    "for all",
}
"""Name, which is that of the module, and help, in the order of `vanidl --help`."""


GROUPS: dict[str, tuple[str, ...]] = {
    "look at a run": ("summary", "report", "view", "export", "check", "demo"),
    "compare": ("compare", "ab", "survey"),
    "record": ("record", "watch", "ceiling"),
    "set up": ("completion", "schema", "mcp"),
}
"""Commands as `vanidl --help` shows them; those in no group come last."""

READING = frozenset(("summary", "report", "export", "check", "demo", "compare", "survey"))
"""Commands that only read and write files: they start no program and serve nobody."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "summary": ("vanidl summary RUN", "vanidl summary RUN --full --only dataset"),
    "report": ("vanidl report RUN -o report.html",),
    "compare": ("vanidl compare before after -o compare.html",),
    "record": ("vanidl record -o RUN -- python train.py",),
    "watch": (
        "vanidl watch RUN",
        "vanidl watch RUN --quiet --openmetrics /var/lib/node_exporter/textfile/train.prom",
    ),
    "ab": ('vanidl ab --a "python train.py --workers 0" --b "python train.py --workers 4"',),
    "check": ("vanidl check logs/",),
    "ceiling": (
        "vanidl ceiling -o RUN -- python train.py",
        "vanidl ceiling --against RUN -- python train.py",
    ),
    "export": ("vanidl export RUN --to parquet -o tables",),
    "survey": ("vanidl survey /logs/2026 -o survey",),
    "mcp": ("vanidl mcp runs/",),
    "schema": ("vanidl schema summary",),
    "completion": (
        "source <(vanidl completion bash)",
        "vanidl completion fish > ~/.config/fish/completions/vanidl.fish",
    ),
}
"""Lines to copy, shown at the end of a command's help."""


class Command(Protocol):
    """What a module of this folder offers."""

    def run(self, options: argparse.Namespace) -> int:
        """Does the work; the exit status."""


def find_command(name: str) -> Command:
    """The module of a command, one of COMMANDS."""
    return cast(Command, import_module(f"vanidl.commands.{name}"))


SHELLS = ("bash", "zsh", "fish")
SCHEMAS = ("summary", "compare", "check", "export", "frames", "survey", "ab", "run", "ceiling")
"""JSON outputs whose schema can be printed."""

WORSE = "worse"
"""The verdict that --fail-on looks for."""

LOOK_S, LINE_S = 1.0, 10.0
"""Between looks at a run that is being recorded: on a terminal, and elsewhere."""

PLACEHOLDER = "{run}"
"""The folder of the run, in commands that are recorded."""

_GIB = 1 << 30


def declare_summary(parser: argparse.ArgumentParser) -> None:
    """RUN, what to look at, --full and --json."""
    add_run_arguments(parser)
    output = parser.add_argument_group("output").add_mutually_exclusive_group()
    output.add_argument("--full", action="store_true", help="every table, finding and warning")
    output.add_argument("--json", action="store_true", help="one JSON object, for programs")


def declare_report(parser: argparse.ArgumentParser) -> None:
    """RUN, what to look at, and where the page goes."""
    add_run_arguments(parser)
    parser.add_argument("-o", "--output", default="report.html", metavar="FILE")


def declare_view(parser: argparse.ArgumentParser) -> None:
    """RUN, what to look at, and where to serve it."""
    add_run_arguments(parser)
    parser.add_argument(
        "--port", type=int, default=0, help="port on 127.0.0.1 (default: a free one)"
    )
    parser.add_argument("--open", action="store_true", help="open the address in a browser")


def declare_compare(parser: argparse.ArgumentParser) -> None:
    """The sides, how to show the comparison, and how to read runs."""
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        help="two or more runs, each compared with the first. A RUN is a log, a folder of logs and "
        "profiler output, or a folder whose sub-folders are repeats of one run. A single RUN is "
        "what vanidl ab left.",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write one HTML page")
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")
    parser.add_argument(
        "--label", action="append", default=[], metavar="NAME", help="name of a side, in order"
    )
    parser.add_argument(
        "--fail-on",
        choices=(WORSE,),
        help="exit status 3 where the first metric of a side is worse, for tests of training code",
    )
    add_read_arguments(parser)


def declare_record(parser: argparse.ArgumentParser) -> None:
    """Where the RUN goes, which tracer, and the command."""
    add = parser.add_argument
    add("-o", "--output", metavar="RUN", help="folder to make (default: vanidl-DATE-TIME)")
    add(
        "--tracer",
        choices=TRACERS,
        default="auto",
        help="auto: vanidl's own; Darshan if it is not here",
    )
    add("--no-steps", action="store_true", help="do not record steps and input waits")
    add(
        "--wait", metavar="MODULE:NAME", action="append", default=[],
        help="also an iterator, or a function that gives batches (queue:Queue.get)",
    )  # fmt: skip
    add("--train", metavar="MODULE:NAME", action="append", default=[], help="each call is a step")
    add(
        "--profile", metavar="STEPS", type=int, nargs="?", const=PROFILED_STEPS,
        help="switch PyTorch's profiler on for so many steps after a warm-up (default: "
        f"{PROFILED_STEPS}), and for half as many later in a long run",
    )  # fmt: skip
    add("--darshan-lib", metavar="PATH", help="Darshan's libdarshan.so")
    add(
        "--keep-free", metavar="SIZE", default="256MiB",
        help="stop recording, not the command, where the disk of RUN has less free (256MiB)",
    )  # fmt: skip
    add(
        "--in-place", action="store_true",
        help="write into RUN while the command runs also where RUN is on a FUSE file system, which "
        "could hang the command; else it is moved there in the end",
    )  # fmt: skip
    add(
        "--events", metavar="N", type=int,
        help="calls of each process that are recorded one by one, totals by file go on beyond them "
        "(vanidl's own tracer; default: 2,000,000)",
    )  # fmt: skip
    add(
        "--calls-on", metavar="DIR",
        help="have vanidl's own tracer write into DIR, on this node's own storage, while the "
        "command runs, and move that to RUN in the end; processes of other nodes write to RUN",
    )  # fmt: skip
    add(
        "--watch", action="store_true", help="a line on stderr every 10 s: what was recorded so far"
    )
    add("--openmetrics", metavar="FILE", help="also write metrics there, see vanidl watch")
    add("command_line", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="what to run")


def declare_watch(parser: argparse.ArgumentParser) -> None:
    """RUN, how often to say something, and where to write metrics."""
    add = parser.add_argument
    add("run", metavar="RUN", help="folder that vanidl record -o RUN writes, now or soon")
    add(
        "--every", type=float, metavar="SECONDS",
        help=f"time between lines ({LOOK_S:g} on a terminal, else {LINE_S:g}); another state is "
        "shown at once",
    )  # fmt: skip
    add("--openmetrics", metavar="FILE", help="also write metrics there, replaced at each look")
    add("--plain", action="store_true", help="one line each time, on a terminal too")
    add("--quiet", action="store_true", help="say nothing: metrics alone")
    add(
        "--alert", metavar="CMD",
        help="run it in a shell once the run stalls, or is dead; VANIDL_RUN, VANIDL_STATE and "
        "VANIDL_SAYS are in its environment",
    )  # fmt: skip


def declare_ab(parser: argparse.ArgumentParser) -> None:
    """Both commands, how often and how to run them, and where the page goes."""
    add = parser.add_argument
    place = f"{PLACEHOLDER} in it, and VANIDL_RUN in its environment, are the folder of the run"
    add("--a", required=True, metavar="CMD", help=f"the command as it was; {place}")
    add("--b", required=True, metavar="CMD", help="the command with the change")
    add("--repeat", type=int, default=5, metavar="N", help="pairs that count (default 5)")
    add("--drop-caches", action="store_true", help="empty the page cache before every run (root)")
    add("--tracer", choices=TRACERS, default="auto", help="as of vanidl record")
    beside = "beside each pair also --a with batches from memory: what input costs both"
    add("--ceiling", action="store_true", help=beside)
    add_replay_arguments(parser)
    add("--darshan-lib", metavar="PATH", help="Darshan's libdarshan.so")
    add("--runs", metavar="DIR", help="new folder for the runs (default vanidl-ab-DATE-TIME)")
    add("-o", "--output", metavar="FILE", help="write one HTML page")
    add("--label", action="append", default=[], metavar="NAME", help="name of a side, in order")
    add_read_arguments(parser)


def declare_ceiling(parser: argparse.ArgumentParser) -> None:
    """What to compare with, how batches are kept, and the command."""
    add = parser.add_argument
    add("-o", "--output", metavar="RUN", help="folder to make for the run as it trains (default: "
        "vanidl-DATE-TIME); that with batches from memory goes to RUN-ceiling")  # fmt: skip
    add("--against", metavar="RUN", help="a recorded run of this command: it is not run again")
    add_replay_arguments(parser)
    add(
        "--wait", metavar="MODULE:NAME", action="append", default=[],
        help="also an iterator, or a function that gives batches (queue:Queue.get)",
    )  # fmt: skip
    add("--tracer", choices=TRACERS, default="auto", help="of the run as it trains")
    add("--darshan-lib", metavar="PATH", help="Darshan's libdarshan.so")
    where = f"what to run; {PLACEHOLDER} in it, and VANIDL_RUN, are the folder of the run"
    add("command_line", nargs=argparse.REMAINDER, metavar="-- COMMAND", help=where)


def add_replay_arguments(parser: argparse.ArgumentParser) -> None:
    """How batches are kept and handed out."""
    add = parser.add_argument
    add("--warm-up", type=int, default=WARM_UP, metavar="N",
        help="batches of each loader that are real, and kept")  # fmt: skip
    add("--memory", default="1GiB", metavar="SIZE", help="of each process, for kept batches")
    add("--epoch-batches", type=int, metavar="N",
        help="batches of a pass over a loader that does not know its length")  # fmt: skip


def declare_check(parser: argparse.ArgumentParser) -> None:
    """The paths, --json and --all."""
    parser.add_argument("paths", metavar="PATH", nargs="+", help="a log, or a folder of logs")
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")
    parser.add_argument(
        "--all", action="store_true", help="every file, not the first hundred of each state"
    )
    _add_limit(parser)


def declare_export(parser: argparse.ArgumentParser) -> None:
    """RUN, what to look at, the format and where it goes."""
    add_run_arguments(parser, window_end=("--until",))  # here --to is the format
    what = "; ".join(f"{name}: {form.holds}" for name, form in FORMATS.items())
    parser.add_argument("--to", required=True, choices=tuple(FORMATS), help=what)
    parser.add_argument(
        "-o", "--output", required=True, metavar="PATH", help="the file or new folder to write"
    )


def declare_demo(parser: argparse.ArgumentParser) -> None:
    """Where the page goes."""
    parser.add_argument("-o", "--output", default="report.html", metavar="FILE")


def declare_completion(parser: argparse.ArgumentParser) -> None:
    """Which shell."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")


def declare_schema(parser: argparse.ArgumentParser) -> None:
    """Which output; all where none is named."""
    parser.add_argument(
        "name",
        nargs="?",
        choices=SCHEMAS,
        metavar="NAME",
        help=f"one of {', '.join(SCHEMAS)}; without it all of them, under $defs",
    )


def declare_mcp(parser: argparse.ArgumentParser) -> None:
    """The folders that may be read."""
    parser.add_argument(
        "roots",
        metavar="ROOT",
        nargs="+",
        help="a folder with runs below it; nothing outside of it is read",
    )


def declare_survey(parser: argparse.ArgumentParser) -> None:
    """FOLDER, where the results go, and where work runs."""
    parser.add_argument(
        "folder", metavar="FOLDER", help="Darshan logs and results of DLIO, up to ten levels below"
    )
    parser.add_argument(
        "-o",
        "--output",
        default="survey",
        metavar="OUT",
        help="folder of jobs.parquet and fleet.html (default survey); what it holds is kept",
    )
    parser.add_argument(
        "--reports",
        type=int,
        default=0,
        metavar="N",
        help="also write the reports of the N jobs with most time in I/O, linked from the page",
    )
    _add_limit(parser)
    usual = Limits()
    parser.add_argument(
        "--job-seconds",
        type=float,
        default=usual.seconds,
        metavar="S",
        help=f"time for each job (default {usual.seconds:.0f})",
    )
    parser.add_argument(
        "--job-memory",
        type=float,
        default=usual.nbytes / _GIB,
        metavar="GIB",
        help=f"memory for each job in GiB (default {usual.nbytes / _GIB:.0f})",
    )
    parser.add_argument(
        "--anonymize",
        dest="names",
        action=_Anonymize,
        help="replace users, commands, job ids and paths by numbers; times stay, and nothing to "
        "resume from is kept",
    )
    add_executor_arguments(parser)


class _Anonymize(argparse.Action):
    """`names` becomes the pseudonyms of all that the command reads."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        _values: object,
        _option: str | None = None,
    ) -> None:
        from vanidl.anonymize.pseudonyms import Pseudonyms

        setattr(namespace, self.dest, Pseudonyms())


def add_run_arguments(
    parser: argparse.ArgumentParser, *, window_end: Sequence[str] = ("--to", "--until")
) -> None:
    """Declares RUN and the options that choose what to read and what to look at.

    `window_end` are the names of the option that ends the time window.
    """
    parser.add_argument(
        "run", metavar="RUN", help="a Darshan log, or a folder of logs and profiler output"
    )
    add_read_arguments(parser, window_end=window_end)


def add_read_arguments(
    parser: argparse.ArgumentParser, *, window_end: Sequence[str] = ("--to", "--until")
) -> None:
    """Declares the options that choose what to read of a run and what to look at."""
    add = parser.add_argument_group("what to look at").add_argument
    add(
        "--layer",
        default="",
        help="layer of the I/O: POSIX (default), MPI-IO, or OBJECT, requests to object storage "
        "(default where they alone were recorded)",
    )
    add("--only", metavar="KIND", help="only files of one kind, for example dataset")
    add("--include", action="append", default=[], metavar="GLOB", help="only paths that match")
    add("--exclude", action="append", default=[], metavar="GLOB", help="no paths that match")
    add("--from", dest="from_s", type=float, metavar="T", help="from T seconds into the job")
    add(*window_end, dest="to_s", type=float, metavar="T", help="up to T seconds into the job")
    _add_inputs(parser)
    add_executor_arguments(parser)


def _add_limit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-memory", metavar="SIZE", help="what reading one file may take, where that is more "
        "than its size allows (48 MiB and 32 times its size)",
    )  # fmt: skip


def _add_inputs(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("what to read, and how").add_argument
    add(
        "--job", action="append", default=[], metavar="ID",
        help="this job of several, by its id or, as @2, its number in the table that is shown",
    )  # fmt: skip
    add(
        "--steps",
        action="append",
        default=[],
        metavar="PATH[:TAG]",
        help="more profiler output, or event files (TAG: which scalar marks steps)",
    )
    add("--kind", action="append", default=[], metavar="GLOB=KIND", help="kind of such files")
    add("--wait-name", action="append", default=[], metavar="REGEX", help="spans that are waits")
    add("--clock-offset", type=float, metavar="SECONDS", help="added to every profiler time")
    add("--data", action="append", default=[], metavar="PATH", help="local path of the dataset")
    add("--inspect", action="store_true", help="open the dataset files, for records and chunks")
    add("--record-size", type=int, metavar="BYTES", help="bytes of one sample")
    add("--samples-per-step", type=int, metavar="N", help="samples of one rank in one step")
    _add_limit(parser)
    add(
        "--anonymize",
        dest="names",
        action=_Anonymize,
        help="replace paths, hosts, users and commands by numbers, the same in all output",
    )


def add_executor_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options that choose where work runs: a Dask cluster."""
    who = parser.add_argument_group("where work runs").add_mutually_exclusive_group()
    who.add_argument(
        "--dask", metavar="ADDRESS", help="work on this Dask scheduler, for example tls://HOST:8786"
    )
    who.add_argument(
        "--workers", type=_positive, metavar="N", help="work on a Dask cluster of N processes here"
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


ARGUMENTS: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "summary": declare_summary,
    "report": declare_report,
    "view": declare_view,
    "compare": declare_compare,
    "record": declare_record,
    "watch": declare_watch,
    "ab": declare_ab,
    "ceiling": declare_ceiling,
    "check": declare_check,
    "export": declare_export,
    "demo": declare_demo,
    "completion": declare_completion,
    "schema": declare_schema,
    "mcp": declare_mcp,
    "survey": declare_survey,
}
"""By the name of the command: what declares its options."""


# The parser: commands in groups, examples, defaults, and guesses at typos.

_QUIET_DEFAULTS: tuple[object, ...] = (None, False, True, "", argparse.SUPPRESS)


@cache
def parser() -> argparse.ArgumentParser:
    """Of `vanidl`, made once; a command declares its options when it is first chosen."""
    top = _Parser(
        prog="vanidl",
        usage="vanidl [-h] [--version] COMMAND ...",
        description="Where does training time go to I/O, is it hidden behind compute, and did "
        "the change help?",
        formatter_class=_Help,
    )
    version = getattr(vanidl, "__version__", "of unknown version")
    top.add_argument("--version", action="version", version=f"vanidl {version}")
    commands = top.add_subparsers(
        title="commands", metavar="COMMAND", required=True, help=argparse.SUPPRESS,
        parser_class=_CommandParser, prog="vanidl",
    )  # fmt: skip
    for name, text in COMMANDS.items():
        added = commands.add_parser(name, description=text, formatter_class=_Help)
        added.set_defaults(command=name)
    return top


def command_parser(name: str) -> argparse.ArgumentParser:
    """Of one command alone, with its options."""
    own = argparse.ArgumentParser(prog=f"vanidl {name}")
    ARGUMENTS[name](own)
    return own


def _overview() -> str:
    """Commands by what they are for, each in a line."""
    grouped = [name for names in GROUPS.values() for name in names]
    groups = {**GROUPS, "more": tuple(name for name in COMMANDS if name not in grouped)}
    lines: list[str] = []
    for title, names in groups.items():
        known = [name for name in names if name in COMMANDS]
        if known:
            lines += [f"{title}:", *map(_entry, known), ""]
    shown = [line for name in ("record", "summary") for line in EXAMPLES[name]]
    return "\n".join([*lines, *_listed(shown)])


def _entry(name: str) -> str:
    """A command and what it does, in the columns of a terminal."""
    room = max(map(len, COMMANDS)) + 4
    head = f"  {name}".ljust(room)
    return textwrap.fill(COMMANDS[name], 80, initial_indent=head, subsequent_indent=" " * room)


def _listed(lines: Iterable[str]) -> list[str]:
    return ["examples:", *(f"  {line}" for line in lines)]


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help with defaults, where these say more than "off"."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text = action.help
        quiet = action.default in _QUIET_DEFAULTS or action.default == []
        if not action.option_strings or quiet or action.nargs == 0 or "default" in (text or ""):
            return text
        return f"{text} (default: %(default)s)" if text else "default: %(default)s"


class _Parser(argparse.ArgumentParser):
    """A parser that guesses what a word that it does not know was meant to be."""

    def format_help(self) -> str:
        """As of `ArgumentParser`; what stands below the options is made for help alone."""
        self.epilog = _overview()
        return super().format_help()

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401
        """As of `ArgumentParser`; exits with status 2 on words that nothing knows."""
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            known = [o for a in command_parser(options.command)._actions for o in a.option_strings]
            self.error(f"unrecognized arguments: {' '.join(unknown)}{_guess(unknown[0], known)}")
        return options

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            what = "no command" if action.metavar == "COMMAND" else "no such value:"
            raise argparse.ArgumentError(
                None if action.metavar == "COMMAND" else action,
                f"{what} {str(value)!r}{_guess(str(value), known) or _choices(known)}",
            )


class _CommandParser(_Parser):
    """The parser of one command, which declares its options once the command is chosen."""

    declared = False

    def format_help(self) -> str:
        """As of `ArgumentParser`, with the examples of the command."""
        lines = EXAMPLES.get(self.get_default("command"))
        self.epilog = "\n".join(_listed(lines)) if lines else None
        return argparse.ArgumentParser.format_help(self)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401
        """As of `ArgumentParser`."""
        if not self.declared:
            ARGUMENTS[self.get_default("command")](self)
            self.declared = True
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """One line, and where help is."""
        self.exit(2, f"{self.prog}: error: {message}\nSee {self.prog} --help\n")


def _guess(word: str, known: Sequence[str]) -> str:
    """`; did you mean summary?`, or nothing where no known word is like it."""
    close = difflib.get_close_matches(word.partition("=")[0], known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


def _choices(known: Sequence[str]) -> str:
    return f"; choose from {', '.join(known)}"


# Amounts of data, as options name them.

_SIZE = re.compile(r"(\d{1,15})\s*([KMGT](?:i?B)?|B)?", re.IGNORECASE)
# Binary, however they are written.
_UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def size_of(text: str, option: str) -> int:
    """Bytes of `512MiB` or `2G`.

    Raises:
        UsageError: it is written otherwise.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{option} {text}: expected a size such as 512MiB or 2GiB.")
    return int(found[1]) * _UNITS[(found[2] or "")[:1].upper()]
