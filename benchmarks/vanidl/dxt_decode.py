"""How fast the traced operations of a Darshan log become columns.

    python -m benchmarks.vanidl.dxt_decode [LOG]

Compares, on the log's DXT regions in memory:
  ours      inflating and decoding into columns (vanidl.readers.darshan.dxt)
  limit     nothing but inflating every stream, its bounds and size known beforehand, by the
            fastest of the inflaters installed (deflate, isal, zlib-ng, zlib)
  PyDarshan mod_read_all_dxt_records and to_df of every record, from the file

Required: ours <= 1.5 x limit, PyDarshan >= 50 x ours.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import warnings
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measure import SHARED, interleaved, medians, wall_s
from vanidl.encoding.inflate import streams
from vanidl.readers.darshan import dxt
from vanidl.readers.darshan.header import Region, read_header

LOG = SHARED / "data/public/vanidl_cosmictagger/cosmictagger_8ranks.darshan"
REPEATS = 15
OURS, PEER = "ours", "PyDarshan to_df"
MOST_TIMES_LIMIT, LEAST_TIMES_PEER = 1.5, 50.0

Run = Callable[[], Any]


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("log", type=Path, nargs="?", default=LOG)
    path = parser.parse_args().log
    if not path.is_file():
        parser.error(f"no such log: {path}; name one that holds DXT data")
    data = memoryview(path.read_bytes())
    header = read_header(data, str(path))
    regions = [header.regions[name] for name in dxt.LAYERS if name in header.regions]
    if not regions or header.compression != "zlib":
        parser.error(f"{path} holds no zlib-compressed DXT data; name a log that does")
    runs: dict[str, Run] = {OURS: ours(data, regions, header.byte_order), PEER: peer(path)}
    runs |= limits(data, regions)
    timed = {name: partial(wall_s, run) for name, run in runs.items()}
    report(path, runs, medians(interleaved(timed, REPEATS)))


def ours(data: memoryview, regions: list[Region], byte_order: str) -> Run:
    """Decoding of all regions."""

    def run() -> int:
        rows = 0
        for region in regions:
            held = region.cut_from(data)
            found = streams(held, "zlib", cut=False)
            table, losses = dxt.decode_dxt(
                found, region.name, region.version, byte_order=byte_order, nbytes=len(held)
            )
            assert not losses, losses
            rows += len(table.start_ns)
        return rows

    return run


def limits(data: memoryview, regions: list[Region]) -> dict[str, Run]:
    """Inflating of the same streams, by every inflater that is installed."""
    known = [stream for region in regions for stream in bounds(region.cut_from(data))]
    runs: dict[str, Run] = {}
    for name, function in (
        ("deflate", "zlib_decompress"),
        ("isal.isal_zlib", "decompress"),
        ("zlib_ng.zlib_ng", "decompress"),
        ("zlib", "decompress"),
    ):
        with contextlib.suppress(ImportError):
            inflate = getattr(importlib.import_module(name), function)
            runs[name] = bare(inflate, known, sized=name == "deflate")
    return runs


def bounds(region: memoryview) -> list[tuple[bytes, int]]:
    """Each stream of a region, and its inflated size."""
    known, position = [], 0
    while position < len(region):
        inflater = zlib.decompressobj()
        size = len(inflater.decompress(region[position:]))
        end = len(region) - len(inflater.unused_data)
        known.append((bytes(region[position:end]), size))
        position = end
    return known


def bare(inflate: Callable[..., bytes], known: list[tuple[bytes, int]], *, sized: bool) -> Run:
    """One inflater over all streams; `sized`: it takes the size as its second argument."""
    if sized:
        return lambda: [inflate(stream, size) for stream, size in known]
    return lambda: [inflate(stream, bufsize=size) for stream, size in known]


def peer(path: Path) -> Run:
    """PyDarshan's data frames; returns how many operations it found."""

    def run() -> int:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            from darshan import DarshanReport

            log = DarshanReport(str(path), read_all=False)
            rows = 0
            for module in {"DXT_POSIX", "DXT_MPIIO"} & set(log.modules):
                log.mod_read_all_dxt_records(module)
                for frame in log.records[module].to_df():
                    rows += len(frame["read_segments"]) + len(frame["write_segments"])
            return rows

    return run


def report(path: Path, runs: dict[str, Run], seconds: dict[str, float]) -> None:
    """Print times, ratios and what is required."""
    rows, found = runs[OURS](), runs[PEER]()
    mine = seconds[OURS]
    limit = min((n for n in seconds if n not in (OURS, PEER)), key=lambda n: seconds[n])
    print(f"{path.name}: {rows:,} traced operations; medians of {REPEATS} interleaved repeats")
    for name, median in seconds.items():
        label = name if name in (OURS, PEER) else f"inflate only, {name}"
        print(f"  {label:<32} {median * 1e3:9.2f} ms")
    print(f"ours / limit ({limit}): {mine / seconds[limit]:.2f}, required <= {MOST_TIMES_LIMIT}")
    if found != rows:
        print(f"PyDarshan gave {found:,} of {rows:,} operations: no ratio")
        return
    print(f"PyDarshan / ours: {seconds[PEER] / mine:.1f}, required >= {LEAST_TIMES_PEER:.0f}")


if __name__ == "__main__":
    main()
