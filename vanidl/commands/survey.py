"""`vanidl survey FOLDER -o OUT`: one row a job, and a page of all jobs."""

from __future__ import annotations

import argparse
import sys

from vanidl.anonymize.pseudonyms import Pseudonyms
from vanidl.commands.inputs import add_executor_arguments, executor_options_from, progress_line
from vanidl.errors import UsageError
from vanidl.formatting.units import count, plural
from vanidl.parallel.limits import Limits
from vanidl.survey import survey
from vanidl.survey.survey import LIMITS

_GIB = 1 << 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
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
    _add_limits(parser)
    parser.add_argument(
        "--anonymize",
        dest="names",
        action="store_const",
        const=Pseudonyms(),
        help="replace users, commands and paths by numbers; job ids and times stay, and nothing to "
        "resume from is kept",
    )
    add_executor_arguments(parser)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--job-seconds",
        type=float,
        default=LIMITS.seconds,
        metavar="S",
        help=f"time for each job (default {LIMITS.seconds:.0f})",
    )
    parser.add_argument(
        "--job-memory",
        type=float,
        default=LIMITS.nbytes / _GIB,
        metavar="GIB",
        help=f"memory for each job in GiB (default {LIMITS.nbytes / _GIB:.0f})",
    )


def _limits(options: argparse.Namespace) -> Limits:
    if not (0 < options.job_seconds < 1e6 and 0 < options.job_memory < 1e6):
        raise UsageError("--job-seconds and --job-memory: expected numbers above 0.")
    return Limits(options.job_seconds, int(options.job_memory * _GIB))


def run(options: argparse.Namespace) -> int:
    """Writes both files and says how many jobs there are; exit status 0."""
    with progress_line() as progress:
        done = survey(
            options.folder,
            options.output,
            executor_options=executor_options_from(options),
            progress=progress,
            limits=_limits(options),
            names=options.names,
            reports=max(options.reports, 0),
        )
    jobs, unread = len(done.table), done.unread
    said = [plural(jobs, "job")]
    said += [f"{count(done.kept)} done before"] if done.kept else []
    said += [f"{count(unread)} could not be read (column problem)"] if unread else []
    if options.reports > 0:
        said.append(_reports(len(done.reports), min(options.reports, jobs - unread)))
    sys.stdout.write(f"{', '.join(said)}\n{done.parquet}\n{done.page}\n")
    return 0


def _reports(written: int, wanted: int) -> str:
    lost = f" of {count(wanted)}: the others took too long" if written < wanted else ""
    return f"{plural(written, 'report')}{lost}"
