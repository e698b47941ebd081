"""Darshan as a recorder: found where a site has it, configured so that a Python job fits."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from ctypes import util
from datetime import datetime, timedelta
from pathlib import Path

from vanidl.errors import InputError, UsageError
from vanidl.readers.darshan import log as darshan_logs
from vanidl.readers.names import parse_darshan_name
from vanidl.record.recorder import (
    CUT,
    ENDED,
    PRELOAD,
    Recorder,
    Tracer,
    keep_private,
    prepend_preload,
)

NAME = "darshan"
FOLDER = "darshan"
LIBRARY = "libdarshan.so"
_ROOTS = ("DARSHAN_RUNTIME_DIR", "DARSHAN_ROOT", "DARSHAN_DIR", "DARSHAN_HOME", "DARSHAN_BASE_DIR",
          "DARSHAN_RUNTIME_ROOT", "EBROOTDARSHANMINRUNTIME")  # fmt: skip
_DAYS = 8

EXCLUDED = (
    r"^/(usr|proc|sys|etc|dev|lib|lib64|opt)/",
    r"/(site|dist)-packages/",
    r"/lib(64)?/python[0-9.]+(/|\.zip$)",
    r"\.py[co]?$",
    r"\.so(\.[0-9.]+)?$",
    r"\.(steps|steps-error|objects)$",
)
"""Paths that Darshan is told to leave out: imports open thousands of them, and the recorder's own
journals are no I/O of the program.

Expressions have neither commas nor blanks, which separate in a configuration.
"""

CONFIGURATION = """\
# Room for the files and operations of one process. Darshan clears all of it in every process,
# so more costs time, and makes the logs of forked workers later: a POSIX record takes 0.7 KiB of
# MODMEM, 32768 are 32 MiB of DXT, about a million operations.
MODMEM 24
NAMEMEM 8
MAX_RECORDS 20000 POSIX
MAX_RECORDS 4000 STDIO,MPI-IO
MAX_RECORDS 32768 DXT_POSIX,DXT_MPIIO
MOD_ENABLE DXT_POSIX,DXT_MPIIO
"""


def find_library(given: str | None = None) -> Path | None:
    """The library to preload, None where there is none.

    Searched: what is given, LD_PRELOAD, the folders that environment modules name,
    LD_LIBRARY_PATH, what `darshan-config` says, the system's libraries.

    Raises:
        UsageError: what is given is no such file.
    """
    if given is not None:
        path = Path(given).absolute()
        if not path.is_file():
            raise UsageError(f"--darshan-lib {given}: expected {LIBRARY}, found no such file.")
        return path
    return next((path.absolute() for path in _list_places() if path.is_file()), None)


def _list_places() -> Iterator[Path]:
    for entry in os.environ.get(PRELOAD, "").replace(" ", ":").split(":"):
        if LIBRARY in Path(entry).name:
            yield Path(entry)
    for root in filter(None, map(os.environ.get, _ROOTS)):
        yield from (Path(root) / folder / LIBRARY for folder in ("lib", "lib64"))
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if folder:
            yield Path(folder) / LIBRARY
    if config := shutil.which("darshan-config"):
        yield from _list_configured(Path(config))
    if name := util.find_library("darshan"):
        yield from (Path(folder) / name for folder in ("/usr/lib", "/usr/lib64", "/usr/local/lib"))


def _list_configured(config: Path) -> Iterator[Path]:
    flags = shlex.split(_ask(config, "--dyn-ld-flags"))
    yield from (Path(flag[2:]) / LIBRARY for flag in flags if flag.startswith("-L"))
    yield config.resolve().parent.parent / "lib" / LIBRARY


def _ask(config: Path, question: str) -> str:
    answer = subprocess.run([str(config), question], capture_output=True, text=True, check=False)
    return answer.stdout.strip()


def make_tracer(run: Path, given: str | None = None) -> Tracer:
    """Darshan with DXT, writing into a folder of the run.

    Raises:
        InputError: no libdarshan.so was found.
        UsageError: the library that was given does not exist.
    """
    preload = find_library(given)
    if preload is None:
        raise InputError(
            f"expected Darshan's {LIBRARY}, found none (darshan-config, module paths): load its "
            "module or give --darshan-lib PATH"
        )
    folder = run / FOLDER
    folder.mkdir(0o700, parents=True, exist_ok=True)
    # Dated folders, as Darshan makes none itself, for runs of up to a week.
    today = datetime.now()
    for days in range(_DAYS):
        day = today + timedelta(days=days)
        (folder / str(day.year) / str(day.month) / str(day.day)).mkdir(parents=True, exist_ok=True)
    (folder / "darshan.conf").write_text(make_configuration())
    # Its version, from the runtime's own file beside the library, where it has one.
    described = preload.parent / "pkgconfig" / "darshan-runtime.pc"
    text = described.read_text() if described.is_file() else ""
    version = re.search(r"^Version:\s*(\S+)", text, re.M)
    return Tracer(
        NAME,
        version[1] if version else "",
        make_environment(preload, folder),
        lambda pids: list_logged(folder, pids),
        (
            "Darshan was set to leave out libraries and Python modules, so that imports do not "
            "use up its records, and the journals of the recorder: their I/O is in no number.",
        ),
    )


def make_configuration() -> str:
    """The text of a configuration; the lines of the user's own come last, so they win."""
    lines = f"{CONFIGURATION}NAME_EXCLUDE {','.join(EXCLUDED)} *\n"
    own = os.environ.get("DARSHAN_CONFIG_PATH")
    return lines + (Path(own).read_text() if own and Path(own).is_file() else "")


def make_environment(preload: Path, folder: Path) -> dict[str, str | None]:
    """The variables of a run.

    Where logs go depends on how Darshan was built: into dated folders below DARSHAN_LOGPATH,
    or straight into the folder that a variable names, which darshan-config tells.
    """
    variables: dict[str, str | None] = {
        PRELOAD: prepend_preload(preload),
        "DARSHAN_ENABLE_NONMPI": "1",
        "DARSHAN_CONFIG_PATH": str(folder / "darshan.conf"),
        "DARSHAN_LOGPATH": str(folder),
        "DXT_ENABLE_IO_TRACE": "1",
        "DARSHAN_LOGFILE": None,  # one name for the logs of all processes
        "DARSHAN_DISABLE": None,
    }
    config = preload.parent.parent / "bin" / "darshan-config"
    where = _ask(config, "--log-path") if config.is_file() else ""
    if re.fullmatch(r"\$\w+", where):
        variables[where[1:]] = str(folder)
    return variables


def list_logged(folder: Path, pids: Mapping[int, int | None]) -> Mapping[int, str]:
    """Processes with a log: pid -> ENDED, or CUT where Darshan did not finish it.

    The log of an MPI job holds all its ranks; `pids` maps processes to ranks.
    """
    # Logs leave the dated folders, and those that are empty go.
    for path in sorted(folder.rglob("*.darshan")):
        if path.parent != folder:
            with suppress(OSError):  # it is found where it is, too
                path.rename(folder / path.name)
    for path in sorted(folder.rglob("*"), reverse=True):
        with suppress(OSError):
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()

    # Whose log each is: its file's name says so, and for all ranks of an MPI job the log.
    states: dict[int, str] = {}
    for path in sorted(folder.rglob("*.darshan*")):
        name = parse_darshan_name(path)
        if name is None or name.pid is None:
            continue
        keep_private(path)
        state = ENDED if path.suffix == ".darshan" else CUT
        states[name.pid] = state
        if pids.get(name.pid) is not None and state == ENDED:
            states |= dict.fromkeys(_list_sharing_processes(path, pids), ENDED)
    return states


def _list_sharing_processes(path: Path, pids: Mapping[int, int | None]) -> list[int]:
    """Processes whose ranks a shared log holds, none for a log of one process."""
    try:
        nprocs = darshan_logs.read_log(path).nprocs
    except InputError:  # the report will say what is wrong with it
        return []
    return [p for p, rank in pids.items() if nprocs > 1 and rank is not None and rank < nprocs]


RECORDER = Recorder(
    NAME,
    is_here=lambda given: find_library(given) is not None,
    prepare=make_tracer,
    takes_library=True,
)
