"""`python -m vanidl_loaders mount`: an emulated parallel file system until it is stopped."""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
from dataclasses import replace

from ..emulated_fs.faults import OPERATIONS
from ..emulated_fs.model import Cost
from ..emulated_fs.mount import REQUEST_BYTES, EmulatedStorage
from ..errors import UsageError

NAME = "mount"
HELP = "mount a folder as an emulated parallel file system"
_MB = 1e6  # as storage is sold, unlike the MiB of memory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to mount where, the costs, and how it fails."""
    parser.epilog = "What follows -- is a command: it runs on the mount, which ends with it."
    parser.add_argument("source", help="folder that holds the files")
    parser.add_argument("target", help="empty folder where they appear")
    add_cost_arguments(parser)
    add = parser.add_argument
    add(
        "--page-cache", action="store_true",
        help="let the kernel read ahead and keep pages; otherwise every read is a request",
    )  # fmt: skip
    add("--write-ms", type=float, help="of each write request, which then crosses the links too")
    add("--sync-ms", type=float, default=0.0, help="of each fsync (default 0)")
    add("--metadata-ms", type=float, default=0.0, help="of each stat, open, listing, removal, ...")
    add("--log", metavar="FILE", help="append each request served to this file as a JSON line")
    add(
        "--fault", metavar="OPERATION=FAULT", action="append", default=[],
        help="have operations fail: read=EIO, write=EDQUOT@0.01 (a rate), any=ESTALE+100 (after so "
        f"many), stat=hang30 (seconds), read=short; operations: {', '.join(OPERATIONS)}, any",
    )  # fmt: skip


def add_cost_arguments(parser: argparse.ArgumentParser) -> None:
    """Latency and bandwidths."""
    add = parser.add_argument
    add("--latency-ms", type=float, default=0.0, help="of each read request (default 0)")
    add("--bandwidth-mb", type=float, default=math.inf, help="of all clients, MB/s (10^6 bytes)")
    add("--client-mb", type=float, default=math.inf, help="of each client, MB/s")
    add("--client-env", metavar="NAME", help="processes with equal $NAME are one client")
    add("--request-kb", type=float, default=REQUEST_BYTES / 1024, help="longest request, KiB")


def parse_cost(options: argparse.Namespace) -> Cost:
    """The costs that the options describe."""
    latency_s = options.latency_ms / 1e3
    return Cost(latency_s, options.client_mb * _MB, options.bandwidth_mb * _MB)


def run(options: argparse.Namespace) -> int:
    """Mounts, runs the command or waits to be stopped, unmounts; the command's exit status."""
    cost = replace(
        parse_cost(options),
        write_s=None if options.write_ms is None else options.write_ms / 1e3,
        sync_s=options.sync_ms / 1e3,
        metadata_s=options.metadata_ms / 1e3,
    )
    storage = EmulatedStorage(
        options.source,
        options.target,
        cost=cost,
        log=options.log,
        client_env=options.client_env,
        request_bytes=int(options.request_kb * 1024),
        faults=options.fault,
        page_cache=options.page_cache,
    )
    # With a command the mount ends with it; without, with Ctrl-C.
    with storage:
        if options.line:
            try:
                return subprocess.run(options.line, check=False).returncode
            except FileNotFoundError as error:
                raise UsageError(
                    f"expected a command to run, found: {error}; check its name"
                ) from error
        sys.stderr.write(f"mounted on {storage.target}; Ctrl-C unmounts\n")
        storage.wait()
    return 0
