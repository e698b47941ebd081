"""`python -m vanidl_loaders launch`: ranks of one command, by torchrun without its tracebacks."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys

from ..errors import UsageError

NAME = "launch"
HELP = "start ranks of another command on this host: launch --ranks 2 -- train --data DIR"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many."""
    parser.add_argument("--ranks", type=int, required=True, metavar="R")


def run(options: argparse.Namespace) -> int:
    """Starts the ranks and waits for all; the exit status of the one that failed first, or 0.

    What ranks say is all that is shown: torchrun itself would add its own traceback.

    Raises:
        UsageError: No command, or no ranks.
    """
    if options.ranks < 1 or not options.line:
        raise UsageError(
            f"expected --ranks of at least 1 and a command behind --, found {options.ranks} and "
            f"{' '.join(options.line) or 'nothing'}: launch --ranks 2 -- train --data DIR"
        )
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # torchrun sets it too, and says so
    line = ["--standalone", "--nproc-per-node", str(options.ranks), "-m", "vanidl_loaders"]
    try:
        torchrun.run(torchrun.parse_args([*line, *options.line]))
    except ChildFailedError as error:
        # As a shell has it: the exit status, or 128 and the number of the signal, which is said.
        rank, failure = error.get_first_failure()
        if failure.exitcode >= 0:
            return failure.exitcode
        name = signal.Signals(-failure.exitcode).name
        sys.stderr.write(f"loaders: rank {rank} was ended by {name}, so all ranks were ended\n")
        return 128 - failure.exitcode
    except SignalException as error:
        return 128 + int(error.sigval)
    return 0
