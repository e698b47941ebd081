from __future__ import annotations

import os
from contextlib import suppress

import numpy as np
import pytest

with suppress(ModuleNotFoundError):  # the test modules skip themselves
    import torch

    if not torch.cuda.is_available():  # read when a kernel's module is imported: before that
        os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(scope="session")
def device():
    """Where kernels run: a GPU, or the CPU in Triton's interpreter."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(scope="session")
def examples():
    """Codec -> (codec, array) pairs that touch each of its branches."""
    from vanidl_loaders.decoders import CosmoFlow, DeepCam, Lossless

    random = np.random.default_rng(7)
    counts = random.poisson(0.3, (9, 20, 33, 4)).astype(np.int16)
    walk = np.cumsum(random.normal(size=(3, 8, 200)), -1).astype(np.float32)
    walk[0, 0], walk[0, 1, 3], walk[1, :2] = 2.5, np.nan, random.normal(size=(2, 200))
    walk[2, 4, 50:120] = 0
    beyond = walk * np.array([30, 1, 1e-8], np.float32)[:, None, None]
    beyond[0] += 101_325
    beyond[0, 2, :3] = np.inf, -np.inf, np.nan
    return {
        "cosmoflow": [
            (CosmoFlow(), counts),
            (CosmoFlow(), random.integers(-40, 32767, (1, 70, 90, 4)).astype(np.int16)),
            (CosmoFlow(normalisation="mean"), counts),
            (CosmoFlow(redshifts="first"), np.moveaxis(counts, -1, 0)),
        ],
        "deepcam": [
            (DeepCam(channels="first"), walk),
            (DeepCam(channels="first", mode="open"), walk),
            (DeepCam(channels="first"), beyond),
            (DeepCam(channels="last", mode="open"), np.moveaxis(beyond, 0, -1)),
            (DeepCam(shift=(1.0, 2.0, 3.0), scale=(0.1, 0.2, 2.0)), np.moveaxis(walk, 0, -1)),
        ],
        "lossless": [
            (Lossless(), random.integers(0, 3, (30, 41)).astype(np.int64)),
            (Lossless(), random.normal(size=5).astype(np.float32)),
            (Lossless(), random.normal(size=700).astype(np.float64)),
        ],
    }


def bits(array):
    """The bytes of an array or tensor: what lossless means."""
    array = array.cpu().numpy() if hasattr(array, "cpu") else np.asarray(array)
    return array.shape, array.dtype, np.ascontiguousarray(array).tobytes()


@pytest.fixture(scope="session", name="bits")
def bits_fixture():
    return bits
