"""Recorded waits and steps against the times that the programs took themselves.

    python -m benchmarks.vanidl.step_truth [WORD...]

Runs every loop of benchmarks/programs/loops whose framework is installed (with WORDs: those with
one in their name) under `vanidl record`, which changes nothing in it, and compares each wait and
each step of the run. Limit: 1 ms or 1 %. A process that is stopped between two clocks is late in
one of them, so that on a busy machine some are `outside`. How long a program was kept from running
around each of its times is what the kernel counted (its run-queue delay): an error that is within
the limit without it is `stopped`, any other is `wrong`. Limit: none is wrong, none is missing.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import vanidl
from tests.makers.step_truth import PROGRAMS, Compared, against, joined
from vanidl.errors import VanidlError
from vanidl.record import record


@dataclass(frozen=True)
class Program:
    """One loop: what runs it, and the modules that it needs."""

    name: str
    command: tuple[str, ...]
    needs: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()  # --wait

    @property
    def missing(self) -> list[str]:
        """What it needs and is not installed."""
        modules = [name for name in self.needs if find_spec(name) is None]
        return modules if which(self.command[0]) else [self.command[0], *modules]


def _torch(name: str, *needs: str) -> Program:
    script = str(PROGRAMS / "torch_loops.py")
    return Program(f"torch {name}", (sys.executable, script, "TRUTH", name), ("torch", *needs))


def _script(
    name: str, *needs: str, more: tuple[str, ...] = (), waits: tuple[str, ...] = ()
) -> Program:
    words = (sys.executable, str(PROGRAMS / f"{name}.py"), "TRUTH", *more)
    return Program(" ".join((name.replace("_", " "), *more)), words, needs, waits)


def _launched(
    name: str, launcher: tuple[str, ...], script: str, *needs: str, more: tuple[str, ...] = ()
) -> Program:
    words = (str(PROGRAMS / f"{script}.py"), "TRUTH", *more)
    return Program(name, (*launcher, *words), ("torch", *needs))


MODULE = (sys.executable, "-m")
TORCHRUN = (*MODULE, "torch.distributed.run", "--standalone", "--nproc-per-node=4")
LAUNCH = (*MODULE, "accelerate.commands.launch", "--cpu", "--num_processes=1", "--num_machines=1")
MPIEXEC = ("mpiexec", "-n", "4", sys.executable)
KERAS = ("torch", "jax", "tensorflow")
GRAIN = ("map", "threads", "workers")
OWN = ("own_data:batches", "own_data:Counted")
EVERY = (
    *(_torch(name) for name in (
        "no-workers", "two-workers", "spawned", "forkserver", "persistent", "iterable",
        "iterable-workers", "two-optimizers", "validation", "accumulation", "grad-scaler",
        "inference", "break", "exception", "side-by-side", "profiled",
    )),
    _torch("stateful", "torchdata"),
    _torch("webdataset", "webdataset"),
    _script("accelerate_loop", "torch", "accelerate"),
    _script("lightning_fit", "torch", "lightning"),
    _script("trainer_fit", "torch", "transformers", "accelerate"),
    *(_script("keras_fit", "keras", name, more=(name, "fit")) for name in KERAS),
    _script("keras_fit", "keras", "tensorflow", more=("tensorflow", "own")),
    *(_script("jax_loops", "jax", "grain", more=(f"grain-{kind}",)) for kind in GRAIN),
    _script("jax_loops", "jax", more=("plain",), waits=("__main__:Batches",)),
    _script("jax_loops", "jax", more=("generated",), waits=OWN),
    _launched("accelerate launch", LAUNCH, "accelerate_loop", "accelerate"),
    _launched("torchrun 4 ranks", TORCHRUN, "torch_loops", more=("two-workers",)),
    _launched("mpiexec 4 ranks", MPIEXEC, "torch_loops", more=("two-workers",)),
)  # fmt: skip


def compared(program: Program, folder: Path) -> tuple[Compared, Compared]:
    """Waits and steps of all processes of a recorded run of it."""
    command = [str(folder / "truth") if word == "TRUTH" else word for word in program.command]
    record(command, folder / "RUN", tracer="none", waits=program.waits)
    every = against(vanidl.open_run(folder / "RUN").trace, folder)
    return joined([one.waits for one in every]), joined([one.steps for one in every])


def main(words: list[str]) -> int:
    """Prints a line a program; 1 where a limit is not kept."""
    failed = 0
    print(f"{'':28}{'waits':^51}{'steps':^51}")
    print(f"{'program':28}" + "   found       outside stopped  wrong  median   worst" * 2 + "  ms")
    for program in EVERY:
        if words and not any(word in program.name for word in words):
            continue
        if program.missing:
            print(f"{program.name:28}not installed: {', '.join(program.missing)}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                waits, steps = compared(program, Path(folder))
            except (RuntimeError, VanidlError) as error:
                print(f"{program.name:28}{error}")
                failed = 1
                continue
        good = not waits.unexplained and steps.agrees
        print(f"{program.name:28}{waits} {steps}{'' if good else '  <--'}")
        failed |= not good
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
