"""Profiles of training loops with and without marked steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.makers.records import Span, profile
from vanidl.model.trace import SpanKind
from vanidl.readers.records import ProfileTrace

MS = 1_000_000
BACKWARD = "autograd::engine::evaluate_function: AddmmBackward0"


def loop(epochs: list[list[str]], *, wait_ms: int = 10, work_ms: int = 20) -> ProfileTrace:
    """The profile of a loop without marked steps: one list of batches an epoch.

    A batch is "train" or "test"; a loader ends with one more wait, after which the next one is
    created (two small operators), and loops of validation have loaders of their own.
    """
    spans, names, now = [], [], 0

    def add(kind: SpanKind, name: str, ms: float) -> None:
        nonlocal now
        spans.append(Span(kind, now, now + int(ms * MS)))
        names.append(name)
        now += int(ms * MS) + 1000

    for batches in epochs:
        add(SpanKind.OP, "aten::random_", 0.1)
        add(SpanKind.OP, "aten::item", 0.1)
        for what in batches:
            add(SpanKind.INPUT_WAIT, "next", wait_ms)
            for _ in range(4):
                add(SpanKind.OP, "aten::conv2d", work_ms / 4)
            if what == "train":
                add(SpanKind.OP, BACKWARD, work_ms)
        add(SpanKind.INPUT_WAIT, "next", 1)
    made = profile(spans)
    used = sorted(set(names))
    code = np.array([used.index(n) for n in names], np.int32)
    return replace(made, names=tuple(used), name=code)


def marked(lengths_ms: list[float], computed_ms: list[float]) -> ProfileTrace:
    """Marked steps of given lengths, each with a wait and then so much compute."""
    spans, at = [], 0
    for k, (length, work) in enumerate(zip(lengths_ms, computed_ms, strict=True)):
        end = at + int(length * MS)
        spans.append(Span(SpanKind.STEP, at, end, k))
        spans.append(Span(SpanKind.INPUT_WAIT, at, at + MS // 10))
        if work:
            spans.append(Span(SpanKind.OP, end - int(work * MS), end))
        at = end
    return profile(spans)
