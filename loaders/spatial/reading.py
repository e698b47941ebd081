"""One rank's part of a sample: what it reads itself, and what it completes with its group.

`BlockReader.begin` is local and may run in a thread ahead of training; `complete` sends and
receives, and is called by the training thread once all ranks know that nobody failed.

Where a block consists of short runs, reading in two phases may be worth it (`Joint`): each rank
reads a share of the array in one piece, then ranks exchange. Each share has as many elements as its
rank's block, so every byte of the array is read once, also with a halo, and each rank reads exactly
as much as its block holds. It is what MPI-IO's collective reads do, with two differences: it works
without MPI, and ranks agree that all have read before they exchange. With everything in the first
share it is the scatter that spatial parallelism replaces.
"""

from __future__ import annotations

import math
import mmap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.coalesce import REPEATS, StorageSpeed, measure_storage
from ..data.pread import ReadTotals
from ..data.samples import Field, Place
from ..errors import InputError
from ..ranks.messages import Attempt, Message, Transport
from .grid import (
    Box,
    Division,
    Piece,
    Sharing,
    Window,
    count_elements,
    count_extent,
    index_slices,
    intersect,
    make_plain_window,
    run_length,
    run_starts,
    shift_into,
    shift_out_of,
    split_range_into_boxes,
    whole,
)
from .layouts import (
    BLOCK_NBYTES,
    Chunked,
    Contiguous,
    Fill,
    Layout,
    Opener,
    RawFile,
    describe,
    measure_chunk_overlap,
    open_boxes,
    open_boxes_by_mpi,
    open_through_gaps,
)

READ_MODES: dict[str, str] = {
    "auto": "short runs as measured: collective, gaps or posix; long ones independent or posix",
    "independent": "the block's own runs through MPI-IO",
    "posix": "the block's own runs through pread",
    "gaps": "the block's runs and the gaps between them through pread",
    "collective": "a level share in one piece, then an exchange",
    "scatter": "baseline: the first rank of a group reads all and scatters",
    "crop": "baseline: every rank reads all and crops",
}
"""Way of reading -> what it does."""
JOINT_MODES = ("collective", "scatter")
"""Ways that need ranks which can tell each other something."""
LONG_RUN_NBYTES = 1 << 20
"""Runs at least that long are read one by one: a request's latency is small beside them."""
MOST_LAYOUTS = 4096  # headers that are kept; one is some hundred bytes


@dataclass(frozen=True)
class Array:
    """One array of every sample.

    Attributes:
        field: Name, shape and type.
        division: How it is divided; None: every rank gets all of it.
        source: Sample -> where it lies.
    """

    field: Field
    division: Division | None
    source: Callable[[int], Place | RawFile]

    def window(self, part: int) -> Window:
        """What a part needs of it."""
        shape = self.field.shape
        if self.division is None:
            return make_plain_window(shape, whole(shape))
        return self.division.window(shape, part)

    @property
    def dtype(self) -> np.dtype[Any]:
        """In memory: native byte order."""
        return np.dtype(self.field.dtype).newbyteorder("=")

    def most_nbytes(self) -> int:
        """Bytes of the largest part's block with its halo, in memory."""
        parts = self.division.parts if self.division else 1
        windows = (self.window(part) for part in range(parts))
        return max(math.prod(window.full_shape) for window in windows) * self.dtype.itemsize

    def run_nbytes(self, dtype: np.dtype[Any]) -> int:
        """Bytes of the shortest contiguous run of any part in C order: the same on all ranks."""
        assert self.division is not None
        shape = self.field.shape
        windows = (self.division.window(shape, part) for part in range(self.division.parts))
        lengths = (run_length(shape, piece.source) for w in windows for piece in w.pieces)
        return min(lengths) * dtype.itemsize


@dataclass(frozen=True)
class Unfinished:
    """An array of a sample that waits for the exchange: this rank's share, and where it goes."""

    array: Array
    joint: Joint
    share: NDArray[Any]
    out: NDArray[Any]


@dataclass
class Begun:
    """What was read of one or more samples, and what waits for the exchange."""

    moved: ReadTotals = field(default_factory=ReadTotals)
    unfinished: list[Unfinished] = field(default_factory=list)


@dataclass(frozen=True)
class Transfer:
    """A box of the array that `sender` has read and `receiver` needs.

    Attributes:
        sender: Part that read it.
        receiver: Part whose window holds it.
        begin: First element of `held`, counted from the begin of the sender's share.
        held: The box in C order in the sender's share, of which `cut` is sent.
        cut: What is sent, counted from the corner of `held`.
        target: Where it goes in the array that the receiver's window reads.
    """

    sender: int
    receiver: int
    begin: int
    held: Box
    cut: Box
    target: Box

    def view(self, share: NDArray[Any]) -> NDArray[Any]:
        """The elements in the sender's share (flat)."""
        held = share[self.begin : self.begin + count_elements(self.held)].reshape(
            count_extent(self.held)
        )
        return held[index_slices(self.cut)]

    def take(self, share: NDArray[Any]) -> NDArray[Any]:
        """The elements to send, contiguous."""
        return np.ascontiguousarray(self.view(share))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of what is sent."""
        return count_extent(self.cut)


@dataclass(frozen=True)
class Joint:
    """Shares of all parts, [start, stop) in C order of the array, and what they exchange."""

    shares: tuple[tuple[int, int], ...]
    transfers: tuple[Transfer, ...]

    def sent(self, part: int) -> list[Transfer]:
        """What a part gives away, in order."""
        return [each for each in self.transfers if each.sender == part != each.receiver]

    def received(self, part: int) -> list[Transfer]:
        """What a part gets, in order."""
        return [each for each in self.transfers if each.receiver == part != each.sender]

    def kept(self, part: int) -> list[Transfer]:
        """What a part has read itself."""
        return [each for each in self.transfers if each.receiver == part == each.sender]


class BlockReader:
    """Reads one part of samples.

    Args:
        arrays: Of every sample.
        sharing: Which part, of which group.
        transport: To the ranks that exchange; it says whether MPI is there.
        read_mode: One of `READ_MODES`.
    """

    def __init__(
        self, arrays: Sequence[Array], sharing: Sharing, transport: Transport, read_mode: str
    ) -> None:
        self.arrays, self._sharing = tuple(arrays), sharing
        self._transport, self._read_mode = transport, read_mode
        # MPI-IO where there is MPI, unless POSIX was asked for.
        use_mpi = transport.mpi and read_mode != "posix"
        self._opener: Opener = open_boxes_by_mpi if use_mpi else open_boxes
        self._windows = {each.field.name: each.window(sharing.part) for each in arrays}
        self._joints: dict[tuple[str, str], Joint] = {}
        self._layouts: dict[tuple[Any, ...], Layout] = {}
        self._speeds: Speeds | None = None
        self._fastest: dict[str, str] = {}
        self.chunk_overlap: float | None = None
        """Chunks that the parts read / chunks, of filtered arrays; None: none was seen."""

    def shape(self, array: Array) -> tuple[int, ...]:
        """Of this part's block with its halo."""
        return self._windows[array.field.name].full_shape

    def measure(self, sample: int, epoch_samples: int) -> ReadTotals:
        """Measures what `auto` chooses by, where a run is short; what was read for it.

        Every rank calls it, or none. Without it, or where a rank reads too little to be worth it,
        short runs are shared where ranks are connected.

        Args:
            sample: To read from.
            epoch_samples: That this rank reads in its first epoch.

        Raises:
            InputError: A file cannot be read, by this rank or another.
        """
        if self._read_mode != "auto" or self._sharing.parts == 1:
            return ReadTotals()
        # All ranks describe a file before any of them reads, and give up together.
        with Attempt() as describing:
            described = [
                (each, self._describe(each, each.source(sample))[0]) for each in self.arrays
            ]
        describing.agree(self._transport)
        # The first array of short runs that is worth it: speeds are of storage, not of arrays.
        for array, layout in described:
            if isinstance(layout, Contiguous) and self._is_short(array, layout):
                nbytes = epoch_samples * layout.nbytes // self._sharing.parts
                if nbytes >= LEAST_NBYTES:
                    run = array.run_nbytes(layout.dtype)
                    self._speeds, totals = measure_speeds(
                        layout, nbytes, run, self._sharing.parts, self._transport
                    )
                    return totals
        return ReadTotals()

    def begin(self, sample: int, out: Mapping[str, NDArray[Any]]) -> Begun:
        """Reads into `out` (by name of the field) what needs no exchange, and a share of the rest.

        Raises:
            InputError: A file is missing, damaged, or not of the described shape.
            OSError: It cannot be read.
        """
        begun = Begun()
        for array in self.arrays:
            target = out[array.field.name]
            layout, row = self._describe(array, array.source(sample))
            read_mode = self._choose_read_mode(array, layout)
            # Shared short runs wait for the exchange; all else is read straight to its place.
            if read_mode in JOINT_MODES:
                key = (array.field.name, read_mode)
                if key not in self._joints:
                    assert array.division is not None
                    shares = plan_level_shares if read_mode == "collective" else plan_one_reader
                    self._joints[key] = shares(array.field.shape, array.division)
                joint = self._joints[key]
                share, moved = self._read_share(layout, row, joint.shares[self._sharing.part])
                begun.unfinished.append(Unfinished(array, joint, share, target))
            else:
                window = self._windows[array.field.name]
                moved = self._read_window(layout, row, window, target, read_mode)
            begun.moved += moved
        return begun

    def complete(self, unfinished: Sequence[Unfinished]) -> int:
        """Exchanges shares and fills what waits for them; bytes received. Every rank calls it."""
        # Post all messages of all arrays, then wait once.
        sends, receives = list[Message](), list[Message]()
        placed = [(each, self._open_landing(each)) for each in unfinished]
        arrived = [self._post(each, raw, sends, receives) for each, raw in placed]
        self._transport.start(sends, receives).wait()
        # What came goes to its box; padding and edges last.
        for (each, raw), boxes in zip(placed, arrived, strict=True):
            for target, content in boxes:
                raw[index_slices(target)] = content
            if raw is not each.out:
                each.out[...] = self._windows[each.array.field.name].finish(raw)
        return sum(content.nbytes for _, content in receives)

    def _open_landing(self, each: Unfinished) -> NDArray[Any]:
        """Where the window's elements go as they were read: to their place, where that can be."""
        window = self._windows[each.array.field.name]
        if window.plain and each.share.dtype == each.out.dtype:
            return each.out
        return np.empty(window.shape, each.share.dtype)

    def _post(
        self, each: Unfinished, raw: NDArray[Any], sends: list[Message], receives: list[Message]
    ) -> list[tuple[Box, NDArray[Any]]]:
        """Lists what to send and to receive; keeps what this rank read for itself."""
        part, group = self._sharing.part, self._sharing.group

        # Pieces of its own are copied, those of others sent; what comes gets a place.
        for transfer in each.joint.kept(part):
            raw[index_slices(transfer.target)] = transfer.view(each.share)
        for transfer in each.joint.sent(part):
            rank = self._sharing.rank_of(group, transfer.receiver)
            sends.append((rank, transfer.take(each.share)))
        boxes = []
        for transfer in each.joint.received(part):
            content = np.empty(transfer.shape, each.share.dtype)
            receives.append((self._sharing.rank_of(group, transfer.sender), content))
            boxes.append((transfer.target, content))
        return boxes

    def _choose_read_mode(self, array: Array, layout: Layout) -> str:
        """The way for one array: the same on all ranks, as all see the same file."""
        if array.division is None or self._sharing.parts == 1:
            return "own"
        # Only runs in C order can be shared as ranges and exchanged.
        in_order = isinstance(layout, Contiguous) and not layout.fortran
        if self._read_mode == "auto" and in_order and self._is_short(array, layout):
            # The way that was measured to be the fastest.
            connected, name = self._transport.connected, array.field.name
            if self._speeds is None:
                return "collective" if connected else "own"
            if name not in self._fastest:
                parts, itemsize = self._sharing.parts, layout.dtype.itemsize
                windows = [array.window(part) for part in range(parts)]
                cuts = [
                    Cut.of(array.field.shape, itemsize, p.source) for w in windows for p in w.pieces
                ]
                self._fastest[name] = choose_fastest(cuts, parts, self._speeds, connected=connected)
            return self._fastest[name]
        if self._read_mode == "collective":
            return "collective" if in_order else "own"
        return self._read_mode if self._read_mode in ("scatter", "crop", "gaps") else "own"

    def _is_short(self, array: Array, layout: Layout) -> bool:
        return array.division is not None and array.run_nbytes(layout.dtype) < LONG_RUN_NBYTES

    def _read_share(
        self, layout: Layout, row: int | None, share: tuple[int, int]
    ) -> tuple[NDArray[Any], ReadTotals]:
        """Elements [start, stop) of one sample's array, flat."""
        start, stop = share
        content = np.empty(stop - start, layout.dtype)
        if start == stop:
            return content, ReadTotals()
        shape = layout.shape if row is None else layout.shape[1:]
        # A range of a contiguous array is one read; else rank 0 reads all, chunk by chunk.
        if isinstance(layout, Contiguous) and not layout.fortran:
            first = (row or 0) * int(np.prod(shape)) + start
            flat = layout.flat(first, first + stop - start)
            return content, flat.read(
                make_plain_window(flat.shape, whole(flat.shape)).pieces, content, self._opener
            )
        everything = make_plain_window(shape, whole(shape))
        whole_out = content.reshape(shape)
        return content, self._read_pieces(layout, row, everything, whole_out, self._opener)

    def _read_window(
        self,
        layout: Layout,
        row: int | None,
        window: Window,
        out: NDArray[Any],
        read_mode: str,
    ) -> ReadTotals:
        crop, opener = read_mode == "crop", self._opener
        if read_mode == "gaps":
            opener = self._through_gaps
        # Straight to its place where nothing has to be cut, padded or converted.
        if window.plain and layout.dtype == out.dtype and not crop:
            return self._read_pieces(layout, row, window, out, opener)
        # Read beside, then cut, padded or converted to its place.
        raw = np.empty(window.shape, layout.dtype)
        if crop:
            shape = layout.shape if row is None else layout.shape[1:]
            full = np.empty(shape, layout.dtype)
            everything = make_plain_window(shape, whole(shape))
            moved = self._read_pieces(layout, row, everything, full, opener)
            for piece in window.pieces:
                raw[index_slices(piece.target)] = full[index_slices(piece.source)]
        else:
            moved = self._read_pieces(layout, row, window, raw, opener)
        out[...] = window.finish(raw)
        return moved

    def _through_gaps(self, path: Path) -> AbstractContextManager[Fill]:
        most = self._speeds.block_nbytes if self._speeds else BLOCK_NBYTES
        return open_through_gaps(path, most)

    def _read_pieces(
        self,
        layout: Layout,
        row: int | None,
        window: Window,
        out: NDArray[Any],
        opener: Opener,
    ) -> ReadTotals:
        if row is None:
            return layout.read(window.pieces, out, opener)
        pieces = [Piece(((row, row + 1), *p.source), ((0, 1), *p.target)) for p in window.pieces]
        return layout.read(pieces, out[np.newaxis], opener)

    def _describe(self, array: Array, source: Place | RawFile) -> tuple[Layout, int | None]:
        # Samples of one file have one layout: its header is read once.
        row = source.row if isinstance(source, Place) else None
        key = (source.path, source.dataset) if isinstance(source, Place) else (source,)
        if key not in self._layouts:
            if len(self._layouts) >= MOST_LAYOUTS:
                self._layouts.clear()
            layout = self._layouts[key] = describe(source)
            # Chunks with filters are decoded whole, by each rank whose part they touch.
            if array.division is not None and isinstance(layout, Chunked) and layout.code.filters:
                sides = layout.code.shape[-len(array.field.shape) :]
                overlap = measure_chunk_overlap(array.field.shape, sides, array.division)
                self.chunk_overlap = max(overlap, self.chunk_overlap or 0.0)
        layout = self._layouts[key]
        found = layout.shape if row is None else layout.shape[1:]
        if found != array.field.shape:
            raise InputError(
                f"expected {array.field.name} of shape {array.field.shape} in {source.path}, "
                f"found {found}: make the data again"
            )
        return layout, row


def plan_level_shares(shape: tuple[int, ...], division: Division) -> Joint:
    """Shares as large as the blocks."""
    sizes = [count_elements(division.block(shape, part)) for part in range(division.parts)]
    ends = list(accumulate(sizes, initial=0))
    return _plan_joint(shape, division, list(pairwise(ends)))


def plan_one_reader(shape: tuple[int, ...], division: Division) -> Joint:
    """All in the share of part 0."""
    everything = count_elements(tuple((0, n) for n in shape))
    rest = [(everything, everything)] * (division.parts - 1)
    return _plan_joint(shape, division, [(0, everything), *rest])


def _plan_joint(
    shape: tuple[int, ...], division: Division, shares: Sequence[tuple[int, int]]
) -> Joint:
    """The shares, and every box that one part has read and another needs."""
    # Who needs what: the window of each part, halo included.
    windows = [division.window(shape, part) for part in range(division.parts)]
    transfers = []
    for sender, share in enumerate(shares):
        # A share is a range in C order: boxes, one behind the other.
        boxes = list(split_range_into_boxes(shape, *share))
        begins = [0, *accumulate(map(count_elements, boxes))]
        for receiver, window in enumerate(windows):
            # What both have in common, in coordinates of the box held and of the window read.
            for begin, held in zip(begins, boxes, strict=False):
                for piece in window.pieces:
                    common = intersect(held, piece.source)
                    if common is None:
                        continue
                    target = shift_out_of(shift_into(common, piece.source), piece.target)
                    cut = shift_into(common, held)
                    transfers.append(Transfer(sender, receiver, begin, held, cut, target))
    return Joint(tuple(shares), tuple(transfers))


# How to read short runs: one by one, through the gaps between them, or shared and exchanged.
#
# What each takes follows from the latency and bandwidth of the storage, while all ranks read, from
# the speed of messages between them and of copying runs in memory, which counts where storage is
# fast. All are measured once, and ranks agree on the slowest.

MEASURED_SHARE = 0.03
"""Of what a rank reads in its first epoch, at most, to measure the storage's speed."""
_ROW_NBYTES, _LEAST_ROWS = 4096, 5
LEAST_NBYTES = round(_LEAST_ROWS * _ROW_NBYTES / MEASURED_SHARE)
"""Of a rank's first epoch: of less, the measurement would be more than its share."""
MOST_BLOCK_NBYTES, _LATENCIES = 4 << 20, 4
_MESSAGE_NBYTES = 256 << 10
_COPIED_NBYTES = 4 << 20  # too large for the allocator to give the same memory again
_MESSAGE_TIMEOUT_S = 300.0  # a rank may still be reading


@dataclass(frozen=True)
class Speeds:
    """What reading and exchanging cost a rank while all do it.

    Attributes:
        latency_s: Of a request.
        bytes_per_s: Of storage.
        message_bytes_per_s: From one rank to another.
        copy_bytes_per_s: Of copying short runs in memory.
        shared_bytes_per_s: Of what another rank has just read: ranks of a node have one page cache.
    """

    latency_s: float
    bytes_per_s: float
    message_bytes_per_s: float = np.inf
    copy_bytes_per_s: float = np.inf
    shared_bytes_per_s: float = 0.0

    @property
    def block_nbytes(self) -> int:
        """To read at once through gaps: a request's latency is a fifth of its time, at most.

        Within what suits a processor's cache and `MOST_BLOCK_NBYTES`.
        """
        wanted = _LATENCIES * self.latency_s * self.bytes_per_s
        return int(min(max(wanted, BLOCK_NBYTES), MOST_BLOCK_NBYTES))


@dataclass(frozen=True)
class Cut:
    """What a part is of a contiguous array: runs, their bytes, and those with the gaps between."""

    runs: int
    nbytes: int
    span_nbytes: int

    @classmethod
    def of(cls, shape: tuple[int, ...], itemsize: int, box: Box) -> Cut:
        """The cut of one box."""
        length, starts = run_length(shape, box), run_starts(shape, box)
        span = int(starts[-1] - starts[0]) + length
        return cls(len(starts), count_elements(box) * itemsize, span * itemsize)


def choose_fastest(cuts: Iterable[Cut], parts: int, speeds: Speeds, *, connected: bool) -> str:
    """`own`, `gaps` or `collective`: what takes the slowest part of a sample least time."""
    cuts = list(cuts)
    own, span = (max(getattr(cut, name) for cut in cuts) for name in ("nbytes", "span_nbytes"))
    # Shorter pieces of a range are read one behind the other: storage reads ahead meanwhile.
    blocks = -(-span // MOST_BLOCK_NBYTES)
    time_s = {
        "own": max(cut.runs for cut in cuts) * speeds.latency_s + own / speeds.bytes_per_s,
        # What is cut from a block in the processor's cache to its place costs little more.
        "gaps": blocks * speeds.latency_s + _estimate_read_by_all(span, parts, speeds),
    }
    if connected:
        exchanged = own * (parts - 1) / parts
        copied = own + exchanged  # what is sent is made contiguous, and all goes to its place
        time_s["collective"] = speeds.latency_s + own / speeds.bytes_per_s
        time_s["collective"] += exchanged / speeds.message_bytes_per_s
        time_s["collective"] += copied / speeds.copy_bytes_per_s
    return min(time_s, key=lambda name: time_s[name])


def _estimate_read_by_all(nbytes: int, parts: int, speeds: Speeds) -> float:
    """Seconds until every part has the same bytes; with one page cache each fetches a share."""
    alone = nbytes / speeds.bytes_per_s
    if not speeds.shared_bytes_per_s:
        return alone
    return min(alone, alone / parts + nbytes / speeds.shared_bytes_per_s)


def measure_speeds(
    layout: Contiguous, epoch_nbytes: int, run_nbytes: int, parts: int, transport: Transport
) -> tuple[Speeds, ReadTotals]:
    """The speeds of the slowest rank, and what this one read for it; every rank calls it.

    Args:
        layout: Of a file to read from.
        epoch_nbytes: That a rank reads in its first epoch; `MEASURED_SHARE` of it is read.
        run_nbytes: Of the runs that are copied.
        parts: Neighbouring ranks that share a sample.
        transport: Between the ranks.

    Raises:
        InputError: The file cannot be read, by this rank or another.
    """
    # Each rank in a place of its own, so that none finds what another has read.
    rank, ranks = transport.world.rank, transport.world.ranks
    probe = _Probe(layout, int(epoch_nbytes * MEASURED_SHARE) // _ROW_NBYTES)
    with Attempt() as probing:
        storage = probe.storage(rank / ranks)
        probe.piece((rank + 0.25) / ranks)
    probing.agree(transport)

    # What the rank beside has just read, which comes from memory where they share a node.
    beside = rank - rank % parts + (rank + 1) % parts
    with Attempt() as probing:
        shared = probe.piece((beside + 0.25) / ranks)
    probing.agree(transport)

    # Every rank goes by the slowest.
    # Bytes per second of copying runs with gaps as long between them to memory that is new. As
    # arrays of an exchange are: too large for the allocator to use their memory again.
    rows = max(1, _COPIED_NBYTES // run_nbytes)
    held, seconds = np.ones((rows, 2 * run_nbytes), np.uint8), list[float]()
    for _ in range(3):
        out = np.frombuffer(mmap.mmap(-1, rows * run_nbytes), np.uint8).reshape(rows, run_nbytes)
        begin = time.perf_counter()
        out[:] = held[:, :run_nbytes]
        seconds.append(time.perf_counter() - begin)
    copies = rows * run_nbytes / float(np.median(seconds))
    memory = _time_messages(transport), copies, shared
    of_ranks = transport.gather((storage.latency_s, storage.bytes_per_s, *memory))
    latency, *others = zip(*of_ranks, strict=True)
    return Speeds(max(latency), *map(min, others)), probe.totals


class _Probe:
    """Reads at most so many rows of a file, in places that depend on the rank."""

    def __init__(self, layout: Contiguous, most_rows: int) -> None:
        rows = max(1, layout.nbytes // _ROW_NBYTES)
        nbytes = min(_ROW_NBYTES, layout.nbytes)
        self._shape, self._most = (rows, nbytes), most_rows
        self._whole = Contiguous(layout.path, layout.offset, self._shape, np.dtype(np.uint8))
        self._piece = max(1, min(most_rows // 8, rows // 8))
        self.totals = ReadTotals()

    def storage(self, place: float) -> StorageSpeed:
        """Latency and bandwidth; `place`, 0 to 1, keeps ranks apart."""
        rows, nbytes = self._shape
        away = int(rows * place / (2 * REPEATS))
        with open_boxes(self._whole.path) as fill:

            def read(start: int, stop: int) -> None:
                first = min(start + away, rows - (stop - start))
                out = np.empty((stop - start) * nbytes, np.uint8)
                self._read(fill, first, first + stop - start, out)

            return measure_storage(read, rows, nbytes, max(3, self._most - 2 * self._piece))

    def piece(self, place: float) -> float:
        """Bytes per second of a piece at `place`, 0 to 1."""
        first = int((self._shape[0] - self._piece) * place)
        out = np.ones(self._piece * self._shape[1], np.uint8)  # memory that was written before
        with open_boxes(self._whole.path) as fill:
            begin = time.perf_counter()
            self._read(fill, first, first + self._piece, out)
            return out.nbytes / (time.perf_counter() - begin)

    def _read(self, fill: Fill, start: int, stop: int, out: NDArray[np.uint8]) -> None:
        self.totals += fill(self._whole, ((start, stop), (0, self._shape[1])), out)


def _time_messages(transport: Transport) -> float:
    """Bytes per second from one rank to the next, all at once; without others: no limit."""
    rank, ranks = transport.world.rank, transport.world.ranks
    if not transport.connected or ranks == 1:
        return np.inf
    outgoing, incoming = np.zeros(_MESSAGE_NBYTES, np.uint8), np.empty(_MESSAGE_NBYTES, np.uint8)
    seconds = list[float]()
    for _ in range(3):  # the first connects
        begin = time.perf_counter()
        to, source = (rank + 1) % ranks, (rank - 1) % ranks
        transport.start([(to, outgoing)], [(source, incoming)]).wait(_MESSAGE_TIMEOUT_S)
        seconds.append(time.perf_counter() - begin)
    return _MESSAGE_NBYTES / min(seconds)
