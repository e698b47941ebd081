"""Results of DLIO, the engine of MLPerf Storage: what each rank measured of its steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vanidl.readers.format import FileKind, Files, Format, Reading, Records, check_by_reading

# The kinds of files of a result of DLIO.

OUTPUT, TIMES = "dlio_output", "dlio_times"


def _read(files: Files, reading: Reading) -> Records:
    from vanidl.readers.dlio import reading as results  # where there are such files: it takes time

    return results.read_results(files, reading)


def _read_losses_of_output(path: Path) -> Sequence[str]:
    from vanidl.readers.dlio.results import read_output

    return read_output(path).losses


def _read_losses_of_times(path: Path) -> Sequence[str]:
    from vanidl.readers.dlio.results import read_times

    return read_times(path).losses


FORMAT = Format(
    name="dlio",
    title="DLIO results",
    patterns=("N_output.json", "per_epoch_stats.json"),
    kinds=(
        FileKind(OUTPUT, "steps of a rank of DLIO", pattern=r"\d{1,9}_output\.json"),
        FileKind(TIMES, "times of DLIO's epochs", pattern=r"(\d{1,9}_)?per_epoch_stats\.json"),
    ),
    read=_read,
    check=check_by_reading({OUTPUT: _read_losses_of_output, TIMES: _read_losses_of_times}),
    outputs=r"/(\d+_)?(output|per_epoch_stats)\.json$|/dlio\.log$",
)
