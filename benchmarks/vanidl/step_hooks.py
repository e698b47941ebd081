"""What recording a step costs: the hooks around `__next__`, an optimizer's step and a fetch.

Each is timed around a function that does nothing, as they are in a program: with the file, its
flushes and the thread number. The limit is 2 us an event.

    python benchmarks/vanidl/step_hooks.py [EVENTS]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

from vanidl.record.injected.vanidl_steps import fetches, journal, pytorch, registry

LIMIT_NS = 2000
ROUNDS = 7


class Empty:
    """An iterator that always has a batch at hand."""

    def __next__(self) -> None:
        """A batch."""


class Loader:
    """A loader of `Empty`."""

    def __iter__(self) -> Empty:
        return Empty()


def best_ns(call: Callable[[], object], count: int) -> float:
    """The least processor time of a call, over rounds of so many."""

    def one_round() -> float:
        begin = time.thread_time_ns()
        for _ in range(count):
            call()
        return (time.thread_time_ns() - begin) / count

    return min(one_round() for _ in range(ROUNDS))


class Fetcher:
    """A fetcher that has its batch at hand."""

    def __init__(self, *_: object) -> None:
        self.collate_fn: Callable[[list[int]], object] = lambda _: None

    def fetch(self, samples: list[int]) -> object:
        """The batch."""
        return self.collate_fn(samples)


def fetch_ns(folder: str, count: int) -> float:
    """What the two events of a fetch cost, samples and collating, each."""
    samples = [0]
    bare = Fetcher()
    bare_ns = best_ns(lambda: bare.fetch(samples), count)
    channel = registry.Channel("fetches", journal.Journal(folder))
    module = SimpleNamespace(
        _BaseDatasetFetcher=Fetcher,
        _MapDatasetFetcher=type("Map", (Fetcher,), {}),
        _IterableDatasetFetcher=type("Iterable", (Fetcher,), {}),
    )
    fetches.watch_fetchers(module, channel)
    hooked = module._MapDatasetFetcher()
    found = best_ns(lambda: hooked.fetch(samples), count) - bare_ns
    channel.journal.close()
    assert channel.on, "a hook failed"
    return found / 2


def main() -> int:
    """Prints the cost of both events; 1 where one is above the limit."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    plain = Empty().__next__
    bare_ns = best_ns(lambda: plain(), count)
    stepped: list[Callable[[object, object, object], None]] = []
    nothing_ns = best_ns(lambda: None, count)
    with tempfile.TemporaryDirectory() as folder:
        channel = registry.Channel("pytorch", journal.Journal(folder))
        loaders = SimpleNamespace(DataLoader=Loader, _BaseDataLoaderIter=Empty)
        pytorch.watch_loaders(loaders, channel)
        pytorch.watch_optimizers(
            SimpleNamespace(
                register_optimizer_step_pre_hook=lambda _: None,
                register_optimizer_step_post_hook=stepped.append,
            ),
            channel,
        )
        iterator = iter(Loader())
        waits_ns = best_ns(lambda: iterator.__next__(), count) - bare_ns
        steps_ns = best_ns(lambda: stepped[0](None, None, None), count) - nothing_ns
        channel.journal.flush()
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        assert channel.on, "a hook failed"
    print(f"__next__        {waits_ns:6.0f} ns an event")
    print(f"optimizer step  {steps_ns:6.0f} ns an event")
    with tempfile.TemporaryDirectory() as folder:
        fetches_ns = fetch_ns(folder, count)
    print(f"fetch           {fetches_ns:6.0f} ns an event, two a fetch")
    print(
        f"file            {size / (2 * ROUNDS * count):6.1f} bytes an event (limit {LIMIT_NS} ns)"
    )
    return int(max(waits_ns, steps_ns, fetches_ns) > LIMIT_NS)


if __name__ == "__main__":
    raise SystemExit(main())
