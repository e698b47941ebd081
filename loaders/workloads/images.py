"""Images in class folders, as ImageFolder expects them.

Statistics of the paper (partial local shuffling, slides: ImageNet-1K, 1.2 M images, about
140 GB), measured in tests/loaders/workloads/test_workloads.py:

- one JPEG file an image, one folder a class; 140 GB / 1.2 M = 117 kB a file at size 384.

Not matched: the content. A class is a hue and a direction of stripes under noise, which a small
model learns; pixels are not photographs. Classes are equally frequent: sample i is of class
i modulo the number of classes. JPEG bytes depend on the version of the JPEG library.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..data.readers import Arrays
from ..data.samples import Field, SampleSet

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ..loader.loader import Batch

NAME = "images"
HELP = "JPEG images in class folders"
SIZE = 384
CLASSES = 10
QUALITY = 95
NOISE = 24.0
"""Standard deviation of the noise, grey levels: with `QUALITY` it sets the size of the files."""


def describe(folder: Path, *, samples: int, seed: int, size: int) -> SampleSet:
    """One JPEG file per sample, in `class0000` and so on."""
    fields = (Field("image", (size, size, 3), "|u1"), Field("label", (), "<i8"))
    details = {"classes": CLASSES, "quality": QUALITY}
    return SampleSet(folder, NAME, samples, fields, "images", seed, size, details)


def sample(samples: SampleSet, sample: int) -> Arrays:
    """Coloured stripes under noise: `image` and its `label`."""
    random = np.random.default_rng((samples.seed, sample))
    label, size = sample % CLASSES, samples.size
    angle = np.pi * label / CLASSES
    y, x = np.mgrid[:size, :size] / size
    # The class is the direction of the stripes and their hue.
    wave = np.sin(16 * np.pi * (x * np.cos(angle) + y * np.sin(angle)) + random.uniform(0, 6.28))
    hue = 2 * np.pi * (label / CLASSES + np.arange(3) / 3)
    image = 128 + 40 * wave[..., None] * np.ones(3) + 40 * np.cos(hue)
    image += random.normal(0, NOISE, image.shape)
    pixels = np.clip(image, 0, 255).astype(np.uint8)
    return {"image": pixels, "label": np.asarray(label, np.int64)}


def model(samples: SampleSet) -> nn.Module:
    """Three convolutions and a linear layer: (n, 3, s, s) -> (n, classes)."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=4, padding=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(256, int(samples.details["classes"])),
    )


def loss(model: nn.Module, batch: Batch) -> Tensor:
    """Cross entropy of the class."""
    import torch

    pixels = batch["image"].permute(0, 3, 1, 2).float() / 255
    return torch.nn.functional.cross_entropy(model(pixels), batch["label"])
