"""Where no file of kind dataset was read, what was read most is looked at, and it is said."""

from __future__ import annotations

from tests.makers.records import Io, darshan_log
from vanidl.analyses.results import analyse
from vanidl.merge.jobs import Group
from vanidl.merge.pipeline import assemble
from vanidl.model.trace import WRITE
from vanidl.report.html import render_html
from vanidl.run import Run

MIB = 1 << 20
EACH_NS = 50_000_000


def run_of(path: str) -> Run:
    """100 reads of 1 MiB of one file, half of the run, after one write of 4 KiB."""
    rows = [Io(0, EACH_NS, 0, 4096, op=WRITE)]
    rows += [Io(i * EACH_NS, (i + 1) * EACH_NS, i * MIB, MIB) for i in range(1, 101)]
    trace = assemble(Group((darshan_log(rows, names={1: path}),), ()), {})
    return Run(trace, analyse(trace))


def test_files_that_were_written_and_read_stand_for_the_dataset():
    run = run_of("/scratch/cache.dat")
    assert run.dataset is not None
    assert run.dataset.bytes_read == 100 * MIB
    page = render_html(run)
    assert "No file of kind dataset was read" not in page
    assert "files of kind other, the most that was read" in page
    assert run.phases is not None
    assert sum(stage.bytes_read or 0 for stage in run.phases.stages) == 100 * MIB


def test_a_restored_checkpoint_alone_is_looked_at():
    rows = [Io(i * EACH_NS, (i + 1) * EACH_NS, i * MIB, MIB) for i in range(100)]
    names = {1: "/out/model_500.ckpt"}
    trace = assemble(Group((darshan_log(rows, names=names),), ()), {})
    results = analyse(trace)
    assert [group.name for group in results.files.by_kind] == ["checkpoint"]
    assert results.dataset is not None
