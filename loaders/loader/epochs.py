"""The iteration that loaders share: epochs, timed batches, and going on in the middle of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, ClassVar, Protocol

from ..errors import UsageError
from .loader import Batch, Counts, Settings, Spanned, Stats, Waited
from .stalls import ATTEMPTS, WaitWatch


class Position:
    """Epoch and batches handed out in it.

    Who `end`s an epoch goes on with the next one, unless `set_epoch` says otherwise: not every
    training framework tells loaders the epoch.

    `identity` is what decides the stream of ids (seed, ranks, batch ...): a state of another
    stream is refused, because going on in it would repeat some samples and miss others.

    Args:
        identity: As above.
        steps: Of an epoch that is over with its last batch, whether or not somebody asks for one
            more; None: it is over where `end` says so.
    """

    def __init__(self, identity: Mapping[str, Any], steps: int | None = None) -> None:
        self._identity, self._steps = dict(identity), steps
        self._resumed = self._ended = False
        self.epoch = 0
        self.step = 0

    def set_epoch(self, epoch: int) -> None:
        """The next iteration goes through `epoch`: from its start, or from a loaded step in it."""
        self._ended = False
        if not (self._resumed and epoch == self.epoch):
            self.epoch, self.step, self._resumed = epoch, 0, False

    def begin(self, *, leaves: bool = False) -> int:
        """Starts an iteration; the batches of the epoch to skip: 0 unless a state was loaded.

        An epoch that was left before its end is begun anew; where the caller `leaves` it, the next
        one is.
        """
        if not self._resumed:
            # An epoch that was gone through is over, also where the loop stopped with its last
            # batch.
            through = self._ended or self.step == self._steps
            self.epoch += through or (leaves and self.step > 0)
            self.step = 0
        self._resumed = self._ended = False
        return self.step

    def end(self) -> None:
        """All batches of the epoch were handed out."""
        self._ended = True

    def state_dict(self) -> dict[str, Any]:
        """Epoch, batches handed out in it, and the identity of the stream.

        Behind an epoch that has ended it is the start of the next one.
        """
        if self._ended:
            return {"epoch": self.epoch + 1, "step": 0} | self._identity
        return {"epoch": self.epoch, "step": self.step} | self._identity

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration starts behind the last batch of `state`.

        Raises:
            UsageError: The state is of another stream.
        """
        # In another stream of ids some samples would come twice and others never.
        identity = {key: state.get(key) for key in self._identity}
        if identity != self._identity:
            raise UsageError(f"expected a state of {self._identity}, found {identity}: start again")
        self.epoch, self.step, self._resumed = int(state["epoch"]), int(state["step"]), True
        self._ended = False


class Stream(Protocol):
    """Batches that are read, maybe ahead by threads or processes."""

    def __iter__(self) -> Iterator[Batch]:
        """Itself."""

    def __next__(self) -> Batch:
        """The next batch."""

    def close(self) -> None:
        """Ends the reading."""


class EpochLoader(ABC):
    """A `Loader` but for what it reads: a subclass gives the batches of an epoch.

    Args:
        settings: As for every loader.
        counts: Where reads are counted.
        steps: Of a full epoch: the same on every rank.
        identity: What decides the stream of ids of a rank, see `Position`.
    """

    marks_next: ClassVar[bool] = True
    """Batches are taken inside the profiler's span; False where PyTorch's DataLoader does that."""

    advances: ClassVar[bool] = False
    """An iteration behind a whole one goes through the next epoch, as far as `set_epoch` is silent.

    False: through the same one again, as PyTorch's DistributedSampler has it.
    """

    leaves: ClassVar[bool] = False
    """Where it advances: behind an epoch that was left before its end, too."""

    def __init__(
        self, settings: Settings, counts: Counts, steps: int, identity: Mapping[str, Any]
    ) -> None:
        self._settings, self._counts, self._length = settings, counts, steps
        self._position = Position(identity, steps if self.advances else None)
        self._waits = list[float]()
        self._stream: Stream | None = None

    @abstractmethod
    def _batches(self, epoch: int, start: int) -> Stream:
        """The batches of an epoch from step `start` on; what runs before its first is not timed."""

    def __iter__(self) -> Iterator[Batch]:
        """The batches of the epoch. An iteration that is still open ends."""
        # A loader has one stream: the iteration before this one ends here.
        self._end_stream()
        start = self._position.begin(leaves=self.leaves)
        self._stream = stream = self._batches(self._position.epoch, start)
        timed = Waited(stream, self._waits)
        if self.marks_next:
            timed = Spanned(stream, self._waits, name=type(self).__name__)
        # A thread says when the training process has waited long for a batch.
        world, most_s = self._settings.world, ATTEMPTS * self._settings.read_timeout_s
        what = f"rank {world.rank} of {world.ranks}, waiting for a batch,"
        with closing(stream), WaitWatch(lambda: timed.since, what, most_s):
            for batch in timed:
                self._position.step += 1
                yield batch
        if self.advances:
            self._position.end()

    def __len__(self) -> int:
        """Steps of an epoch: the same on every rank."""
        return self._length

    def set_epoch(self, epoch: int) -> None:
        """The next iteration goes through `epoch`."""
        self._position.set_epoch(epoch)

    @property
    def sampler(self) -> EpochLoader:
        """Itself: Lightning tells the epoch to the sampler of a loader."""
        return self

    def stats(self) -> Stats:
        """What was read, and the waits of this process."""
        return self._counts.stats(self._waits)

    def state_dict(self) -> dict[str, Any]:
        """Epoch, step, and what has to be the same to go on."""
        return self._position.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on behind the last batch of `state`.

        Raises:
            UsageError: The state is of another stream: seed, batch, number of ranks or samples.
        """
        self._position.load_state_dict(state)

    def close(self) -> None:
        """Ends an open iteration."""
        self._end_stream()

    def _end_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream = None
