"""Results of DLIO, the engine of MLPerf Storage: what each rank measured of its steps."""

from __future__ import annotations

from vanidl.readers.dlio.output import read_output
from vanidl.readers.dlio.run import OUTPUT, TIMES, read
from vanidl.readers.dlio.times import read_times
from vanidl.readers.format import FileKind, Format, check_by_reading

FORMAT = Format(
    name="dlio",
    title="DLIO results",
    patterns=("N_output.json", "per_epoch_stats.json"),
    kinds=(
        FileKind(OUTPUT, "steps of a rank of DLIO", pattern=r"\d{1,9}_output\.json"),
        FileKind(TIMES, "times of DLIO's epochs", pattern=r"(\d{1,9}_)?per_epoch_stats\.json"),
    ),
    read=read,
    check=check_by_reading(
        {
            OUTPUT: lambda path: read_output(path).losses,
            TIMES: lambda path: read_times(path).losses,
        }
    ),
    outputs=r"/(\d+_)?(output|per_epoch_stats)\.json$|/dlio\.log$",
)
