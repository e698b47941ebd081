"""Where an iteration over epochs is, and where it goes on after a resume."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import UsageError


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
        found = {key: state.get(key) for key in self._identity}
        if found != self._identity:
            raise UsageError(f"expected a state of {self._identity}, found {found}: start again")
        self.epoch, self.step, self._resumed = int(state["epoch"]), int(state["step"]), True
        self._ended = False
