"""The hooks alone: they break no program, and hide nothing that the site had put in their place."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from threading import Barrier, Thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vanidl.model.trace import ITERABLE, MAP
from vanidl.readers.format import Reading
from vanidl.readers.steps import FORMAT
from vanidl.readers.steps.journal import (
    BACKWARD,
    COLLECTIVE,
    END,
    ITER,
    OPTIMIZER,
    WAIT,
    WORKERS_STOP,
    read_journal,
)
from vanidl.readers.steps.loop import build_profile
from vanidl.record import alive, record
from vanidl.record.injected.vanidl_steps import journal, parts, pytorch, registry, tensorflow
from vanidl.record.injected.vanidl_steps.waits import Waits

DONE = 3
HOOKED = ("pytorch", "waits")


def watched(folder: Path, **members: object) -> tuple[type, registry.Channel]:
    """A loader of three batches under the registry, its iterator with these members."""

    def __next__(self: object) -> int:
        taken.append(len(taken))
        if len(taken) > DONE:
            raise StopIteration
        return taken[-1]

    taken: list[int] = []
    iterator = type("Iterator", (), {"__next__": __next__, "__iter__": lambda self: self} | members)
    loader = type("Loader", (), {"__iter__": lambda self: iterator()})
    channel = registry.Channel("pytorch", journal.Journal(str(folder)))
    module = SimpleNamespace(DataLoader=loader, _BaseDataLoaderIter=iterator)
    pytorch.watch_loaders(module, channel)
    return loader, channel


def failures(folder: Path) -> list[str]:
    """What the reader says of each note of a failure."""
    paths = tuple(folder.glob("*.steps-error"))
    kinds = {k.name for k in FORMAT.kinds if paths and paths[0].name.endswith(k.suffixes)}
    notices = FORMAT.read(dict.fromkeys(kinds, paths), Reading(lambda *_: None)).notices
    assert {notice.code for notice in notices} <= {"steps_incomplete"}
    return [notice.message for notice in notices]


def test_a_failing_hook_says_so_once_and_the_program_goes_on(tmp_path: Path) -> None:
    loader, channel = watched(tmp_path, __slots__=())  # nothing can be kept in this iterator
    assert list(loader()) == list(range(DONE))
    assert not channel.on
    (message,) = failures(tmp_path)
    assert "pytorch: AttributeError" in message


@pytest.mark.parametrize(("kind", "read"), [(0, MAP), (1, ITERABLE), (None, ""), (7, "")])
def test_what_kind_of_dataset_trains_is_recorded(kind, read, tmp_path: Path) -> None:
    """PyTorch's own numbers: samples by index, or a stream of them."""
    loader, channel = watched(tmp_path, _dataset_kind=kind)
    list(loader())
    channel.journal.close()
    (path,) = tmp_path.glob("*.steps")
    assert build_profile(read_journal(path)).dataset_kind == read


def test_a_stream_that_keras_makes_of_its_data_is_none_of_the_programs(tmp_path: Path) -> None:
    made_by_keras = type("ConverterIterableDataset", (), {})()
    loader, channel = watched(tmp_path, _dataset_kind=1, _dataset=made_by_keras)
    list(loader())
    channel.journal.close()
    (path,) = tmp_path.glob("*.steps")
    assert build_profile(read_journal(path)).dataset_kind == ""


def test_others_see_each_wait_while_it_lasts_and_that_it_ended(tmp_path: Path) -> None:
    """The first says more of itself than those after it, which are like it."""
    seen: list[tuple[journal.Doing, tuple[object, ...]]] = []

    def look() -> tuple[object, ...]:
        pid, descriptor = os.getpid(), opened.publish()
        try:
            return alive._read_present(pid, descriptor)
        finally:
            os.close(descriptor)

    class Batches:
        def __next__(self) -> None:
            begun = time.monotonic_ns()
            seen.append((opened.doing, look()))
            assert abs(begun - opened.doing[1]) < 60e9

    channel = registry.Channel("pytorch", journal.Journal(str(tmp_path)))
    opened = channel.journal.present
    waits = Waits(channel, lambda *_: {})
    waits.watch_steps(Batches)
    batches = Batches()
    for _ in range(3):
        before = time.monotonic_ns()
        next(batches)
        doing, last = look()
        assert doing == alive.Call(0, 0)
        assert isinstance(last, alive.Call)
        assert last.code & 0xFF == WAIT
        assert last.at_ns >= before - 1e6
    assert [code & 0xFF for (code, _), _ in seen] == [WAIT] * 3
    assert all(doing == alive.Call(*own) for own, (doing, _) in seen)

    # One within another goes on again where that has ended, and what happens beside them is last.
    outer = opened.begin(journal.SAVE)
    inner = opened.begin(journal.OTHER_STEP)
    opened.end(inner)
    assert opened.doing[0] == journal.SAVE
    opened.end(outer)
    opened.happened(journal.OPTIMIZER)
    doing, last = look()
    assert (doing, last.code) == (alive.Call(0, 0), journal.OPTIMIZER)
    assert channel.on


def test_each_thread_has_events_of_its_own(tmp_path: Path) -> None:
    """Also where both are at work at once: whoever asks, optimizes and passes back is one."""
    passes: list[object] = []

    def backward(
        tensors, grad_tensors=None, retain_graph=None, create_graph=False, grad_variables=None,
        inputs=None,
    ):  # fmt: skip
        passes.append((tensors, inputs))

    class Batches:
        left = DONE

        def __next__(self) -> int:
            self.left -= 1
            if self.left < 0:
                raise StopIteration
            return self.left

        def __iter__(self) -> Batches:
            return self

    loader = type("Loader", (), {"__iter__": lambda self: Batches()})
    channel = registry.Channel("pytorch", journal.Journal(str(tmp_path)))
    module = SimpleNamespace(DataLoader=loader, _BaseDataLoaderIter=Batches)
    pytorch.watch_loaders(module, channel)
    before, after = list[Any](), list[Any]()
    optimizers = SimpleNamespace(
        register_optimizer_step_pre_hook=before.append,
        register_optimizer_step_post_hook=after.append,
    )
    pytorch.watch_optimizers(optimizers, channel)  # type: ignore[arg-type]
    gradients = SimpleNamespace(backward=backward, grad=backward)
    parts.watch_backward(gradients, channel)
    loss, inputs = SimpleNamespace(is_cpu=True), object()

    both = Barrier(2, timeout=60)

    def train_beside() -> None:
        both.wait()
        train()
        both.wait()  # the number of a thread that has ended comes again

    def train() -> None:
        for _ in loader():
            gradients.backward(loss, inputs=inputs)  # as PyTorch does
            gradients.backward([loss])
            gradients.grad(tensors=loss)
            for hook in (*before, *after):
                hook(None, (), {})

    threads = [Thread(target=train_beside) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    train()
    channel.journal.close()
    assert channel.on
    assert passes[:3] == [(loss, inputs), ([loss], None), (loss, None)]
    (path,) = tmp_path.glob("*.steps")
    events = read_journal(path).events
    for kind, each in ((WAIT, 1), (OPTIMIZER, 1), (BACKWARD, 3)):
        of_kind = events.thread[events.kind == kind]
        assert np.unique(of_kind, return_counts=True)[1].tolist() == [DONE * each] * 3


def test_a_hook_that_cannot_be_set_leaves_the_others(tmp_path: Path) -> None:
    theirs = tmp_path / "program"
    theirs.mkdir()
    for name in ("theirs_a", "theirs_b"):
        (theirs / f"{name}.py").write_text("DataLoader = _BaseDataLoaderIter = object()\n")
    script = f"""
import sys
sys.path.insert(0, {str(theirs)!r})
from vanidl.record.injected.vanidl_steps import journal, registry
seen = []
both = (("theirs_a", "pytorch.watch_loaders"), ("theirs_a", "waits.not_there"),
        ("theirs_b", "pytorch.watch_optimizers"))
registry.install(journal.Journal({str(tmp_path)!r}), both)
import theirs_a, theirs_b
print(theirs_a.__name__, theirs_b.__name__)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("theirs_a theirs_b\n", "")
    messages = failures(tmp_path)
    assert [sum(f"({hook}: AttributeError" in m for m in messages) for hook in HOOKED] == [1, 1]


def test_every_hook_is_there() -> None:
    for _, ours in registry.HOOKS:
        module, _, function = ours.partition(".")
        assert callable(getattr(import_module(f"{registry.__package__}.{module}"), function))


def test_a_full_disk_ends_the_recording_and_not_the_program(tmp_path: Path) -> None:
    loader, channel = watched(tmp_path / "gone")  # a folder that cannot be written to
    assert list(loader()) == list(range(DONE))
    channel.journal._last()  # as at the end of the process
    assert list(loader()) == []
    channel.journal.flush()  # it is over: nothing is written, nothing fails


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # it has threads
def test_a_forked_child_writes_a_file_of_its_own(tmp_path: Path) -> None:
    loader, channel = watched(tmp_path)
    batches = iter(loader())
    next(batches)
    child = os.fork()
    if not child:
        next(batches)
        channel.journal.flush()
        os._exit(0)
    os.waitpid(child, 0)
    channel.journal.close()
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


def test_a_venvs_own_sitecustomize_and_usercustomize_both_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In their order, each once; usercustomize lies in the user's site, which a venv may see."""
    made = tmp_path / "venv"
    venv.create(made, system_site_packages=True, symlinks=True)
    (site,) = made.glob("lib/python*/site-packages")
    monkeypatch.setenv("PYTHONUSERBASE", str(tmp_path / "user"))
    users = tmp_path / "user" / site.relative_to(made)
    users.mkdir(parents=True)
    for name, folder in (("sitecustomize", site), ("usercustomize", users)):
        (folder / f"{name}.py").write_text("print(__name__)")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.delenv("PYTHONNOUSERSITE", raising=False)
    seen = "print(sorted({'sitecustomize', 'usercustomize', 'vanidl_steps'} & sys.modules.keys()))"
    command = [str(made / "bin" / "python"), "-c", f"import sys; {seen}"]
    found = []
    for prefix in (None, tmp_path / "RUN"):
        if prefix is None:
            subprocess.run(command, check=True)
        else:
            assert record(command, prefix, tracer="none").exit_status == 0
        found.append(capfd.readouterr().out.splitlines())
    own = ["sitecustomize", "usercustomize"]
    assert found == [[*own, str(own)], [*own, str([*own, "vanidl_steps"])]]


def test_collectives_that_return_once_every_rank_has_come_are_recorded(tmp_path: Path) -> None:
    """Not what they call themselves, nor those of a device, or that give something to wait for."""

    def all_gather(*_: object, later: object = None) -> object:
        return later

    def all_gather_object(*_: object) -> None:
        module.all_gather()

    def barrier() -> None:
        raise RuntimeError("a rank is gone")

    module = SimpleNamespace(
        all_gather=all_gather, all_gather_object=all_gather_object, barrier=barrier
    )
    channel = registry.Channel("parts", journal.Journal(str(tmp_path)))
    parts.watch_collectives(module, channel)
    module.all_gather()
    module.all_gather_object([], 1)
    module.all_gather(SimpleNamespace(is_cuda=True))
    work = SimpleNamespace(wait=None)
    assert module.all_gather(later=work) is work
    with pytest.raises(RuntimeError, match="gone"):
        module.barrier()
    assert channel.on
    channel.journal.close()
    (path,) = tmp_path.glob("*.steps")
    assert (read_journal(path).events.kind == COLLECTIVE).sum() == 2


def test_waits_for_a_loader_that_asks_ahead_are_whole(tmp_path: Path) -> None:
    """What accelerate does before, between and after its calls of PyTorch's loader."""
    loader, channel = watched(tmp_path)

    class Shard:
        def __iter__(self) -> Iterator[int]:
            time.sleep(0.002)
            batches = iter(loader())
            following = next(batches)
            while following is not None:
                batch, following = following, next(batches, None)
                time.sleep(0.002)
                yield batch

    pytorch.watch_accelerate(SimpleNamespace(DataLoaderShard=Shard), channel)
    channel.describe({})
    channel.journal.flush()  # what is written stays as it is
    truth, values, iterator = [], [], iter(Shard())
    while len(values) < DONE:
        begin = time.time_ns()
        values.append(next(iterator))
        truth.append((begin, time.time_ns()))
    assert list(iterator) == []
    assert values == [0, 1, 2]

    channel.journal.close()
    (path,) = tmp_path.glob("*.steps")
    events = read_journal(path).events
    assert events.kind.tolist() == [ITER, WAIT, WAIT, WAIT, END]
    assert events.begin[1:3].tolist() == events.end[:2].tolist()
    calls = ((0, 2), (3, 3), (4, 4))
    for (begin, end), (first, last) in zip(truth, calls, strict=True):
        assert begin <= events.begin[first] <= begin + 1_000_000
        assert end - 1_000_000 <= events.end[last] <= end


def test_taking_down_what_reads_for_tf_data_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Resource:
        def __del__(self) -> None:
            time.sleep(0.005)

    class OwnedIterator:
        def __init__(self, left: int) -> None:
            self.resource, self.left = Resource(), left

        def _next_internal(self) -> int:
            self.left -= 1
            if self.left < 0:
                raise StopIteration
            return self.left

    eagerly = SimpleNamespace(executing_eagerly=lambda: True)
    monkeypatch.setitem(sys.modules, "tensorflow.python.eager.context", eagerly)
    channel = registry.Channel("tensorflow", journal.Journal(str(tmp_path)))
    tensorflow.watch_iterators(SimpleNamespace(OwnedIterator=OwnedIterator), channel)
    iterator, left_early = OwnedIterator(1), OwnedIterator(1)
    assert iterator._next_internal() == left_early._next_internal() == 0
    with pytest.raises(StopIteration):
        iterator._next_internal()
    at_the_end = time.time_ns()
    del iterator, left_early
    channel.journal.close()
    (path,) = tmp_path.glob("*.steps")
    events = read_journal(path).events
    (stop,) = (events.kind == WORKERS_STOP).nonzero()[0]
    assert events.begin[stop] >= at_the_end
    assert events.end[stop] - events.begin[stop] >= 5_000_000
