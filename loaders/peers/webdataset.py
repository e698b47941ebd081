"""The loader `webdataset`: its options. The package is imported when it is opened."""

from __future__ import annotations

import argparse

from ..data.samples import SampleSet
from ..loader.loader import Loader, Settings
from ..loader.options import declare_webdataset

NAME = "webdataset"
HELP = "WebDataset on tar shards (convert --to tar)"
add_arguments = declare_webdataset


def open_loader(samples: SampleSet, settings: Settings, options: argparse.Namespace) -> Loader:
    """The loader.

    Raises:
        InputError: The samples were not converted.
        ModuleNotFoundError: The package is not installed.
    """
    from .webdataset_loader import WebDatasetLoader

    return WebDatasetLoader(samples, settings, buffer=options.webdataset_buffer)
