"""Samples that the tests of scheduled buffering share."""

from __future__ import annotations

import pytest

pytest.importorskip("h5py", reason="h5py is not installed")
pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.loaders.data.stored import LAYOUTS, written


@pytest.fixture(scope="session", params=LAYOUTS)
def rows(request, tmp_path_factory):
    """Random samples in one file: two fields of different width."""
    return written(tmp_path_factory.mktemp("rows"), request.param)


@pytest.fixture(scope="session")
def flat(tmp_path_factory):
    return written(tmp_path_factory.mktemp("flat"), "contiguous")
