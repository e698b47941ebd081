"""Where a run is recorded whose RUN lies on storage that may never answer.

A process that waits for a FUSE file system whose server hangs can neither go on nor be ended. So
nothing of the program, nor the recorder, touches a RUN there: all of it is recorded in a temporary
folder of this machine, and a child that can be left behind hands it over in the end.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from vanidl.errors import UsageError, VanidlError
from vanidl.parallel.storage import ANSWER_S, RemoteMounts, ask
from vanidl.schema.dataclass import dataclass

POINTER = "recorded-in"
"""In RUN while its run is recorded elsewhere on this machine: the name of that folder."""

_LAUNCHERS = frozenset((
    "aprun", "flux", "horovodrun", "jsrun", "mpiexec", "mpiexec.hydra", "mpirun", "orterun", "pdsh",
    "prun", "prterun", "ray", "srun", "ssh",
))  # fmt: skip
"""Programs that start others on other hosts, which do not have our temporary folder."""
_NODES = ("SLURM_JOB_NUM_NODES", "SLURM_NNODES", "PBS_NUM_NODES", "FLUX_JOB_NNODES")
_CHUNK_NBYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Spool:
    """A RUN, and the folder in which it is recorded: itself, or one that does answer."""

    run: Path
    folder: Path
    mount: str = ""  # which RUN lies on, where that is another one

    @classmethod
    def of(cls, run: Path, command: Sequence[str], *, in_place: bool) -> Spool:
        """A new RUN and the place for the run of a command, made where it is not RUN itself.

        Raises:
            UsageError: there is something in RUN.
            VanidlError: the storage of RUN does not answer, or RUN cannot be made there.
        """
        mounts = RemoteMounts()
        mount = mounts.of(str(run))
        # Storage of this machine answers: RUN itself is written to.
        if not mount:
            try:
                _refuse_used(_make_new(run, None), run)
            except OSError as error:
                raise _explain_not_made(run, error) from error
            return cls(run, run)
        # Processes of other hosts would not find a temporary folder of this one.
        nowhere_else = mounts.of(tempfile.gettempdir()) or may_span_hosts(command, os.environ)
        folder = run
        if mounts.is_fuse(mount) and not (in_place or nowhere_else):
            folder = Path(tempfile.mkdtemp(prefix="vanidl-"))
        spool = cls(run, folder, mount if folder != run else "")

        # RUN is made by a child, which can be left behind where its storage does not answer.
        try:
            answer = ask(lambda _: _make_new(run, folder if spool.mount else None))
            if answer is None:
                raise VanidlError(
                    f"{run}: expected storage that answers, found none at {mount} for "
                    f"{ANSWER_S:.0f} s; nothing was started: name a folder elsewhere with -o"
                )
            _refuse_used(answer, run)
        except (OSError, VanidlError) as error:
            if spool.mount:
                folder.rmdir()
            raise (
                _explain_not_made(run, error) if isinstance(error, OSError) else error
            ) from error
        return spool

    def drop(self) -> None:
        """Removes both, of a command that could not be started."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.mount:
            ask(lambda _: _remove(self.run))

    def hand_over(self) -> str:
        """Moves what was recorded to RUN; why that failed, "" where it did not."""
        if not self.mount:
            return ""
        why = f"no answer for {ANSWER_S:.0f} s"
        try:
            if ask(lambda goes_on: _copy(self, goes_on)) is not None:
                shutil.rmtree(self.folder, ignore_errors=True)
                return ""
        except OSError as error:
            why = error.strerror or str(error)
        return (
            f"the run could not be moved to {self.run}, on the storage at {self.mount} ({why}): it "
            f"is in {self.folder}, whole"
        )


def _make_new(run: Path, pointed_to: Path | None) -> bytes:
    """Makes RUN, which may be there and empty; its name where it is not."""
    if run.exists() and (not run.is_dir() or any(run.iterdir())):
        return os.fsencode(run)
    run.mkdir(parents=True, exist_ok=True)
    if pointed_to is not None:
        with suppress(OSError):  # for who watches: the run is recorded without it
            (run / POINTER).write_bytes(os.fsencode(pointed_to))
    return b""


def _explain_not_made(run: Path, error: OSError) -> VanidlError:
    return VanidlError(
        f"cannot make {run}: {error.strerror or error}; choose another place with -o"
    )


def _remove(run: Path) -> bytes:
    shutil.rmtree(run, ignore_errors=True)
    return b""


def _refuse_used(used: bytes, run: Path) -> None:
    if used:
        raise UsageError(
            f"record: expected a new or empty folder, found {run} in use; name another, and put "
            "vanidl record before a launcher, not behind it."
        )


def may_span_hosts(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether processes of a command may run on other hosts."""
    many = any(environment.get(name, "1") not in ("", "1") for name in _NODES)
    return many or any(word.rpartition("/")[2] in _LAUNCHERS for word in command)


def find_recording_folder(run: Path) -> Path:
    """The folder in which a RUN is being recorded: itself, or another one of this machine."""
    with suppress(OSError):
        folder = Path(os.fsdecode((run / POINTER).read_bytes()))
        if folder.is_absolute() and folder.is_dir() and folder.stat().st_uid == os.getuid():
            return folder
    return run


def _copy(spool: Spool, goes_on: Callable[[], None]) -> bytes:
    for source in _files_below(spool.folder):
        target = spool.run / source.relative_to(spool.folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        with source.open("rb") as file, target.open("wb") as copy:
            nbytes = os.fstat(file.fileno()).st_size
            at = 0
            while at < nbytes:  # a log of calls is a long file with little in it
                try:
                    at = os.lseek(file.fileno(), at, os.SEEK_DATA)
                except OSError:  # nothing but a hole is left
                    break
                content = os.pread(file.fileno(), _CHUNK_NBYTES, at)
                copy.seek(at)
                copy.write(content)
                copy.flush()
                at += len(content)
                goes_on()
            copy.truncate(nbytes)
        with suppress(OSError):
            target.chmod(source.stat().st_mode & 0o777)
        goes_on()
    (spool.run / POINTER).unlink(missing_ok=True)
    return b""


def _files_below(folder: Path) -> Iterator[Path]:
    for above, _, names in os.walk(folder):
        yield from (Path(above, name) for name in sorted(names))
