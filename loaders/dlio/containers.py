"""Encoded files of DLIO: containers in the same folders as the files, one beside the other.

They are made by `python -m vanidl_loaders encode DATA/train DATA/train-encoded`.
"""

from __future__ import annotations

from pathlib import Path

from ..decoders.dataset import DecodedLoader
from ..decoders.folders import SUFFIX
from .samples import DlioSamples


class DlioContainers(DecodedLoader):
    """`DecodedLoader` for containers that are named after DLIO's files."""

    def container(self, sample: int) -> Path:
        """Where the container of a sample lies."""
        samples = self._samples
        assert isinstance(samples, DlioSamples)
        path = samples.path(sample)
        return self._folder / path.relative_to(samples.folder).with_name(f"{path.name}{SUFFIX}")
