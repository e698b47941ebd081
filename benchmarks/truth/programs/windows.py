# ruff: noqa: ANN401, PTH105, PTH123, SIM115 - as programs are
"""A training loop that knows by its own timers where its time went.

    python windows.py KIND STEPS MILLISECONDS

KIND is what takes time beside the model. Prints one JSON line: seconds of each part and window, and
the median step in
microseconds of processor time, which other programs disturb less. The recorder knows nothing of it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from operator import sub
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

KIND, STEPS, STEP_S = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) / 1e3
torch.set_num_threads(1)
PARTS = ("input_wait", "prepare", "forward", "backward", "optimizer", "rest")
spent = dict.fromkeys((*PARTS, "checkpoint", "load", "validation"), 0.0)
now = last = time.perf_counter()


def took(part: str) -> None:
    """All since the last call belongs to a part."""
    global now, last
    now = time.perf_counter()
    spent[part] += now - last
    last = now


def busy(seconds: float) -> None:
    """Computes, in Python."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


class Rows(Dataset):
    """Samples that cost nothing."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return torch.full((64,), float(index % 7)), index % 10


model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(4)),
                      nn.Linear(64, 10))  # fmt: skip
optimizer, criterion = torch.optim.SGD(model.parameters(), 1e-3), nn.CrossEntropyLoss()
state = {"weights": torch.rand((4 if KIND == "saving" else 16) << 20)} if "sav" in KIND else {}
log, hits, times = open("log.txt", "w"), [], []
test = DataLoader(Rows(8), batch_size=4)


def train(x: Any, y: Any, step: int) -> None:
    """One step, from the batch on."""
    if KIND == "augmenting":
        for _ in range(10):
            x = x + 0.01 * torch.randn_like(x)
            busy(STEP_S / 14)
    took("prepare")
    loss = criterion(out := model(x), y)
    busy(STEP_S)
    took("forward")
    loss.backward()
    took("backward")
    if KIND == "clipping":
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        busy(STEP_S / 2)
    optimizer.step()
    took("optimizer")
    optimizer.zero_grad()
    if KIND == "metrics":
        hits.extend(out.argmax(1).tolist())
        busy(0.7 * STEP_S)
    if KIND == "syncing":
        log.write(f"{step} {loss.item()}\n" * 100)
        log.flush()
        os.fsync(log.fileno())
    took("rest")


def beside(step: int) -> None:
    """What is no part of any step."""
    if KIND.startswith("saving") and step % (3 if KIND == "saving" else 10) == 2:
        torch.save(state, "new")
        os.replace("new", f"model_{step % 4}.pt")
        took("checkpoint")
    if KIND == "saving" and step % 12 == 11:
        torch.load("model_3.pt")
        took("load")
    if KIND == "validating" and step % 10 == 9:
        model.eval()
        with torch.no_grad():
            for x, _ in test:
                model(x)
                busy(STEP_S)
        model.train()
        took("validation")


begin = last = time.perf_counter()
for step, (x, y) in enumerate(DataLoader(Rows(4 * STEPS), batch_size=4)):
    took("input_wait")
    train(x, y, step)
    beside(step)
    times.append(time.thread_time())
took("input_wait")
print(
    json.dumps(
        {
            "spent": spent,
            "loop": last - begin,
            "median_us": 1e6 * median(map(sub, times[11:], times[10:])),
        }
    )
)
