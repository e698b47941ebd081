"""The hooks alone: they break no program, and hide nothing that the site had put in their place."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from vanidl.readers.format import Reading
from vanidl.readers.steps import FORMAT
from vanidl.readers.steps.journal import WAIT, read_journal
from vanidl.record import record
from vanidl.record.injected.vanidl_steps import journal, pytorch

DONE = 3


def watched(folder: Path, **members: object) -> tuple[type, journal.Journal]:
    """A loader of three batches under the hooks, its iterator with these members."""

    def __next__(self: object) -> int:
        taken.append(len(taken))
        if len(taken) > DONE:
            raise StopIteration
        return taken[-1]

    taken: list[int] = []
    iterator = type("Iterator", (), {"__next__": __next__, "__iter__": lambda self: self} | members)
    loader = type("Loader", (), {"__iter__": lambda self: iterator()})
    events = journal.Journal(str(folder))
    pytorch.watch_loaders(SimpleNamespace(DataLoader=loader, _BaseDataLoaderIter=iterator), events)
    return loader, events


def test_a_failing_hook_says_so_once_and_the_program_goes_on(tmp_path: Path) -> None:
    loader, events = watched(tmp_path, __slots__=())  # nothing can be kept in this iterator
    assert list(loader()) == list(range(DONE))
    assert not events.on
    (failure,) = tmp_path.iterdir()
    kind = next(kind.name for kind in FORMAT.kinds if failure.name.endswith(kind.suffixes))
    (notice,) = FORMAT.read({kind: (failure,)}, Reading(lambda *_: None)).notices
    assert notice.code == "steps_incomplete"
    assert "AttributeError" in notice.message


def test_a_full_disk_ends_the_recording_and_not_the_program(tmp_path: Path) -> None:
    loader, events = watched(tmp_path / "gone")  # a folder that cannot be written to
    assert list(loader()) == list(range(DONE))
    events._last()  # as at the end of the process
    assert not events.on


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # it has threads
def test_a_forked_child_writes_a_file_of_its_own(tmp_path: Path) -> None:
    loader, events = watched(tmp_path)
    batches = iter(loader())
    next(batches)
    child = os.fork()
    if not child:
        next(batches)
        events.flush()
        os._exit(0)
    os.waitpid(child, 0)
    events.flush()
    events.on = False
    found = [read_journal(path) for path in tmp_path.iterdir()]
    waits = {j.process["pid"]: int((j.events.kind == WAIT).sum()) for j in found}
    assert waits == {os.getpid(): 1, child: 1}
    assert all(set(j.events.loader.tolist()) <= set(j.loaders) for j in found)


def test_the_sites_own_sitecustomize_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; print('own', __name__); OWN = 1")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    show = "import sys, sitecustomize; print(sitecustomize.OWN, 'injected' in str(sys.path))"
    done = record([sys.executable, "-c", show], tmp_path / "RUN", tracer="none")
    assert done.exit_status == 0
    assert capfd.readouterr().out.split() == ["own", "sitecustomize", "1", "False"]
