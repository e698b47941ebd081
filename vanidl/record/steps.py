"""Has the command's Python processes record their steps, with no change of the program.

A folder with a `sitecustomize` goes to the front of PYTHONPATH: Python imports it at its start.
What is in it runs in the program's own Python, which need not have vanidl.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from vanidl.errors import UsageError
from vanidl.schema.dataclass import dataclass

FOLDER = "steps"
PROFILED_STEPS = 10
_INJECTED = Path(__file__).parent / "injected"
_PYTHONPATH = "PYTHONPATH"
_FOUND = "named-"  # how the hooks say that they found what was named
_NAMED = re.compile(r"[\w.]+:[\w.]+")


WARM_UP = 20
MEMORY_NBYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Replay:
    """How batches are handed out from memory; `vanidl_steps/replay.py` does it."""

    warm_up: int = WARM_UP  # batches of each loader that are real, copies of which are kept
    nbytes: int = MEMORY_NBYTES  # of each process for these copies
    epoch_batches: int | None = None  # of a pass over a loader that does not know its length

    def __post_init__(self) -> None:
        if (
            self.warm_up < 1
            or self.nbytes < 1
            or (self.epoch_batches is not None and self.epoch_batches < 1)
        ):
            raise UsageError(
                "ceiling: expected at least 1 batch of warm-up, 1 byte of memory and 1 batch in a "
                f"pass, found {self.warm_up}, {self.nbytes} and {self.epoch_batches}."
            )


def make_environment(
    run: Path,
    waits: Sequence[str] = (),
    profile_steps: int | None = None,
    replay: Replay | None = None,
    trains: Sequence[str] = (),
) -> dict[str, str]:
    """The variables that have steps recorded into a folder of the run, which is made.

    Args:
        run: the RUN.
        waits: `MODULE:NAME` of iterators beside those that are known.
        profile_steps: how many steps PyTorch's profiler is switched on for; None: for none.
        replay: how batches come from memory, None where they do not.
        trains: `MODULE:NAME` of functions each call of which is a step of training.

    Raises:
        UsageError: one of these is written otherwise.
    """
    wrong = next((word for word in waits if not _NAMED.fullmatch(word)), None)
    if wrong is not None:
        raise UsageError(
            f"--wait {wrong}: expected MODULE:NAME, a class that is iterated over or a function "
            "that returns an iterator, for example my_project.data:Batches."
        )
    wrong = next((word for word in trains if not _NAMED.fullmatch(word)), None)
    if wrong is not None:
        raise UsageError(
            f"--train {wrong}: expected MODULE:NAME, a function each call of which is a step of "
            "training, for example my_project.training:train_step."
        )
    # Not above: the arguments of every command import this module, and that one imports numpy.
    from vanidl.record.processes import RANK_VARIABLES

    folder = run / FOLDER
    with suppress(OSError):  # the command runs as well; what is missing, run.json says
        folder.mkdir(parents=True, exist_ok=True)
    before = os.environ.get(_PYTHONPATH)
    limits = None if replay is None else (replay.warm_up, replay.nbytes, replay.epoch_batches or "")
    return {
        _PYTHONPATH: f"{_INJECTED}{os.pathsep}{before}" if before else str(_INJECTED),
        "VANIDL_STEPS": str(folder),
        "VANIDL_RANK_VARIABLES": ",".join(RANK_VARIABLES),
        "VANIDL_WAITS": ",".join(waits),
        "VANIDL_TRAINS": ",".join(trains),
        **({} if profile_steps is None else {"VANIDL_PROFILE": str(profile_steps)}),
        **({} if limits is None else {"VANIDL_CEILING": ",".join(map(str, limits))}),
    }


def explain_names_not_found(
    run: Path, waits: Sequence[str], trains: Sequence[str]
) -> Iterator[str]:
    """A sentence for each name that no process of the command had; removes what tells of others."""
    if not (waits or trains):
        return
    found = set[str]()
    with suppress(OSError):  # storage that fails by now: what it held is named as missing
        for path in (run / FOLDER).glob(f"{_FOUND}*"):
            found.add(path.name.removeprefix(_FOUND))
            path.unlink(missing_ok=True)
    for option, words in (("--wait", waits), ("--train", trains)):
        for word in words:
            module, _, name = word.partition(":")
            if word not in found:
                yield (
                    f"{option} {word}: no process of the command had {name} in {module}, or none "
                    "that it was told of: nothing of it is recorded."
                )
