"""Batches from memory: nothing is read after the warm-up, and the program notices nothing else."""

from __future__ import annotations

import importlib.util
from collections import namedtuple
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType

import pytest

from vanidl.readers.steps.journal import REPLAY, Journal, read_journal
from vanidl.record.injected.vanidl_steps import (
    CEILING_VARIABLE,
    journal,
    registry,
    replay,
    replay_frameworks,
    waits,
)
from vanidl.record.injected.vanidl_steps.replay import copied, nbytes

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

WARM_UP, BATCH, BATCHES = 4, 3, 10
LAST = 2  # samples of the last batch
SAMPLES = BATCH * (BATCHES - 1) + LAST
Pair = namedtuple("Pair", "values names")

pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # it has threads


class Counted(torch.utils.data.Dataset):
    """Counts what is asked of it, in this process."""

    def __init__(self, samples: int = SAMPLES) -> None:
        self.samples, self.calls = samples, 0

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        self.calls += 1
        return torch.tensor([float(index)])


class Stream(torch.utils.data.IterableDataset):
    """Does not know its length."""

    def __init__(self, samples: int = SAMPLES) -> None:
        self.samples, self.given = samples, 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        for k in range(self.samples):
            self.given += 1
            yield torch.tensor([float(k)])


class Hooked:
    """PyTorch's module of loaders, another than that of other tests, under the hooks."""

    def __init__(self, module: ModuleType, folder: Path) -> None:
        self.DataLoader = module.DataLoader
        self.channel = registry.Channel("replay_frameworks", journal.Journal(str(folder)))
        replay_frameworks.watch_loaders(module, self.channel)
        self._folder = folder

    def journal(self) -> Journal:
        self.channel.journal.close()
        (path,) = self._folder.glob("*.steps")
        return read_journal(path)


Hook = Callable[..., Hooked]


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hook:
    def run(warm_up: int = WARM_UP, memory: int = 1 << 20, epoch: str = "") -> Hooked:
        monkeypatch.setenv(CEILING_VARIABLE, f"{warm_up},{memory},{epoch}")
        spec = importlib.util.find_spec("torch.utils.data.dataloader")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return Hooked(module, tmp_path)

    return run


def values(loader: object) -> list[list[float]]:
    return [batch.flatten().tolist() for batch in loader]


def test_after_the_warm_up_nothing_is_read_and_passes_stay_as_long(hook: Hook) -> None:
    data = Counted()
    loader = hook().DataLoader(data, batch_size=BATCH)
    passes = [values(loader) for _ in range(3)]
    assert data.calls == WARM_UP * BATCH
    assert [len(each) for each in passes] == [BATCHES] * 3 == [len(loader)] * 3
    kept = passes[0][:WARM_UP]
    assert kept == values(torch.utils.data.DataLoader(Counted(), batch_size=BATCH))[:WARM_UP]
    expected = [kept[k % WARM_UP] for k in range(BATCHES)]
    assert passes[1] == passes[2] == expected == kept + passes[0][WARM_UP:]


def test_each_batch_handed_out_is_an_event(hook: Hook) -> None:
    hooked = hook()
    loader = hooked.DataLoader(Counted(), batch_size=BATCH)
    assert sum(len(values(loader)) for _ in range(2)) == 2 * BATCHES
    found = hooked.journal()
    assert int((found.events.kind == REPLAY).sum()) == 2 * BATCHES - WARM_UP
    (text,) = found.replayed
    assert (text["state"], text["kept"], text["length"]) == ("on", WARM_UP, BATCHES)
    assert text["nbytes"] == WARM_UP * BATCH * 4


def test_a_short_pass_is_the_warm_up_and_its_small_last_batch_comes_last(hook: Hook) -> None:
    data = Counted(2 * BATCH + LAST)
    loader = hook(warm_up=20).DataLoader(data, batch_size=BATCH)
    passes = [values(loader) for _ in range(3)]
    assert data.calls == data.samples
    assert passes[0] == passes[1] == passes[2]
    assert len(passes[2][-1]) == LAST


def test_what_the_program_does_to_a_batch_stays_with_it(hook: Hook) -> None:
    loader = hook().DataLoader(Counted(), batch_size=BATCH)
    seen = []
    for _ in range(3):
        for batch in loader:
            seen += batch.flatten().tolist()
            batch.fill_(-1.0)
    assert -1.0 not in seen


def test_neighbours_are_different_memory(hook: Hook) -> None:
    loader = hook().DataLoader(Counted(), batch_size=BATCH)
    values(loader)
    batches = list(loader)
    assert len({batch.data_ptr() for batch in batches}) == BATCHES


def test_a_loader_of_unknown_length_replays_its_first_whole_pass(hook: Hook) -> None:
    data = Stream()
    loader = hook().DataLoader(data, batch_size=BATCH)
    passes = [values(loader) for _ in range(3)]
    assert data.given == SAMPLES
    assert [len(each) for each in passes] == [BATCHES] * 3
    assert passes[1][:-1] == passes[2][:-1] != passes[0][:-1]


def test_its_length_can_be_given(hook: Hook) -> None:
    data = Stream(10**6)
    loader = hook(epoch="7").DataLoader(data, batch_size=BATCH)
    assert [len(values(loader)) for _ in range(2)] == [7, 7]
    assert data.given == WARM_UP * BATCH


def test_its_length_is_what_keras_counts(hook: Hook) -> None:
    class EpochIterator:
        _num_batches = BATCHES

    owner, hooked, data = EpochIterator(), hook(), Stream(10**6)
    for _ in range(2):  # it makes a loader for each pass, and never asks for the end
        loader = hooked.DataLoader(data, batch_size=BATCH)
        waits.in_place_of(owner, loader)
        assert len(list(islice(loader, BATCHES))) == BATCHES
    assert data.given == WARM_UP * BATCH


def test_a_pass_that_never_ends_stays_real(hook: Hook) -> None:
    hooked, data = hook(), Stream(10**6)
    iterator = iter(hooked.DataLoader(data, batch_size=BATCH))
    for _ in range(3 * WARM_UP):
        next(iterator)
    assert data.given == 3 * WARM_UP * BATCH
    assert [text["state"] for text in hooked.journal().replayed] == ["warm-up"]


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_are_stopped(hook: Hook, persistent: bool) -> None:
    hooked = hook()
    loader = hooked.DataLoader(
        Counted(), batch_size=BATCH, num_workers=2, persistent_workers=persistent
    )
    iterator = iter(loader)
    first = [next(iterator) for _ in range(WARM_UP)]
    assert [worker.is_alive() for worker in iterator._workers] == [False, False]
    assert len([*first, *iterator]) == BATCHES
    again = [iter(loader) for _ in range(2)]
    assert len(list(again[-1])) == BATCHES
    workers = {w.pid for each in again for w in getattr(each, "_workers", ())}
    assert workers <= {w.pid for w in iterator._workers}  # none were started
    assert isinstance(again[0], type(iterator).__mro__[1])


def test_each_loader_has_a_warm_up_of_its_own(hook: Hook) -> None:
    hooked, train, valid = hook(), Counted(), Counted()
    both = [hooked.DataLoader(data, batch_size=BATCH) for data in (train, valid)]
    for _ in range(WARM_UP):
        next(iter(both[0]))
    assert (train.calls, valid.calls) == (WARM_UP * BATCH, 0)
    assert [len(values(loader)) for loader in both] == [BATCHES] * 2
    assert (train.calls, valid.calls) == (WARM_UP * BATCH,) * 2


def test_a_loader_made_anew_for_each_pass_is_the_same(hook: Hook) -> None:
    hooked, data = hook(), Counted()
    for _ in range(3):
        assert len(values(hooked.DataLoader(data, batch_size=BATCH))) == BATCHES
    assert data.calls == WARM_UP * BATCH


def test_what_cannot_be_copied_stays_real(hook: Hook) -> None:
    class Locked:
        def __deepcopy__(self, memo: dict) -> None:
            raise TypeError("held by someone")

    hooked, data = hook(), Counted()
    loader = hooked.DataLoader(data, batch_size=BATCH, collate_fn=lambda _: Locked())
    assert [len(list(loader)) for _ in range(2)] == [BATCHES] * 2
    assert data.calls == 2 * SAMPLES
    (text,) = hooked.journal().replayed
    assert (text["state"], text["why"]) == ("refused", "TypeError: held by someone")


def test_memory_bounds_what_is_kept(hook: Hook) -> None:
    hooked = hook(memory=2 * BATCH * 4)
    loader = hooked.DataLoader(Counted(), batch_size=BATCH)
    passes = [values(loader) for _ in range(2)]
    (text,) = hooked.journal().replayed
    assert text["kept"] == 2
    assert passes[1] == [passes[0][k % 2] for k in range(BATCHES)]


def test_a_copy_that_fails_later_breaks_nothing(
    hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = hook().DataLoader(Counted(), batch_size=BATCH)
    values(loader)

    def fails(batch: object) -> None:
        raise MemoryError

    monkeypatch.setattr(replay, "copied", fails)
    assert len(values(loader)) == BATCHES
    (note,) = tmp_path.glob("*.steps-error")
    assert note.read_text().startswith("replay_frameworks: MemoryError")


def test_an_exception_of_the_dataset_is_the_programs(hook: Hook) -> None:
    class Broken(Counted):
        def __getitem__(self, index: int) -> torch.Tensor:
            if index == BATCH:
                raise KeyError("no such sample")
            return super().__getitem__(index)

    loader = hook().DataLoader(Broken(), batch_size=BATCH)
    for _ in range(2):
        with pytest.raises(KeyError, match="no such sample"):
            values(loader)


def test_a_copy_is_of_the_same_types_and_shares_nothing() -> None:
    grad = torch.ones(2, requires_grad=True)
    pair = Pair(torch.arange(3), ["a", "b"])
    batch = {"pair": pair, "both": (grad, {1: [torch.zeros(1)]}), "n": 3}
    made = copied(batch)
    assert type(made["pair"]) is Pair
    assert made["both"][0].requires_grad
    made["pair"].values.fill_(7)
    made["pair"].names.append("c")
    made["both"][1][1][0].fill_(7)
    assert batch["pair"].values.tolist() == [0, 1, 2]
    assert batch["pair"].names == ["a", "b"]
    assert batch["both"][1][1][0].tolist() == [0.0]
    assert nbytes(batch["pair"].values) == 24
    assert nbytes([torch.zeros(4), {"x": torch.zeros(2)}]) == 24


def test_objects_that_hold_each_other_have_a_size_and_a_copy() -> None:
    class Node:
        def __init__(self) -> None:
            self.values, self.other = torch.zeros(2), self

    node = Node()
    assert nbytes(node) >= 8
    made = copied(node)
    assert made.other is made
    assert made.values.data_ptr() != node.values.data_ptr()


def test_a_loader_made_anew_while_the_one_before_lives_on_is_the_same(hook: Hook) -> None:
    hooked, data, alive = hook(), Counted(), []
    for _ in range(3):
        alive.append(hooked.DataLoader(data, batch_size=BATCH))
        assert len(values(alive[-1])) == BATCHES
    assert data.calls == WARM_UP * BATCH
    other = hooked.DataLoader(data, batch_size=BATCH + 1)
    assert [len(batch) for batch in values(other)][:2] == [BATCH + 1] * 2
