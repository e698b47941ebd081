"""The registry of loaders, and the options of each.

A loader is a module with NAME, HELP, add_arguments and open_loader, named in `LOADERS`; it is
imported when asked for, so that a missing package stops only those who use it.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from ..errors import UsageError, require_choice
from .loader import Loader, Settings
from .stalls import READ_TIMEOUT_S

if TYPE_CHECKING:
    from ..data.samples import SampleSet

LOADERS: dict[str, str] = {
    "baseline": "vanidl_loaders.baseline",
    "scheduled": "vanidl_loaders.scheduled.loader",
    "pls": "vanidl_loaders.pls.loader",
    "spatial": "vanidl_loaders.spatial.loader",
    "decoded": "vanidl_loaders.decoders.dataset",
    "streaming": "vanidl_loaders.peers.streaming",
    "webdataset": "vanidl_loaders.peers.webdataset",
}
"""Name of each loader -> the module that makes it."""


class LoaderModule(Protocol):
    """What a module named in `LOADERS` offers."""

    NAME: str
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declares options of this loader alone; names must not collide with other loaders'."""

    def open_loader(
        self, samples: SampleSet, settings: Settings, options: argparse.Namespace
    ) -> Loader:
        """The loader. `options` holds at least what `add_arguments` declares."""


def find_loader(name: str) -> LoaderModule:
    """The module of a loader.

    Raises:
        UsageError: No loader of that name.
        ModuleNotFoundError: It needs a package that is not installed.
    """
    require_choice("a loader", name, LOADERS)
    return cast(LoaderModule, import_module(LOADERS[name]))


def open_loader(
    name: str, samples: SampleSet, settings: Settings, options: dict[str, Any] | None = None
) -> Loader:
    """A loader by name, its own options at their defaults unless given.

    Raises:
        UsageError: No loader of that name, or no option of that name.
    """
    module = find_loader(name)
    # A parser, for the defaults of its options.
    parser = argparse.ArgumentParser(prog=name)
    module.add_arguments(parser)
    chosen = parser.parse_args([])
    for option, value in (options or {}).items():
        if not hasattr(chosen, option):
            raise UsageError(f"expected an option of {name}, found {option}: see --help")
        setattr(chosen, option, value)
    return module.open_loader(samples, settings, chosen)


# Options of the loaders that come with the package, where no package is needed to declare them: so
# help comes at once. Each loader's module offers its function as `add_arguments`; what is a choice
# or a default there is the same here, which a test holds. The limits that a user sets for any
# loader (memory, waiting for storage) come last.


def declare_baseline(parser: argparse.ArgumentParser) -> None:
    """Options of the DataLoader."""
    add = parser.add_argument
    add("--prefetch-factor", type=int, default=2, help="batches read ahead by each worker")


def declare_scheduled(parser: argparse.ArgumentParser) -> None:
    """Options of the plan and of reading ahead."""
    add = parser.add_argument
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--buffer", type=int, metavar="SAMPLES", help="held by all ranks together")
    size.add_argument(
        "--buffer-fraction", type=float, metavar="C/N", help="(default: within --memory of 1GiB)"
    )
    add(
        "--balance",
        default="load",
        choices=("load", "batch", "time"),
        help="what is level over ranks",
    )
    add("--epoch-order", default="shuffle", choices=("shuffle", "greedy", "pso"))
    add("--load-s", type=float, default=1.0, help="seconds to read a sample, for balance time")
    add("--compute-s", type=float, default=1.0, help="seconds to train on one, for balance time")
    add("--plan", metavar="FILE", help="a saved plan, instead of the options above")
    add("--look-ahead", type=int, default=8, metavar="STEPS", help="read together (0: none ahead)")
    add(
        "--gap",
        type=_parse_gap,
        metavar="auto|ROWS",
        help="read through to merge (default: measured)",
    )
    add("--staging-bytes", type=int, help="of samples read ahead")
    add("--node-buffer", default="auto", choices=("auto", "no"), help="shared by ranks of a node")
    add(
        "--node-exchange",
        default="auto",
        choices=("auto", "on", "off"),
        help="nodes send each other samples",
    )
    add("--node-timeout-s", type=float, default=60.0, help="for another node")
    add("--read-threads", type=int, default=8, help="reads under way at once")


def declare_pls(parser: argparse.ArgumentParser) -> None:
    """Options of the exchange."""
    add = parser.add_argument
    add("--exchange-fraction", type=float, default=0.3, metavar="Q", help="0..1 of a rank's")
    add("--exchange-backend", default="auto", choices=("auto", "mpi", "gloo", "nccl"))
    add("--exchange-bytes", type=int, default=256 << 20, help="under way at once")
    add("--exchange-timeout-s", type=float, default=300.0, help="for one sample")
    add(
        "--partition",
        default="shuffled",
        choices=("shuffled", "blocks"),
        help="who holds what at first",
    )
    add("--local-folder", metavar="DIR", help="on the node, for samples (default: memory)")


def declare_spatial(parser: argparse.ArgumentParser) -> None:
    """How samples are divided and read."""
    add = parser.add_argument
    add(
        "--grid",
        type=_parse_numbers,
        metavar="1xPx1x1",
        help="parts per axis (default: axis 1 by all)",
    )
    add(
        "--divide",
        action="append",
        metavar="FIELD",
        help="(default: the largest field, and those of its shape)",
    )
    add("--halo", type=_parse_halo, default=0, metavar="N|NxN..", help="read beyond the block")
    add(
        "--edges",
        default="zero",
        choices=("zero", "clamp", "periodic"),
        help="what a halo holds beyond the array",
    )
    add(
        "--io",
        default="auto",
        choices=("auto", "independent", "posix", "gaps", "collective", "scatter", "crop"),
        help="who reads what, see README",
    )
    add("--slab-store", action="store_true", help="keep blocks in memory, exchange them later")
    add("--slabs-ahead", type=int, default=1, metavar="STEPS", help="read ahead by a thread")


def declare_decoded(parser: argparse.ArgumentParser) -> None:
    """Where the containers are, and where they are decoded."""
    add = parser.add_argument
    add("--encoded", metavar="DIR", help="folder of the containers (default DATA/encoded)")
    add(
        "--decode-on",
        default="auto",
        choices=("auto", "cpu", "cuda"),
        help="auto: a GPU where there is one",
    )


def declare_streaming(parser: argparse.ArgumentParser) -> None:
    """Options of StreamingDataset."""
    add = parser.add_argument
    add("--streaming-shuffle", default="py1e", metavar="ALGORITHM", help="py1e, py1br, py2s ...")


def declare_webdataset(parser: argparse.ArgumentParser) -> None:
    """Options of WebDataset."""
    add = parser.add_argument
    add("--webdataset-buffer", type=int, default=1000, metavar="N", help="samples shuffled")


def _parse_gap(text: str) -> int | None:
    return None if text == "auto" else int(text)


def _parse_numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split("x"))


def _parse_halo(text: str) -> int | tuple[int, ...]:
    numbers = _parse_numbers(text)
    return numbers if len(numbers) > 1 else numbers[0]


OPTIONS: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "baseline": declare_baseline,
    "scheduled": declare_scheduled,
    "pls": declare_pls,
    "spatial": declare_spatial,
    "decoded": declare_decoded,
    "streaming": declare_streaming,
    "webdataset": declare_webdataset,
}
"""By the name of the loader: what declares its options."""


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Options `memory` and `read_timeout_s`, as `Settings` has them."""
    add = parser.add_argument
    add("--memory", type=parse_nbytes, metavar="BYTES", help="of samples kept by a rank (4GiB)")
    add(
        "--read-timeout-s",
        type=float,
        default=READ_TIMEOUT_S,
        help="for storage that does not answer, before it is asked again (default 300)",
    )


def parse_nbytes(text: str) -> int:
    """Bytes of a size such as 4GiB, 500MB or 1048576.

    Raises:
        argparse.ArgumentTypeError: It is none.
    """
    size = re.fullmatch(r"(\d+(?:\.\d+)?) *([kKMGT]?)(i?)B?", text.strip())
    if size is None or (size[3] and not size[2]):
        raise argparse.ArgumentTypeError(
            f"expected a size such as 4GiB, 500MB or 1048576, found {text}"
        )
    base = 1024 if size[3] else 1000
    return int(float(size[1]) * base ** " kMGT".find(size[2].replace("K", "k") or " "))
