"""The file of one process: events that are gathered in memory and written once a second.

A file is rows of four little-endian 64-bit integers: (code, number, begin, end), times in
nanoseconds since the epoch. The code holds the kind of event in its lowest byte, the thread in
the next one and the loader above; the number the epoch above its lower 32 bits, and in these the
place of the call in its epoch. The first row is `MAGIC`. A row of kind `TEXT` says in `number`
how many rows follow that hold JSON, padded with blanks: the first describes the process, each
other one a loader, the name of a save or load, or what else events are of. Rows are only ever
added, whole ones at a time.

Version 2 has the kinds of events from COLLATE on, which version 1 does not know, version 3 those
from STEP on, version 4 those from CHECKPOINT on.
"""

from __future__ import annotations

import atexit
import os
import sys
from contextvars import ContextVar
from struct import Struct
from threading import Lock, get_ident, get_native_id
from time import monotonic_ns, time_ns

from .registry import wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Mapping
    from typing import Any

    from .lines import Sampler

NAME = "vanidl-present"
SAVE = 0xFE
"""A checkpoint is being written. Besides, codes are those of rows of the journal."""

DOING, SINCE, LAST, LAST_NS = range(4)
"""Words of the page: a call (its code, 0 is none) and since when it goes on, or less than nothing
where it has ended: then minus when; what else was last and when, by the monotonic clock in
nanoseconds."""
SIZE = 32

Doing = tuple[int, int]
NOTHING: Doing = (0, 0)


class Present:
    """What this process is doing at this moment, for others on this host to read while it runs.

    Events are written once they are over, and only with a later one: a call that does not return
    would leave no word of itself. So a page of memory says which call goes on, and what the last
    event was. It is of this process alone until `publish`; others read it through `/proc/PID/fd`. A
    store into it is no call of the system, which tracers would record and a thread would lose the
    interpreter by, and fails on no full disk. Amid a step, when caches hold none of this, the first
    store takes 1.8 us: so a wait like the one before stores one word when it begins, and one when
    it ends.
    """

    __slots__ = ("ahead_ns", "code", "goes_on", "words")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Nothing goes on, and the page is of this process alone."""
        self.words: Any = memoryview(bytearray(SIZE)).cast("q")
        self.code: int = 0  # as the page has it
        self.goes_on = False
        self.compare_clocks()

    def compare_clocks(self) -> None:
        """How far the clock of events is ahead of the monotonic one: hooks ask the former alone."""
        self.ahead_ns = time_ns() - monotonic_ns()

    def publish(self) -> int:
        """The descriptor by which others find the page, -1 where there can be none."""
        try:
            from mmap import mmap

            descriptor = os.memfd_create(NAME)
            os.ftruncate(descriptor, SIZE)
            page = mmap(descriptor, SIZE)
        except (AttributeError, ImportError, OSError):  # no Linux, or no descriptor left
            return -1
        page[:] = self.words.tobytes()
        self.words = memoryview(page).cast("q")
        return descriptor

    @property
    def doing(self) -> Doing:
        """What goes on, and since when."""
        words = self.words
        return (words[DOING], words[SINCE]) if self.goes_on else NOTHING

    def begin(self, code: int) -> Doing:
        """Such a call begins; what went on until now, which `end` takes."""
        before, words = self.doing, self.words
        if words[SINCE] < 0:
            words[LAST], words[LAST_NS] = words[DOING], -words[SINCE]
        words[DOING], words[SINCE] = code, monotonic_ns()
        self.code, self.goes_on = code, True
        return before

    def end(self, before: Doing) -> None:
        """The call has ended: what went on before it goes on again."""
        words, now = self.words, monotonic_ns()
        if before[DOING]:
            words[LAST], words[LAST_NS] = words[DOING], now
            words[DOING], words[SINCE] = before
            self.code = before[DOING]
        else:
            words[SINCE], self.goes_on = -now, False

    def happened(self, code: int) -> None:
        """An event that was no call: of a call `end` says it."""
        words = self.words
        words[LAST], words[LAST_NS] = code, monotonic_ns()


NEVER_NS = 1 << 62


SAY_NS = 100_000_000
"""How often the present is told of an optimizer's step, and rows of them are looked after."""


class Due:
    """What hooks look at in each step: when something is to be done that is not in each."""

    __slots__ = ("fetch_ns", "in_step", "say_ns", "step_ns")

    def __init__(self) -> None:
        self.fetch_ns = self.step_ns = NEVER_NS  # a sample of lines, by the clock of events
        self.in_step = False  # something of the step that goes on is to end with it
        self.say_ns = 0  # the present is told of an optimizer's step


class NoLines:
    """In the place of the sampler of lines (`lines.Sampler`) until there is one."""

    def sample_fetch(self, fetch: Callable[..., Any], fetcher: Any, index: Any) -> Any:  # noqa: ANN401
        """Runs a fetch; it is not sampled."""
        return fetch(fetcher, index)

    def begin_step(self) -> None:
        """A batch is about to be handed to the program."""

    def end_step(self) -> None:
        """The program has asked for its next batch."""


class InThread:
    """What goes on in a thread: times in ns, 0 for none."""

    __slots__ = (
        "backward",
        "called",
        "ident",
        "inside",
        "latest",
        "meeting",
        "number",
        "optimizer",
    )

    def __init__(self) -> None:
        self.ident = get_ident()
        self.inside = False  # a call of a module at the outermost level
        self.backward = False
        self.meeting = False  # a collective, which may call others
        self.called = 0  # when a model was called first for this batch
        self.latest: object = None  # the place of the iterator that gave it
        self.number = 0  # of the batch
        self.optimizer = 0  # when its step began


# Each thread has a context of its own. Amid a step, when caches hold none of this, to ask for it
# takes 0.4 us, for the number of the thread 1.1 us, and a `threading.local` 2.5 us.
_in_thread: ContextVar[InThread | None] = ContextVar("vanidl", default=None)
this_thread = _in_thread.get


def enter_thread() -> InThread:
    """The same of a thread that has none yet."""
    made = InThread()
    _in_thread.set(made)
    return made


MAGIC = b"vanidl-steps 4".ljust(31) + b"\n"
(TEXT, WAIT, END, ITER, OPTIMIZER, COLLATE, FETCH, WORKER, TAKEN, DEVICE, REPLAY,
 STEP, OTHER_STEP, CHECKPOINT, LOAD, PHASE, MODE, FORWARD, BACKWARD,
 WORKERS_START, WORKERS_STOP, COLLECTIVE) = range(22)  # fmt: skip
"""Kinds of events: text; a `__next__` with a batch, one without; an `__iter__`; a step; what
`fetches` says of a batch's samples, of the workers that fetch them, and of who takes them; what
`device` says of a step: from begin to end on the device, `number` ns on the host; a batch that
`replay` copied and handed out; a step that the program marks as training, or as something else
(`marks`); a save and a load of `number` bytes, the number of its name in place of a loader
(`saves`); a window beside training, likewise, and a switch of a model, its number and whether to
training (`phases`); the forward and the backward pass of a model (`parts`); the
starting and stopping of `number` workers, the iterator's number in place of a loader; a call that
returns once every rank has come (`parts`)."""

_DIFFERENTIATE = ("torch", "jax", "tensorflow")  # whose gradients are looked for
_FRAMEWORKS = (
    ("lightning", "lightning.pytorch.trainer.trainer"),
    ("lightning", "pytorch_lightning.trainer.trainer"),
    ("transformers", "transformers.trainer"), ("fastai", "fastai.learner"),
    ("keras", "keras.src.trainers.trainer"), ("grain", "grain._src.python.dataset.dataset"),
    ("torch", "torch"), ("jax", "jax"), ("tensorflow", "tensorflow"),
)  # fmt: skip
_CALLS = frozenset({WAIT, END, ITER})
_NO_CALLS = frozenset({END, OPTIMIZER, STEP, OTHER_STEP})  # what `Present.end` does not tell of

THREAD_SHIFT = 8
LOADER_SHIFT = 16
EPOCH_SHIFT = 32

SUFFIX = ".steps"
FAILURE_SUFFIX = ".steps-error"
RANKS_VARIABLE = "VANIDL_RANK_VARIABLES"
_RANKS = "RANK,OMPI_COMM_WORLD_RANK,PMI_RANK,SLURM_PROCID"  # where nobody names them
_WORLD_SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
# Not SLURM_NTASKS: a batch script that runs one process has the number of the whole job.

_ROW = Struct("<4q")
_FLUSH_NS = 1_000_000_000
_WAIT_S = 5.0  # at the end, for a thread that is writing
_VALUES = 5  # of a row in memory: those of the file, and who
_MOST_VALUES = 8192 * _VALUES  # a bound on memory: two megabytes
_OTHER_THREADS = 255
_STARTED_AS = os.getpid()  # another in a forked child


class Journal:
    """Events of this process; a forked child has a journal of its own."""

    __slots__ = (
        "_closed",
        "_ended",
        "_file",
        "_loaders",
        "_main",
        "_replays",
        "_texts",
        "_threads",
        "_writer",
        "_writing",
        "due",
        "flush_ns",
        "folder",
        "latest",
        "lines",
        "present",
        "rows",
        "session",
    )

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.lines: Sampler | NoLines = NoLines()
        self.due = Due()
        self._closed = False
        # One list for good, so that a thread that is about to add to it never adds to another one.
        # Rows lie in it one behind the other, as numbers: tuples of their own would have the
        # garbage of the program collected at other times.
        self.rows: list[int] = []
        self.present = Present()
        self._texts: list[tuple[int, bytes]] = []  # number of values before it
        self._writer = 0
        self._begin()
        atexit.register(self._last)
        call_before_end(self._last)
        os.register_at_fork(after_in_child=self._forked)

    def _begin(self) -> None:
        self.session = object()  # a forked child has another: it knows no description yet
        self._loaders = 0
        self._replays = 0
        self.latest: object = None  # the place of the iterator that was waited for last
        self.rows.clear()
        self._texts.clear()
        self._threads = {get_ident(): 0}  # the main thread: it starts the recording, or forked
        self._main = (get_native_id(), get_ident())  # as the kernel and as pthreads number it
        self._file: OwnFile | None = None
        self._writing, self._writer = Lock(), 0  # the thread that writes, 0: none
        self.present.forget()
        self._ended = False
        self.flush_ns = 0  # the first event opens the file: only then the end is looked after

    def _forked(self) -> None:
        if self._file is not None:
            self._file.leave()  # the parent's
        if self._writer:  # another thread of it was writing: that is not ours to end
            self._closed = False
        self._begin()

    def add(self, code: int, number: int, begin: int, end: int, ident: int = 0) -> None:
        """An event of the calling thread, or of another; now and then writes what has gathered.

        After a step caches hold none of this, and what counts is how many functions and objects are
        touched. So threads are numbered and rows packed by `flush`, and hooks that are called in
        each step extend `rows` themselves, as this does.
        """
        rows = self.rows
        rows.extend((code, number, begin, end, ident or get_ident()))
        if code & 0xFF in _NO_CALLS:
            self.present.happened(code)
        if end >= self.flush_ns or len(rows) >= _MOST_VALUES:
            self.flush()

    def widen(self, begin: int, end: int) -> None:
        """Has the calls of loaders that the calling thread made meanwhile fill all of that time.

        What was written before stays as it is: a row a second.
        """
        rows, ident, before = self.rows, get_ident(), begin
        at = len(rows)
        while at and rows[at - _VALUES + 3] >= begin:
            at -= _VALUES
        last = -1
        for row in range(at, len(rows), _VALUES):
            if rows[row] & 0xFF in _CALLS and rows[row + 4] == ident and rows[row + 2] >= before:
                rows[row + 2] = before
                before, last = rows[row + 3], row
        if last >= 0:
            rows[last + 3] = end

    def new_loader(self) -> int:
        """The number of one more loader of this process."""
        self._loaders += 1
        return self._loaders - 1

    def new_replay(self) -> int:
        """The number of one more loader whose batches are to come from memory."""
        self._replays += 1
        return self._replays - 1

    def describe(self, values: Mapping[str, object]) -> None:
        """Text that says what later events are of."""
        self._texts.append((len(self.rows), _text(values)))

    def flush(self, wait_s: float = 0.0) -> None:
        """Writes what has gathered; opens the file where this is the first.

        One thread at a time: what others add meanwhile stays for the next time, unless they can
        wait for this one. A signal may have come in the midst of it, in the same thread.
        """
        if self._writer == get_ident() or not self._writing.acquire(timeout=wait_s):
            return
        self._writer = get_ident()
        try:
            self._write()
        finally:
            self._writer = 0
            self._writing.release()

    def _write(self) -> None:
        from array import array

        values, texts = array("q", self.rows), self._texts[:]
        del self.rows[: len(values)], self._texts[: len(texts)]
        self.flush_ns = time_ns() + _FLUSH_NS
        self.present.compare_clocks()
        if self._closed or not (values or texts):
            return
        if is_stopped(self.folder):
            self._stop()
            return
        self._closed = True  # should this fail: a file that ends within a row takes no more
        file = self._open() if self._file is None else self._file
        file.write(self._pack(values, texts))
        self._closed = False

    def _pack(self, values: array[int], texts: list[tuple[int, bytes]]) -> bytes:
        """Rows as the file has them, each text where it was added."""
        from array import array

        # Threads by number, in the order in which they are met.
        codes, who, threads = values[::_VALUES], values[_VALUES - 1 :: _VALUES], self._threads
        if who.tobytes() != array("q", self._main[1:]).tobytes() * len(who):
            for ident in who:
                if ident not in threads:
                    threads[ident] = min(len(threads), _OTHER_THREADS) << THREAD_SHIFT
            numbers = zip(codes, who, strict=True)
            codes = array("q", [code | threads[ident] for code, ident in numbers])

        packed = array("q", bytes(_ROW.size * len(codes)))
        packed[::4] = codes
        for column in (1, 2, 3):
            packed[column::4] = values[column::_VALUES]
        if sys.byteorder != "little":
            packed.byteswap()
        content, pieces, at = packed.tobytes(), list[bytes](), 0
        for place, text in texts:
            end = min(place // _VALUES * _ROW.size, len(content))
            pieces += content[at:end], text
            at = max(at, end)
        return b"".join((*pieces, content[at:]))

    def _open(self) -> OwnFile:
        file = self._file = OwnFile(self.folder, SUFFIX)
        described = {
            **process_description(),
            "thread": self._main,
            "marks_end": True,
            "marks_saves": True,
        }
        file.write(MAGIC + _text({**described, "present": self.present.publish()}))
        if "multiprocessing.util" in sys.modules:  # its children end without atexit
            from multiprocessing.util import Finalize

            Finalize(None, self._last, exitpriority=0)
        return file

    def close(self) -> None:
        """Writes the last events: what comes later is dropped."""
        self._end()
        self._closed = True

    def _stop(self) -> None:
        """The disk is about to be full: what was written is whole, and no more comes."""
        self._closed = True
        if self._file is not None and not self._ended:
            self._ended = True
            self._file.write(_text({"stopped": time_ns()}) + _text({"ended": True}))

    def open_now(self) -> None:
        """Opens the file, which else the next event would: that is still written at once."""
        if self._file is None:
            self.flush()
            self.flush_ns = 0

    def _end(self) -> None:
        """Writes what there is, and that it was all: a process that is killed does not say so."""
        self.flush(_WAIT_S)
        if self._file is not None and not self._ended:
            self._ended = True
            self.describe({"ended": True})
            self.flush(_WAIT_S)

    def _last(self) -> None:
        try:
            self._end()
        except Exception as error:
            self.note_failure("journal", error)

    def note_failure(self, hook: str, error: Exception) -> None:
        """Leaves a line in the folder that says which hook failed in this process, and why."""
        name = f"{os.uname().nodename}-{os.getpid()}{FAILURE_SUFFIX}"
        why = " ".join(f"{type(error).__name__}: {error}".split())
        try:
            with open(os.path.join(self.folder, name), "a") as file:  # noqa: PTH118, PTH123
                file.write(f"{hook}: {why}\n")
        except OSError:
            pass


def _text(values: Mapping[str, object]) -> bytes:
    """Rows that hold text."""
    import json

    # A program may be named with bytes that are no text: no JSON may hold these.
    text = json.dumps(values, ensure_ascii=False).encode("utf-8", "replace")
    rows = -(-len(text) // _ROW.size)
    return _ROW.pack(TEXT, rows, 0, 0) + text.ljust(rows * _ROW.size)


def process_description() -> dict[str, object]:
    """Who this is; ranks are what launchers put into the environment.

    Of its arguments only those of multiprocessing: others can be passwords, which `run.json` masks.
    """
    names = os.environ.get(RANKS_VARIABLE, _RANKS).split(",")
    return {
        "host": os.uname().nodename,
        "pid": os.getpid(),
        "parent_pid": _parent(),
        "rank": _first_number(names),
        "world_size": _first_number(_WORLD_SIZES),
        "command": [sys.executable, *_program()],
        "python": sys.version.split()[0],
        "gradients": [name for name in _DIFFERENTIATE if name in sys.modules],
        "frameworks": [name for name, module in _FRAMEWORKS if module in sys.modules],
    }


def _parent() -> int | None:
    """The process that this one was copied from or works for; a fork server is asked by another."""
    module = sys.modules.get("multiprocessing.process")
    parent = module.parent_process() if module is not None else None
    if parent is not None:
        return int(parent.pid)
    return os.getppid() if os.getpid() != _STARTED_AS else None


def _program() -> list[str]:
    """The name of the program, and what multiprocessing starts its children with."""
    words = getattr(sys, "orig_argv", sys.argv)
    own = next((word for word in words if word.startswith("from multiprocessing.")), None)
    return sys.argv[:1] if own is None else ["-c", own]


def _first_number(names: tuple[str, ...] | list[str]) -> int | None:
    values = (os.environ.get(name, "") for name in names)
    return next((int(value) for value in values if value.isdecimal()), None)


# The file that one process of the program appends to, whatever the program does to descriptors: it
# closes some that it did not open, as daemons do at their start, and the number may be one of its
# own files then. So it is looked at before each write which file it is of.

_STOP = "stop"


def is_stopped(folder: str) -> bool:
    """Whether the recorder has asked for no more, as the disk is about to be full."""
    return os.path.exists(os.path.join(folder, _STOP))  # noqa: PTH110, PTH118


class OwnFile:
    """A new file of this process in a folder."""

    def __init__(self, folder: str, suffix: str) -> None:
        name = f"{os.uname().nodename}-{os.getpid()}"
        self._path, self._number = _make_new_file(os.path.join(folder, name), suffix)  # noqa: PTH118
        self._identity = _identity(self._number)

    def write(self, data: bytes) -> None:
        """Adds to the file; opens it again where the program has closed it."""
        if not self._is_mine():
            self._number = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        while data:
            data = data[os.write(self._number, data) :]

    def leave(self) -> None:
        """Closes the number that a forked child has of its parent's file."""
        if self._is_mine():
            os.close(self._number)

    def _is_mine(self) -> bool:
        try:
            return _identity(self._number) == self._identity
        except OSError:
            return False


def _identity(number: int) -> tuple[int, int]:
    found = os.fstat(number)
    return found.st_dev, found.st_ino


def _make_new_file(path: str, suffix: str) -> tuple[str, int]:
    """A file that was not there: the number of a process may come again within a run."""
    for k in range(1000):
        again = f"{path}-{k}{suffix}" if k else f"{path}{suffix}"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
            return again, os.open(again, flags, 0o644)
        except FileExistsError:
            continue
    raise FileExistsError(path)


# How this process ends: what is written before, and the error that ends it, for the recorder, which
# knows the exit status alone. Python keeps an error that nobody caught until its end. Ends that run
# no `atexit` are caught in `os`.

LAST_ERROR_SUFFIX = ".last-error"
_MOST_ERROR_TEXT = 2000
_ENDING_CALLS = ("_exit", "execv", "execve")  # all others of `os` call these
_calls_before_end: list[Callable[[], None]] = []


def call_before_end(call: Callable[[], None]) -> None:
    """Has a function called, which raises nothing, and may be called more than once."""
    if not _calls_before_end:
        for name in _ENDING_CALLS:
            setattr(os, name, _calling_before(getattr(os, name)))
    _calls_before_end.append(call)


def _calling_before(original: Any) -> Any:  # noqa: ANN401
    @wraps(original)
    def end(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        for call in _calls_before_end:
            call()
        return original(*args, **kwargs)

    return end


def keep_last_error(folder: str) -> None:
    """Has the process leave its last error in a file of the folder, for its owner alone."""
    atexit.register(_leave_last_error, folder)


def _pick_words(message: str) -> str:
    """The line of a message that says what happened.

    Its first one with words; of an error that another process handed on also the last line, which
    is that process's; of torchrun's list of failures who failed first, and how.
    """
    lines = [line.strip() for line in message.splitlines()]
    lines = [line for line in lines if any(map(str.isalnum, line))]
    if not lines:
        return ""
    if "Original Traceback (most recent call last):" in lines:
        return f"{lines[0].rstrip('.')}: {lines[-1]}"
    cause = next((i for i, line in enumerate(lines) if line.startswith("Root Cause")), None)
    if cause is not None:
        facts = dict(line.split(":", 1) for line in lines[cause:] if ":" in line)
        facts = {name.strip(): " ".join(value.split()) for name, value in facts.items()}
        told = [f"{name} {facts[name]}" for name in ("rank", "exitcode") if name in facts]
        return ", ".join([lines[0], *told])
    return lines[0]


def _leave_last_error(folder: str) -> None:
    error = getattr(sys, "last_value", None)
    if error is None:
        return
    try:
        kind = type(error)
        # As Python prints it: with its module, unless everybody knows it.
        name = kind.__qualname__
        if kind.__module__ not in ("builtins", "__main__"):
            name = f"{kind.__module__}.{name}"
        message = _pick_words(str(error))[:_MOST_ERROR_TEXT]
        text = f"{time_ns()} {name}{': ' if message else ''}{message}\n"
        path = os.path.join(folder, f"{os.uname().nodename}-{os.getpid()}{LAST_ERROR_SUFFIX}")  # noqa: PTH118
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(number, text.encode("utf-8", "backslashreplace"))
        finally:
            os.close(number)
    except Exception:
        return
