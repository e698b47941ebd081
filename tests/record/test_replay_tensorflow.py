"""Batches of tf.data from memory: the source is not read again, and passes stay what they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any

import pytest

from vanidl.ceiling.measure import kept
from vanidl.readers.steps.journal import REPLAY, Journal, read_journal
from vanidl.record.injected.vanidl_steps import (
    CEILING_VARIABLE,
    journal,
    registry,
    replay_frameworks,
)

WARM_UP, BATCHES, NBYTES = 4, 10, 8
INFINITE, UNKNOWN = -1, -2


class Pipeline:
    """A stand-in for a dataset of tf.data: batches are numbers of 8 bytes."""

    element_spec = "a number"

    def __init__(self, make: Callable[[], Iterator[int]], length: int = UNKNOWN) -> None:
        self._make, self._length = make, length

    def __iter__(self) -> Iterator[int]:
        return _Iterator(self._make())

    def cardinality(self) -> int:
        return self._length

    def take(self, count: int) -> Pipeline:
        return Pipeline(lambda: islice(self._make(), count))

    def cache(self) -> Pipeline:
        kept: list[int] = []

        def batches() -> Iterator[int]:
            if not kept:
                found = []
                for batch in self._make():
                    found.append(batch)
                    yield batch
                kept.extend(found)
                return
            yield from kept

        return Pipeline(batches)

    def repeat(self) -> Pipeline:
        def batches() -> Iterator[int]:
            for _ in cycle([0]):
                yield from self._make()

        return Pipeline(batches)


class _Iterator:
    """Attributes can be set on it, as on those of TensorFlow."""

    def __init__(self, batches: Iterator[int]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[int]:
        return self._batches


def watched(source: Pipeline, more: Callable[[int], bool], ended: Callable[[], None]) -> Pipeline:
    """What TensorFlow does in functions that it traces."""

    def batches() -> Iterator[int]:
        for batch in source._make():
            if not more(NBYTES):
                break
            yield batch
        ended()

    return Pipeline(batches)


def first_and_one_more(source: Pipeline, count: int) -> Pipeline:
    def batches() -> Iterator[int]:
        every = source._make()
        yield from islice(every, count)
        next(every, None)

    return Pipeline(batches)


class Source:
    """Counts what is read of it."""

    def __init__(self, batches: int | None = BATCHES) -> None:
        self.batches, self.reads = batches, 0

    def __call__(self) -> Iterator[int]:
        for k in chain(range(self.batches)) if self.batches else iter(int, 1):
            self.reads += 1
            yield k


class Begun:
    """`__iter__` under the hook, and its journal."""

    def __init__(self, folder: Path, original: Any) -> None:
        self.channel = registry.Channel("tensorflow", journal.Journal(str(folder)))
        self.iter = replay_frameworks.from_memory(original, self.channel)
        self._folder = folder

    def values(self, dataset: Any, most: int | None = None) -> list[int]:
        return [int(batch) for batch in islice(self.iter(dataset), most)]

    def journal(self) -> Journal:
        self.channel.journal.close()
        return read_journal(next(self._folder.glob("*.steps")))


Hook = Callable[..., Begun]


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hook:
    def run(memory: int = 1 << 20, epoch: str = "", original: Any = Pipeline.__iter__) -> Begun:
        monkeypatch.setenv(CEILING_VARIABLE, f"{WARM_UP},{memory},{epoch}")
        if original is Pipeline.__iter__:
            monkeypatch.setattr(replay_frameworks, "_dataset_watched", watched)
            monkeypatch.setattr(replay_frameworks, "_first_and_one_more", first_and_one_more)
            monkeypatch.setattr(replay_frameworks, "_check_dataset", lambda _: None)
        return Begun(tmp_path, original)

    return run


FIRST = list(range(BATCHES))
REPEATED = [k % WARM_UP for k in FIRST]


def test_a_dataset_that_knows_its_length_is_read_for_the_warm_up_alone(hook: Hook) -> None:
    begun, source = hook(), Source()
    data = Pipeline(source, BATCHES)
    assert [begun.values(data) for _ in range(3)] == [REPEATED] * 3
    assert source.reads <= WARM_UP + 1
    (text,) = begun.journal().replayed
    assert (text["state"], text["kept"], text["length"]) == ("on", WARM_UP, BATCHES)
    assert text["nbytes"] == WARM_UP * NBYTES


def test_a_dataset_that_does_not_is_read_once_more_for_its_length(hook: Hook) -> None:
    begun, source = hook(), Source()
    data = Pipeline(source)
    assert len(begun.values(data, 3)) == 3  # says nothing of its length
    assert [begun.values(data) for _ in range(3)] == [FIRST, REPEATED, REPEATED]
    assert source.reads <= 4 + BATCHES + WARM_UP + 1


def test_its_length_can_be_given(hook: Hook) -> None:
    begun, source = hook(epoch="7"), Source()
    data = Pipeline(source)
    assert [begun.values(data) for _ in range(2)] == [REPEATED[:7]] * 2
    assert source.reads <= WARM_UP + 1


@pytest.mark.parametrize("count", [1, WARM_UP - 1, WARM_UP, WARM_UP + 1])
def test_passes_as_short_as_the_warm_up_come_from_memory(hook: Hook, count: int) -> None:
    begun, source = hook(), Source(count)
    data = Pipeline(source, count)
    assert [begun.values(data) for _ in range(3)] == [[k % WARM_UP for k in range(count)]] * 3
    assert source.reads == min(count, WARM_UP)
    assert [text["state"] for text in begun.journal().replayed] == ["on"]


@pytest.mark.parametrize("count", [2, WARM_UP, BATCHES])
def test_passes_whose_end_nobody_asks_for_come_from_memory(hook: Hook, count: int) -> None:
    """As Keras takes them, of data whose length it knows and TensorFlow does not."""
    begun, source = hook(), Source(count)
    data = Pipeline(source)
    data.__dict__[replay_frameworks.LENGTH] = count
    most = min(WARM_UP, count - 1)
    assert [begun.values(data, count) for _ in range(3)] == [[k % most for k in range(count)]] * 3
    assert source.reads == most
    assert [text["kept"] for text in begun.journal().replayed] == [most]


def test_a_pass_of_one_batch_whose_end_nobody_asks_for_says_why_it_is_real(hook: Hook) -> None:
    begun, data = hook(), Pipeline(Source(1))
    data.__dict__[replay_frameworks.LENGTH] = 1
    assert [begun.values(data, 1) for _ in range(3)] == [[0]] * 3
    (remark,) = kept([begun.journal()]).remarks
    assert "its passes have one batch" in remark


def test_an_endless_dataset_stays_endless(hook: Hook) -> None:
    begun, source = hook(), Source(None)
    assert len(begun.values(Pipeline(source, INFINITE), 50)) == 50
    assert source.reads <= WARM_UP + 1
    assert begun.journal().replayed[0]["length"] is None


def test_memory_bounds_what_is_kept_and_one_batch_always_is(hook: Hook) -> None:
    begun = hook(memory=2 * NBYTES)
    data, other = (Pipeline(Source(), BATCHES) for _ in range(2))
    assert begun.values(data) == [k % 2 for k in FIRST]
    assert begun.values(other) == [0] * BATCHES
    assert [text["kept"] for text in begun.journal().replayed] == [2, 1]


def test_passes_that_end_within_the_warm_up_keep_nothing(hook: Hook) -> None:
    begun, data = hook(memory=WARM_UP * NBYTES), Pipeline(Source(), BATCHES)
    for _ in range(5):  # nor do they use up the memory
        assert begun.values(data, 2) == [0, 1]
    assert begun.values(data) == REPEATED
    assert [text["kept"] for text in begun.journal().replayed] == [WARM_UP]


def test_batches_from_memory_are_events_and_those_of_the_warm_up_are_none(hook: Hook) -> None:
    begun, data = hook(), Pipeline(Source(), BATCHES)
    memory = begun.iter(data).__dict__[replay_frameworks.MEMORY]
    memory.note(1, 2)
    begun.values(data)
    memory.note(memory.since_ns - 1, memory.since_ns + 1)
    memory.note(memory.since_ns + 1, memory.since_ns + 5)
    events = begun.journal().events
    (found,) = events.pick(events.kind == REPLAY).end
    assert found == memory.since_ns + 5


def test_what_cannot_be_kept_stays_real(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_: object) -> None:
        raise TypeError("its batches hold DatasetSpec")

    begun, source = hook(), Source()
    monkeypatch.setattr(replay_frameworks, "_check_dataset", refuses)
    data = Pipeline(source, BATCHES)
    assert [begun.values(data) for _ in range(2)] == [FIRST] * 2
    (text,) = begun.journal().replayed
    assert (text["state"], text["why"]) == ("refused", "TypeError: its batches hold DatasetSpec")


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow", reason="TensorFlow is not installed")


def counted(tf: Any, source: Source) -> Any:
    return tf.data.Dataset.from_generator(source, output_signature=tf.TensorSpec((), tf.int64))


@pytest.mark.parametrize("known", [True, False])
def test_tensorflow_reads_no_more_of_its_source(tf: Any, hook: Hook, known: bool) -> None:
    begun, source = hook(original=tf.data.Dataset.__iter__), Source()
    data = counted(tf, source)
    if known:
        data = data.apply(tf.data.experimental.assert_cardinality(BATCHES))
    passes = [begun.values(data) for _ in range(3)]
    assert passes == [REPEATED if known else FIRST, REPEATED, REPEATED]
    assert source.reads == WARM_UP + (0 if known else BATCHES)
    (text,) = begun.journal().replayed
    assert (text["state"], text["kept"], text["nbytes"]) == ("on", WARM_UP, WARM_UP * 8)


def test_a_traced_function_takes_them_and_is_not_traced_again(tf: Any, hook: Hook) -> None:
    begun, source, traced = hook(original=tf.data.Dataset.__iter__), Source(), []

    @tf.function
    def take(iterator: Any) -> Any:
        traced.append(None)
        return next(iterator)

    data = counted(tf, source).apply(tf.data.experimental.assert_cardinality(BATCHES))
    assert int(take(iter(data))) == 0
    for _ in range(2):
        iterator = begun.iter(data)
        assert [int(take(iterator)) for _ in range(BATCHES)] == REPEATED
        with pytest.raises(tf.errors.OutOfRangeError):
            take(iterator)
    assert len(traced) == 1
    assert source.reads <= 1 + WARM_UP + 1  # of the first one TensorFlow may read ahead
    assert int(data.cardinality()) == len(data) == BATCHES


def test_elements_of_every_structure_stay_what_they_are(tf: Any, hook: Hook) -> None:
    begun = hook(original=tf.data.Dataset.__iter__)
    parts = {
        "text": tf.constant(["a", "bc", "d"]),
        "pair": (tf.ones((3, 2)), tf.ragged.constant([[1], [2, 3], []])),
        "sparse": tf.sparse.eye(3),
    }
    data = tf.data.Dataset.from_tensor_slices(parts).batch(2)
    for _ in range(2):
        iterator = begun.iter(data)
        assert iterator.element_spec == data.element_spec
        found, real = list(iterator), list(data)
        assert [str(each) for each in found] == [str(each) for each in real]
    windows = tf.data.Dataset.range(4).window(2)
    assert [[int(x) for x in each] for each in begun.iter(windows)] == [[0, 1], [2, 3]]
    assert [text["state"] for text in begun.journal().replayed] == ["on", "refused"]
