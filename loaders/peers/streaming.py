"""The loader `streaming`: its options. The package is imported when it is opened."""

from __future__ import annotations

import argparse

from ..data.samples import SampleSet
from ..errors import UsageError
from ..loader.loader import Loader, Settings
from ..loader.options import declare_streaming

NAME = "streaming"
HELP = "MosaicML Streaming on MDS shards (convert --to mds)"
add_arguments = declare_streaming


def open_loader(samples: SampleSet, settings: Settings, options: argparse.Namespace) -> Loader:
    """The loader.

    Raises:
        UsageError: Several ranks that torchrun did not start: Streaming asks its environment.
        InputError: The samples were not converted.
        ModuleNotFoundError: The package is not installed.
    """
    if settings.world.ranks > 1 and settings.world.source != "torch.distributed":
        raise UsageError("expected ranks started by torchrun, found others: Streaming needs it")
    from .streaming_loader import StreamingLoader

    return StreamingLoader(samples, settings, shuffle_algorithm=options.streaming_shuffle)
