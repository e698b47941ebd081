"""`vanidl survey FOLDER -o OUT`: one row a job, and a page of all jobs."""

from __future__ import annotations

import argparse
import sys

from vanidl.commands.inputs import executor_options_from, progress_line
from vanidl.errors import UsageError
from vanidl.formatting.units import count, plural
from vanidl.parallel.limits import Limits
from vanidl.survey import survey

_GIB = 1 << 30
_PLAIN = (
    "vanidl: the table is CSV, and the next survey reads all jobs again: pyarrow is not installed: "
    "pip install 'vanidl-io[parquet]'\n"
)


def run(options: argparse.Namespace) -> int:
    """Writes both files, says how many jobs there are; exit status 1 where none could be read.

    Raises:
        UsageError: a limit is no number above 0.
    """
    if not (0 < options.job_seconds < 1e6 and 0 < options.job_memory < 1e6):
        raise UsageError("--job-seconds and --job-memory: expected numbers above 0.")
    limits = Limits(options.job_seconds, int(options.job_memory * _GIB))
    with progress_line() as progress:
        done = survey(
            options.folder,
            options.output,
            executor_options=executor_options_from(options),
            progress=progress,
            limits=limits,
            names=options.names,
            reports=max(options.reports, 0),
        )

    # What was done, and what was left undone.
    jobs, unread = done.jobs, done.unread
    said = [plural(jobs, "job")]
    said += [f"{count(done.kept)} done before"] if done.kept else []
    said += [f"{count(unread)} could not be read (column problem)"] if unread else []
    if options.reports > 0:
        written, wanted = len(done.reports), min(options.reports, jobs - unread)
        lost = f" of {count(wanted)}: the others took too long" if written < wanted else ""
        said.append(f"{plural(written, 'report')}{lost}")
    sys.stdout.write(f"{', '.join(said)}\n{done.file}\n{done.page}\n")
    if done.file.suffix == ".csv":
        sys.stderr.write(_PLAIN)
    return int(unread == jobs)
