"""Labels on a GPU, with PyTorch's operators: they are a small part of a sample."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ..container import Encoded
from ..lossless import Lossless
from ..staging import Column, Staged, require_good
from ..staging import stage as stage_columns

COLUMNS = 4


def stage(samples: Sequence[Encoded], *, pin_memory: bool = False) -> Staged:
    """The samples in one buffer on the host: keys or raw bytes, values, bits of a key, values held.

    Raises:
        InputError: Sections contradict the shape or each other.
    """
    return stage_columns([_columns(each) for each in samples], pin_memory=pin_memory)


def launch(staged: Staged, out: torch.Tensor) -> torch.Tensor:
    """Fills `out` on its device; (samples,) int32, 1 where a key points behind its values."""
    status = torch.zeros(staged.samples, dtype=torch.int32, device=out.device)
    index = staged.buffer[: staged.samples * COLUMNS * 8].view(torch.int64).view(-1, COLUMNS)
    flat = out.view(staged.samples, -1).view(torch.uint8)
    for number, (keys_at, values_at, width, held) in enumerate(index.tolist()):
        target = flat[number]
        if not width:
            target.copy_(staged.buffer[keys_at:][: len(target)])
            continue
        count = out[number].numel()
        shifts = torch.arange(0, 8, width, dtype=torch.uint8, device=out.device)
        packed = staged.buffer[keys_at:][: -(-count * width // 8)]
        keys = (packed[:, None] >> shifts & ((1 << width) - 1)).view(-1)[:count].long()
        status[number] = (keys >= held).any() if count else 0
        values = staged.buffer[values_at:][: held * out.itemsize].view(held, out.itemsize)
        target.copy_(values[keys.clamp(max=max(held - 1, 0))].view(-1) if count else target)
    return status


def reference(staged: Staged, out: torch.Tensor) -> None:
    """The same as `launch`."""
    launch(staged, out)


def decode(samples: Sequence[Encoded], out: torch.Tensor) -> None:
    """Fills `out` on its device, and waits for it.

    Raises:
        InputError: Sections contradict each other, or a key points behind its values.
    """
    staged = stage(samples, pin_memory=out.is_cuda)
    require_good(launch(staged.to(out.device), out))


def _columns(encoded: Encoded) -> tuple[Column, ...]:
    Lossless.check(encoded)
    width = encoded.parameters["key_bits"]
    empty = np.empty(0, np.uint8)
    first = encoded.sections["keys" if width else "raw"]
    values = encoded.sections["values"] if width else empty
    return first, values, width, len(values)
