"""Two commands run alternately under the recorder, so that their comparison is fair.

The order is A B, B A, A B, ... : a machine that grows slower or faster adds to both sides
alike. The first pair only warms up (page cache, imports, device) and is not compared.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from vanidl.compare.runs import (
    CEILING,
    DROPPED,
    SIDES,
    WARM,
    Experiment,
    RecordedRun,
    save,
)
from vanidl.errors import UsageError, VanidlError
from vanidl.formatting.secret_hints import MASKED_WORD
from vanidl.formatting.secrets import masked
from vanidl.model.run_facts import Ending
from vanidl.readers.run_folder import AB_FILE
from vanidl.schema.dataclass import dataclass

PLACEHOLDER = "{run}"
"""In a command: the folder of the run. The recorder sets VANIDL_RUN to the same."""

DROP_CACHES = Path("/proc/sys/vm/drop_caches")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run, how often and where to. `pairs` are those that count."""

    a: str
    b: str
    folder: Path
    pairs: int = 5
    drop_caches: bool = False
    tracer: str = "auto"
    ceiling: bool = False  # beside each pair command A with batches from memory


class Recorded(Protocol):
    """What the recorder says of a finished command."""

    @property
    def exit_status(self) -> int:
        """0 where the command succeeded."""

    @property
    def tracer(self) -> str:
        """What recorded it."""

    @property
    def ending(self) -> Ending:
        """How it ended, and what is known of why."""


Recorder = Callable[[Sequence[str], Path, str], Recorded]
"""Called with (words of the command, folder of the run, tracer)."""

_SHOWN = {"a": "A", "b": "B", CEILING: "A with batches from memory"}

Progress = Callable[[str, int, int], None]
"""Called with (what runs, how many are done, how many in all)."""


def order(pairs: int, *, ceiling: bool = False) -> tuple[tuple[str, int], ...]:
    """(side, pair) of every run in turn: pair 0 warms up, sides swap places in each pair."""
    forth = (*SIDES, CEILING) if ceiling else SIDES
    turns = (forth, forth[::-1])
    return tuple((side, pair) for pair in range(pairs + 1) for side in turns[pair % 2])


def run_pairs(
    plan: Plan,
    recorder: Recorder,
    progress: Progress | None = None,
    from_memory: Recorder | None = None,
) -> Experiment:
    """Runs every command of the plan; the folder then holds ab.json and one folder a run.

    ab.json is written after each run, so what was recorded survives a stop. `from_memory` records
    the runs of a plan with a ceiling.

    Raises:
        UsageError: the plan cannot be run.
        VanidlError: a command failed, or the page cache cannot be dropped.
    """
    words = {
        side: _split_command(command, side) for side, command in (("a", plan.a), ("b", plan.b))
    }
    words[CEILING] = words["a"]
    _check_plan(plan)
    runs: list[RecordedRun] = []
    turns = order(plan.pairs, ceiling=plan.ceiling)
    # ABBA: a drift of the machine becomes spread, not a difference.
    for done, (side, pair) in enumerate(turns):
        if progress is not None:
            progress(f"{_SHOWN[side]}, {_name_pair(pair)}", done, len(turns))
        if plan.drop_caches:
            _drop_caches()
        name = f"{side}-{pair}"
        folder = (plan.folder / name).resolve()
        folder.mkdir()
        command = [word.replace(PLACEHOLDER, str(folder)) for word in words[side]]
        record = from_memory if side == CEILING and from_memory is not None else recorder
        start = time.perf_counter()
        recorded = record(command, folder, plan.tracer)
        wall_time_s = time.perf_counter() - start
        status = recorded.exit_status
        runs.append(RecordedRun(side, pair, name, wall_time_s, status, recorded.tracer))
        # Saved before anything can fail: what was recorded survives.
        save(_record_experiment(plan, runs), plan.folder)
        if status != 0:
            why = f" ({recorded.ending.last_error})" if recorded.ending.last_error else ""
            raise VanidlError(
                f"command {_SHOWN[side]} failed in {_name_pair(pair)} with exit status "
                f"{status}{why}: stopped. {len(runs)} of {len(turns)} runs are kept in "
                f"{plan.folder} ({AB_FILE} lists them)."
            )
    return _record_experiment(plan, runs)


def _split_command(command: str, side: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--{side} {command!r}: {error}. Check its quotes.") from error
    if not words:
        raise UsageError(f"--{side}: expected a command, found nothing.")
    return [MASKED_WORD.sub(lambda found: _read_secret(found[0][1:], side), word) for word in words]


def _read_secret(name: str, side: str) -> str:
    """The word that was masked in what vanidl printed: no shell replaces it within quotes."""
    if name not in os.environ:
        raise UsageError(
            f"--{side}: expected the masked word {name} in the environment, found none: export it "
            "with the value that the line above the command names."
        )
    return os.environ[name]


def _check_plan(plan: Plan) -> None:
    if plan.pairs < 1:
        raise UsageError(f"--repeat: expected at least 1 pair, found {plan.pairs}.")
    # A folder with files could be that of another experiment: its runs would be mixed in.
    try:
        plan.folder.mkdir(parents=True, exist_ok=True)
        taken = any(plan.folder.iterdir())
    except OSError as error:
        raise VanidlError(
            f"{plan.folder}: cannot hold the runs: {error.strerror}; choose another place with "
            "--runs."
        ) from error
    if taken:
        raise UsageError(
            f"{plan.folder}: expected a new or empty folder for the runs, found files in it; "
            "choose another with --runs."
        )
    # Tried once before the first run: without the rights for it nothing is measured.
    if plan.drop_caches:
        _drop_caches()


def _drop_caches() -> None:
    """Empties the page cache of the machine."""
    os.sync()
    try:
        DROP_CACHES.write_text("3\n")
    except OSError as error:
        raise VanidlError(
            f"--drop-caches: expected to be allowed to write to {DROP_CACHES}, found: "
            f"{error.strerror}. It needs root on the machine itself (not in a container); without "
            "it the caches are left alone."
        ) from error


def _record_experiment(plan: Plan, runs: Sequence[RecordedRun]) -> Experiment:
    policy = DROPPED if plan.drop_caches else WARM
    return Experiment(_mask_secrets(plan.a), _mask_secrets(plan.b), policy, tuple(runs))


def _mask_secrets(command: str) -> str:
    words = shlex.split(command)
    public = list(masked(words))
    return command if public == words else shlex.join(public)


def _name_pair(pair: int) -> str:
    return f"pair {pair}" if pair else "the warm-up pair"
