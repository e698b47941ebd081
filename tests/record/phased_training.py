"""Trains with PyTorch, validates and saves, and tells when, by its own clock; fails at the end."""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

import vanidl

times: dict[str, list[tuple[int, int]]] = {}


@contextmanager
def timed(name: str) -> Iterator[None]:
    begin = time.time_ns()
    yield
    times.setdefault(name, []).append((begin, time.time_ns()))


folder = Path(sys.argv[1])
model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
train = DataLoader(TensorDataset(torch.rand(48, 8)), batch_size=4)
test = DataLoader(TensorDataset(torch.rand(16, 8)), batch_size=4)
state = {"weights": torch.rand(1 << 10)}
for step, (x,) in enumerate(train):
    x = x * 2
    with timed("forward"):
        loss = model(x).square().mean()
    with timed("backward"):
        loss.backward()
    with timed("optimizer"):
        optimizer.step()
    optimizer.zero_grad()
    if step % 4 == 1:
        with timed("validation"):
            model.eval()
            with torch.no_grad(), timed("evaluating"):
                for (y,) in test:
                    model(y)
            model.train()
    if step % 4 == 2:
        with timed("checkpoint"):
            torch.save(state, folder / "new")
            os.replace(folder / "new", folder / f"model_{step}.pt")  # noqa: PTH105
    if step == 3:
        with timed("load"):
            torch.load(folder / "model_2.pt")
    if step == 5:
        with timed("phase"), vanidl.phase("upload"), timed("uploading"):
            time.sleep(0.001)
pickle.loads(pickle.dumps(model))
assert "__call__" not in vars(model)
assert not model._forward_pre_hooks
(folder / "truth").write_text(json.dumps(times))
raise SystemExit(3)
