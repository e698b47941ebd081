"""What names say, whichever tool wrote them: of files, of commands, of operators and kernels.

Names of logs and traces say who wrote them and when, commands of processes who started them and
what for, operators and kernels what a loop is doing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path, PurePath

from vanidl.errors import UsageError
from vanidl.model.trace import SpanKind
from vanidl.schema.dataclass import dataclass

# What a recorded command says of a process: who started it, and what for.
#
# Recorded with Python 3.10 to 3.13 and PyTorch 2.13: children of `spawn`, the fork server,
# the resource tracker and the worker of torch.compile carry no word of the process that
# started them, only these commands.

HELPER = re.compile(
    r"multiprocessing[.\-/](spawn|forkserver|resource_tracker)|multiprocessing-fork"
    r"|torch/_inductor/compile_worker"
)
"""Commands of processes that Python's multiprocessing or torch.compile starts afresh."""

SERVANT = re.compile(r"resource_tracker|multiprocessing\.forkserver|_inductor/compile_worker")
"""Helpers that keep house for a trainer and load no data themselves (their forks may)."""

LAUNCHER = re.compile(
    r"\btorchrun\b|torch[./]distributed[./](run|launch)|\bmpi(exec|run)\b|accelerate launch"
    r"|^(\S*/)?(sh|bash|dash|zsh|env|timeout|hydra\S*|srun|orted|prted|prterun)(\s|$)"
)
"""Programs that only start others, which work for themselves: launchers of ranks, shells."""

_PYTHON = re.compile(r"(python|pypy)[\d.]*t?$")
_LOCAL_RANK = re.compile(r"--local[-_]rank=")


@lru_cache(1024)  # processes of a job have few different commands
def get_arguments(command: str) -> tuple[str, ...]:
    """The words of a command from its script, module or program on; () for helpers.

    An interpreter, its flags and the `--local-rank` that launchers insert are left out, so
    that a launcher's words end with the words of what it starts.
    """
    if HELPER.search(command):
        return ()
    words = [word for word in command.split() if not _LOCAL_RANK.match(word)]
    if words and runs_python(command):
        del words[0]
        while words and words[0].startswith("-"):
            del words[0]
    return tuple(words)


@lru_cache(1024)
def runs_python(command: str) -> bool:
    """Whether the program of a command is a Python interpreter."""
    return bool(_PYTHON.search(PurePath(command.split(" ", 1)[0]).name))


@lru_cache(1024)
def runs_another(command: str) -> bool:
    """Whether the command is known and no Python program: `cat`, `ldconfig`, a compiler."""
    return bool(command.strip()) and not runs_python(command) and not HELPER.search(command)


# Names of operators and kernels that say what a loop is doing, whichever profiler wrote them.

BACKWARD = re.compile(r"autograd::engine::evaluate_function")
"""Beginning of the names of operators of a backward pass."""

SAMPLING = re.compile(
    r"(aten::)?(empty|empty_strided|random_|item|_local_scalar_dense|randperm|multinomial|randint"
    r"|scalar_tensor|to|_to_copy|copy_|resize_|set_|select|as_strided|unbind|detach|detach_"
    r"|resolve_conj|resolve_neg)"
)
"""Operators with which a loader draws its seed and its order: they are no training."""

_DEVICE_COPY = re.compile(r"memcpy|memset|__amd_rocclr_(fill|copy)Buffer", re.IGNORECASE)
COLLECTIVES: dict[str, str] = {
    r"[nr]ccl": "NVIDIA/nccl and ROCm/rccl, src/device",
    r"deep_ep::": "deepseek-ai/DeepEP, csrc/kernels: internode, intranode, internode_ll",
    r"cross_device_reduce": "vllm-project/vllm, csrc/custom_all_reduce.cuh",
    r"(multimem|one_shot|two_shot)_(all_reduce|all_gather)": "pytorch/pytorch, "
    "torch/csrc/distributed/c10d/CUDASymmetricMemoryOps.cu",
    r"(one|two)shot_?all_?reduce": "NVIDIA/TensorRT-LLM, cpp/tensorrt_llm/kernels",
    r"allreduce_fusion": "flashinfer-ai/flashinfer, include/flashinfer/comm",
    r"oneccl": "uxlfoundation/oneCCL, src/coll/algorithms",
    r"hcom_|hccl": "Ascend's HCCL",
    r"mscclpp?": "microsoft/mscclpp",
    r"(nv|roc)shmem": "NVIDIA's NVSHMEM and ROCm/rocSHMEM",
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all": "names of the collectives themselves",
}
"""Names of kernels that communicate, and whose they are: one table for all devices."""

_DEVICE_COLLECTIVE = re.compile("|".join(COLLECTIVES), re.IGNORECASE)


def classify_kernel(name: str) -> SpanKind:
    """What work on a device is, by the name of its kernel: COPY, COMMUNICATION or KERNEL."""
    if _DEVICE_COPY.match(name):
        return SpanKind.COPY
    return SpanKind.COMMUNICATION if _DEVICE_COLLECTIVE.search(name) else SpanKind.KERNEL


def compile_wait_names(own: Sequence[str], known: Sequence[str] = ()) -> list[re.Pattern[str]]:
    """Patterns for names of input waits: `known`, for whole names, and the user's `own`.

    Raises:
        UsageError: One of `own` is no regular expression.
    """
    try:
        searched = [re.compile(name) for name in own]
    except re.error as error:
        raise UsageError(
            f"a name of input waits must be a regular expression, found {error.pattern!r} "
            f"({error}); put a backslash before characters that stand for themselves"
        ) from error
    return [re.compile(rf"(?:{name})\Z") for name in known] + searched


_DARSHAN = re.compile(
    r"(?P<user>[^_]*)_(?P<exe>.*)_id(?P<job>\d+)(?:-(?P<pid>\d+))?"
    r"_(?P<month>\d+)-(?P<day>\d+)-(?P<second>\d+)-\d+(?:_\d+)?\.darshan(?:_partial)?"
)
_PROFILER = re.compile(r"(?P<worker>.+)\.(?P<time>\d+)\.pt\.trace\.json(?:\.gz)?")
_HOST_PID = re.compile(r"(?P<host>.+)_(?P<pid>\d+)")
_EVENT_FILE = re.compile(
    r"events\.out\.tfevents\.(?P<second>\d+)\.(?P<host>.+?)"
    r"(?:\.(?P<pid>\d+)\.(?P<number>\d+))?(?:\.(?:v2|profile-empty))?"
)
_SESSION = re.compile(r"(?P<host>.+)\.(?:xplane\.pb|trace\.json\.gz|input_pipeline\.pb)")

# Writers used milliseconds first, then nanoseconds: magnitudes for any date from 1973 on.
_UNITS = ((10**17, 1), (10**14, 1_000), (10**11, 1_000_000), (0, 1_000_000_000))


@dataclass(frozen=True, slots=True)
class DarshanName:
    """`USER_EXE_idJOBID-PID_M-D-S-HASH_N.darshan`; the user's name ends at the first `_`."""

    user: str
    exe: str
    job_id: str
    pid: int | None  # None in names of older versions
    month: int
    day: int
    second: int  # of the day, in local time


@dataclass(frozen=True, slots=True)
class ProfilerName:
    """`HOST_PID.TIME.pt.trace.json`, or `WORKER.TIME.pt.trace.json` with a name of the user's."""

    worker: str  # everything before the time
    host: str  # "" where the worker's name is no HOST_PID
    pid: int | None
    time_ns: int  # when the trace was exported, since the epoch


@dataclass(frozen=True, slots=True)
class EventFileName:
    """`events.out.tfevents.SECOND.HOST.PID.NUMBER`."""

    second: int  # since the epoch, when the file was opened
    host: str
    pid: int | None  # None in names of older versions
    number: int | None


@dataclass(frozen=True, slots=True)
class SessionName:
    """`plugins/profile/SESSION/HOST.xplane.pb` and its like."""

    host: str
    session: str  # name of the folder: the time at which profiling began


def parse_darshan_name(path: str | Path) -> DarshanName | None:
    """What a Darshan log's name says, None for a log that was renamed."""
    match = _DARSHAN.fullmatch(_get_name(path))
    if not match:
        return None
    month, day, second = (int(match[key]) for key in ("month", "day", "second"))
    pid = _to_number(match["pid"])
    return DarshanName(match["user"], match["exe"], match["job"], pid, month, day, second)


def parse_profiler_name(path: str | Path) -> ProfilerName | None:
    """What a PyTorch profiler trace's name says, None for one without a time."""
    match = _PROFILER.fullmatch(_get_name(path))
    if not match:
        return None
    time = int(match["time"])
    time_ns = time * next(scale for least, scale in _UNITS if time >= least)
    who = _HOST_PID.fullmatch(match["worker"])
    host, pid = (who["host"], int(who["pid"])) if who else ("", None)
    return ProfilerName(match["worker"], host, pid, time_ns)


def parse_event_file_name(path: str | Path) -> EventFileName | None:
    """What an event file's name says, None for another naming."""
    match = _EVENT_FILE.fullmatch(_get_name(path))
    if not match:
        return None
    pid, number = _to_number(match["pid"]), _to_number(match["number"])
    return EventFileName(int(match["second"]), match["host"], pid, number)


def parse_session_name(path: str | Path) -> SessionName | None:
    """What the name and folder of a TensorFlow or JAX profile say, None for another naming."""
    match = _SESSION.fullmatch(_get_name(path))
    return SessionName(match["host"], Path(path).absolute().parent.name) if match else None


def identify_writer(path: str | Path) -> tuple[object, ...] | None:
    """Which process, or host, wrote a file by its name; None where the name does not tell."""
    if (log := parse_darshan_name(path)) is not None:
        return None if log.pid is None else (log.pid,)
    if (trace := parse_profiler_name(path)) is not None:
        return (trace.worker,)
    if (events := parse_event_file_name(path)) is not None:
        return events.host, events.pid, events.number
    session = parse_session_name(path)
    return None if session is None else (session.host,)


def find_log_folder(path: str | Path) -> Path | None:
    """LOGDIR of LOGDIR/plugins/profile/SESSION/FILE, None for a file that lies elsewhere."""
    parents = Path(path).absolute().parents
    inside = len(parents) > 3 and (parents[2].name, parents[1].name) == ("plugins", "profile")
    return parents[3] if inside else None


def _get_name(path: str | Path) -> str:
    """Without making a path of a path, which takes longer than all the rest."""
    return path.name if isinstance(path, Path) else Path(path).name


def _to_number(digits: str | None) -> int | None:
    return None if digits is None else int(digits)
