"""What recording steps adds to a training loop of 10 ms a step, in processor time and in wall time.

    python -m benchmarks.vanidl.step_overhead [PAIRS]

One process trains; the recorder's hooks are taken out of PyTorch and put back every few steps, in
the order ABBA, so that both sides see the same machine, caches and clock rate. Shown is the
geometric mean of the middle 80 % of the pairs' ratios (a step that an interrupt meets says nothing)
with a 95 % interval (bootstrap over pairs). Limit: the interval of processor time is below 1.01.
Wall time is said beside it: on a shared machine it scatters more.
With a tracer beside the steps: benchmarks/vanidl/record_overhead.py.
What recording adds to the start of a process that trains nothing is the last line.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType

import numpy as np
import torch
import torch.utils.data.dataloader
from torch.utils.data import DataLoader, Dataset

from benchmarks.measure import processor_s
from benchmarks.vanidl.record_overhead import interval, verdict
from vanidl.record.injected import vanidl_steps
from vanidl.record.injected.vanidl_steps import journal, parts, registry
from vanidl.record.steps import make_environment

LIMIT = 1.01
STEP_MS = 10.0
BLOCK = 30  # steps
TRIALS = 9  # steps of one pass, by which their number for a step is chosen
SETTLING = 3  # a third of a block more runs after each change, and does not count
TRIMMED = 0.1  # of the pairs, at each end
STARTS = 15


class Rows(Dataset[torch.Tensor]):
    """Rows at hand."""

    def __init__(self) -> None:
        self.rows = torch.rand(64, 256)

    def __len__(self) -> int:
        """As many as anybody asks for."""
        return 1 << 30

    def __getitem__(self, i: int) -> torch.Tensor:
        """Row i."""
        return self.rows[i % 64]


class Hooks:
    """The recorder's registry, to take out and put back."""

    def __init__(self, folder: str) -> None:
        before = dict(self._functions())
        events = journal.Journal(folder)
        channels: dict[str, registry.Channel] = {}
        for theirs, ours in registry.HOOKS:
            if theirs in sys.modules:
                name, _, function = ours.partition(".")
                channel = channels.setdefault(name, registry.Channel(name, events))
                module = import_module(f"{vanidl_steps.__name__}.{name}")
                getattr(module, function)(sys.modules[theirs], channel)
        self._sampler = channels["lines"].shared["sampler"]
        self._out_ns = 0  # since when they are out, by the monotonic clock
        after = dict(self._functions())
        self._changed = [(key, before[key], f) for key, f in after.items() if f is not before[key]]
        optimizer = import_module("torch.optim.optimizer")
        of_steps = (optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks)
        self._of_steps = [(hooks, dict(hooks)) for hooks in of_steps]

    @staticmethod
    def _functions() -> Iterator[tuple[tuple[type | ModuleType, str], FunctionType]]:
        """Every function of the modules that hooks are for, and of their classes."""
        for name in {theirs for theirs, _ in registry.HOOKS} & set(sys.modules):
            module = sys.modules[name]
            classes = [owner for owner in list(vars(module).values()) if isinstance(owner, type)]
            for owner in (module, *classes):
                for key, value in list(vars(owner).items()):
                    if isinstance(value, FunctionType):
                        yield (owner, key), value

    def settle(self) -> None:
        """Takes the hooks as they are now for those of a training, after its first steps.

        Until a model is known every call of a module is looked at, later only those of its class:
        to put the former back would charge each layer of each step.
        """
        assert parts.watch.is_over, "the first steps are not over: warm up longer"
        now = dict(self._functions())
        self._changed = [
            (key, old, now[key]) for key, old, _ in self._changed if now[key] is not old
        ]
        self._of_model = [(kind, kind.__dict__["__call__"]) for kind in parts.watch.classes]
        assert self._of_model, "no model was found"

    def put(self, there: bool) -> None:
        """Puts all back, or takes all out, between two samples of lines.

        Time without them earns no samples, of which there would be twice as many else.
        """
        sampler, now = self._sampler, time.monotonic_ns()
        sampler.stop()
        if there and self._out_ns:
            sampler._earned_ns += now - self._out_ns
            sampler._wait_until(sampler.next_ns + now - self._out_ns)
        self._out_ns = 0 if there else self._out_ns or now
        for (owner, name), original, hooked in self._changed:
            setattr(owner, name, hooked if there else original)
        for kind, hooked in self._of_model:
            if there:
                kind.__call__ = hooked
            elif "__call__" in vars(kind):
                del kind.__call__
        for hooks, ours in self._of_steps:
            hooks.clear()
            hooks.update(ours if there else {})


class Net(torch.nn.Module):
    """As deep as it is told: a step is one forward and one backward pass, however long it takes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)])
        self.repeats = 1

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """The layers so many times, one behind the other."""
        for _ in range(self.repeats):
            batch = self.layers(batch)
        return batch


def training(step_ms: float = STEP_MS) -> Iterator[None]:
    """A loop of steps of about so many milliseconds.

    A pass of the model is a part of a step, so how many make a step is asked twice.
    """
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 1e-9)
    batches = DataLoader(Rows(), batch_size=32)
    trials_ms = list[float]()
    while True:
        for batch in batches:
            begin = time.thread_time()
            net(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if len(trials_ms) < 2 * TRIALS:
                trials_ms.append((time.thread_time() - begin) * 1e3)
                if len(trials_ms) % TRIALS == 0:  # the first steps make what later ones only use
                    usual_ms = statistics.median(trials_ms[-TRIALS:])
                    net.repeats = max(1, round(net.repeats * step_ms / usual_ms))
            yield


def block(steps: Iterator[None], many: int = BLOCK) -> tuple[float, float]:
    """(processor, wall) seconds of a few steps."""
    begin, used = time.perf_counter(), time.process_time()
    for _ in range(many):
        next(steps)
    return time.process_time() - used, time.perf_counter() - begin


def pairs(
    count: int, folder: str, step_ms: float = STEP_MS, many: int = BLOCK, warm_up: int = 30
) -> np.ndarray:
    """(pair, without or with, processor or wall) seconds of blocks of `many` steps."""
    installed, steps = Hooks(folder), training(step_ms)
    for _ in range(warm_up):
        next(steps)
    installed.settle()
    found = []
    for k in range(count):
        pair = {}
        for there in (False, True) if k % 2 else (True, False):
            installed.put(there)
            # Python forgets what it has specialised of code whose classes change, and learns again.
            block(steps, max(1, many // SETTLING))
            pair[there] = block(steps, many)
        found.append((pair[False], pair[True]))
    written = sum(path.stat().st_size for path in Path(folder).glob("*.steps"))
    assert written > 32 * count * many, "nothing was recorded"
    return np.array(found)


def trimmed(ratios: np.ndarray) -> np.ndarray:
    """Those in the middle."""
    low, high = np.quantile(ratios, [TRIMMED, 1 - TRIMMED])
    return ratios[(low <= ratios) & (ratios <= high)]


def start_s(more: dict[str, str]) -> float:
    """Processor seconds of a Python that does nothing."""
    before = processor_s()
    subprocess.run([sys.executable, "-c", "pass"], env={**os.environ, **more}, check=True)
    return processor_s() - before


def main() -> int:
    """Prints both ratios; 1 where the limit is not kept."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        found = pairs(count, folder)
        more = make_environment(Path(folder))
        starts = [(start_s({}), start_s(more)) for _ in range(STARTS)]
    step_ms = float(np.median(found[:, 0, 0])) / BLOCK * 1e3
    highest = []
    for k, name in enumerate(("processor time", "wall time")):
        ratio, low, high = interval(trimmed(found[:, 1, k] / found[:, 0, k]))
        highest.append(high)
        said = f", limit x{LIMIT}: {verdict(low, high, LIMIT)}" if k == 0 else ""
        print(
            f"{name:15} x{ratio:.4f} (95 %: {low:.4f} to {high:.4f}) of {step_ms:.1f} ms a step"
            f"{said}"
        )
    added_ms = statistics.median(b - a for a, b in starts) * 1e3
    print(f"start of Python {added_ms:.1f} ms more ({count} pairs)")
    return int(highest[0] > LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
