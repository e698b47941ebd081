"""Which lines of the program take the time of a fetch and of a step, in a sample of both.

Watched are the functions that a fetch calls first (`__getitem__`, `__getitems__`, collate_fn), the
function with the training loop, and, one after the other, the function that takes most of the time
of the most costly line of these. From Python 3.12 on their code objects alone have events of
`sys.monitoring`, under a tool id that is claimed for one sample at a time; before, the thread has
a trace function for one sample. Times are the wall clock's and the thread's own of the processor:
what remains between both is blocked.

The cost of what was sampled is kept below `SHARE` of the time of the process. A program that has a
trace or profile function of its own, or a tool in `sys.monitoring`, is not sampled.
"""

from __future__ import annotations

import atexit
import os
import sys
from inspect import signature
from threading import get_ident
from time import monotonic_ns, perf_counter_ns, thread_time_ns, time_ns

from .journal import NEVER_NS, call_before_end
from .registry import wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType, ModuleType
    from typing import Any

    from .registry import Channel

FETCH, LOOP = "fetch", "loop"
SHARE = 0.002  # of wall time: with many processes on few cores that is a larger share of a core's
_KNOWN, _LATER_SHARE = 64, 0.0005  # samples of a part, after which more tell little
_GRACE_NS = 40_000_000  # of cost, that need not be earned: short runs are sampled as well
_EVENT_NS = 1_500  # what an event costs
_SAMPLE_NS = 60_000  # what beginning and ending a sample does
_MOST_LINES = 30_000  # of a function in a sample: one with more is no longer watched
_MOST_EVENTS = 150_000  # of a sample: a part with more is not sampled again
_MOST_FUNCTIONS = 12  # of each part
_HOT = 0.25  # of the sampled time: above it a function that is called is watched
_FEW = 2  # samples, after which it is looked for
_OTHERS = 3  # fetches or steps that were not sampled: then it is known what they take
_COMPARED = 16  # until there are so many of them every other one is left alone
_TIMED = 16  # of them after each sample: to take a processor's time is a system call
_MANY_OTHERS, _FEWER_TIMED = 128, 2  # known so well: from then on so many
_TABLE_NS = 2_000_000_000  # between two tables in the journal, at first
_AGAIN_NS = 10_000_000  # where none could begin
_GENERATOR = 0x20 | 0x80 | 0x200  # flags of code: it hands batches on, and has no loop of its own
_LIBRARY = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
_MONITORING: Any = getattr(sys, "monitoring", None)  # from Python 3.12 on
_STANDARD = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120
_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep  # noqa: PTH100, PTH120


class _Function:
    """One function that is watched, and what its lines took."""

    __slots__ = ("callees", "calls", "code", "events", "lines", "parent", "parent_line")

    def __init__(self, code: CodeType, parent: CodeType | None = None, line: int = 0) -> None:
        self.code, self.parent, self.parent_line = code, parent, line
        self.calls = self.events = 0
        self.lines: dict[int, list[int]] = {}  # number -> hits, wall ns, processor ns, calls traced
        self.callees: dict[tuple[int, CodeType], int] = {}  # line, what it calls -> wall ns


class _Running:
    """One call of a watched function in the thread that is sampled."""

    __slots__ = ("called", "called_ns", "calls", "cpu_ns", "function", "line", "wall_ns")

    def __init__(self, function: _Function, line: int) -> None:
        self.function, self.line = function, line
        self.called: CodeType | None = None
        self.called_ns = self.calls = 0
        self.wall_ns, self.cpu_ns = perf_counter_ns(), thread_time_ns()

    def charge(self, line: int) -> None:
        """What has passed is of the line until now; from here on it is of another."""
        now, cpu = perf_counter_ns(), thread_time_ns()
        self.end_call(now)
        found = self.function.lines.get(self.line)
        if found is None:
            found = self.function.lines[self.line] = [0, 0, 0, 0]
        found[0] += 1
        found[1] += now - self.wall_ns
        found[2] += cpu - self.cpu_ns
        found[3] += self.calls
        self.line, self.wall_ns, self.cpu_ns, self.calls = line, now, cpu, 0

    def begin_call(self, code: CodeType) -> None:
        """The line calls a function."""
        now = perf_counter_ns()
        self.end_call(now)
        self.called, self.called_ns = code, now

    def end_call(self, now: int) -> None:
        """It has returned, if it was in one."""
        if self.called is not None:
            key = (self.line, self.called)
            callees = self.function.callees
            callees[key] = callees.get(key, 0) + now - self.called_ns
            self.called = None


class Part:
    """The functions of the fetches of this process, or of its loop, and what was sampled."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.functions: dict[CodeType, _Function] = {}
        self.refused: set[CodeType] = set()
        self.samples = self.wall_ns = self.cpu_ns = 0
        self.taken = self.taken_cpu_ns = self.taken_events = 0  # samples since the start
        self.charged_ns = 0  # for these
        self.others = self.others_cpu_ns = 0  # that were not sampled
        self.others_least_ns, self.others_most_ns = 1 << 62, 0
        self.others_left = _TIMED  # so many more of them are to be timed
        self._before: dict[str, object] = {}  # the table until a function was added

    def add(self, code: CodeType | None, parent: CodeType | None = None, line: int = 0) -> None:
        """Has a function watched from the next sample on."""
        if (
            code is not None
            and code not in self.functions
            and code not in self.refused
            and len(self.functions) < _MOST_FUNCTIONS
        ):
            self.functions[code] = _Function(code, parent, line)

    def sampled(self, wall_ns: int, cpu_ns: int, events: int) -> None:
        """A sample has ended: gives up what is too costly, and goes a call deeper."""
        self.samples += 1
        self.others_left = _TIMED if self.others < _MANY_OTHERS else _FEWER_TIMED
        self.wall_ns += wall_ns
        self.cpu_ns += cpu_ns
        self.taken += 1
        self.taken_cpu_ns += cpu_ns
        self.taken_events += events
        # Functions with too many events cost too much: they are given up.
        for one in list(self.functions.values()):
            if one.events >= _MOST_LINES or events >= _MOST_EVENTS:
                self.refused.add(one.code)
                del self.functions[one.code]
            one.events = 0
        # What takes most of the time of one line is watched as well; all begin anew with it.
        if self.samples >= _FEW:
            costly = max(
                ((spent, key, one) for one in self.functions.values()
                 for key, spent in one.callees.items()
                 if key[1] not in self.functions and key[1] not in self.refused),
                key=lambda found: found[0], default=None,
            )  # fmt: skip
            if costly is not None and costly[0] >= _HOT * self.wall_ns:
                _, (line, code), one = costly
                self._before = self.table()
                self.add(code, one.code, line)
                self._restart()

    def _restart(self) -> None:
        """All functions have the same samples."""
        self.samples = self.wall_ns = self.cpu_ns = 0
        for one in self.functions.values():
            one.lines, one.callees, one.calls = {}, {}, 0

    def table(self) -> dict[str, object]:
        """What is written of it; nothing before its first sample."""
        if not self.samples:
            return self._before
        places = {code: place for place, code in enumerate(self.functions)}
        return {
            "lines": self.name,
            "samples": self.samples,
            "wall_ns": self.wall_ns,
            "cpu_ns": self.cpu_ns,
            "others": self.others,
            "others_cpu_ns": self.others_cpu_ns,
            "functions": [
                {
                    "file": one.code.co_filename,
                    "name": getattr(one.code, "co_qualname", one.code.co_name),
                    "first": one.code.co_firstlineno,
                    "own": not is_library(one.code),
                    "calls": one.calls,
                    "parent": -1 if one.parent is None else places.get(one.parent, -1),
                    "parent_line": one.parent_line,
                    "costs": [[line, *spent] for line, spent in sorted(one.lines.items())],
                }
                for one in self.functions.values()
            ],
        }


class Sampler:
    """Decides what is sampled, and switches the events on and off: one sample at a time."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.engine: _Monitoring | _Tracing = (
            _Monitoring(self) if _MONITORING is not None else _Tracing(self)
        )
        self._begin()
        atexit.register(self.write)
        call_before_end(self.write)
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        """The child has no sample, and nothing of what was found."""
        try:
            if self.part is not None:
                self.engine.end(self.part, self._frame)
            self._begin()
        except Exception as error:
            self.channel.fail(error)

    def _begin(self) -> None:
        self.parts: dict[str, Part] = {}
        self.part: Part | None = None  # that is sampled now
        self.due = self.channel.journal.due
        self.thread = 0
        self.stack: list[_Running] = []
        self.events = 0
        self._frame: FrameType | None = None
        self.timed: dict[
            int, int
        ] = {}  # thread -> its processor time when a step began to be timed
        self._wall_ns = self._cpu_ns = 0
        self._written_ns, self._table_ns, self._is_new = monotonic_ns(), _TABLE_NS, False
        self._earned_ns = monotonic_ns() - _GRACE_NS / SHARE  # until when time has paid for samples
        self.next_ns = self.due.fetch_ns = self.due.step_ns = 0
        self.due.in_step = False

    def sample_fetch(self, fetch: Callable[..., Any], fetcher: Any, index: Any) -> Any:  # noqa: ANN401
        """Runs a fetch, as a sample if it is time for one, or timed as one that is none."""
        now = monotonic_ns()
        if now >= self.next_ns and self.start(FETCH, _codes_of(fetcher)):
            try:
                return fetch(fetcher, index)
            finally:
                self.stop()
        if not (self.engine.slows and self.times_others(FETCH)):
            self.due.fetch_ns = time_ns() + max(self.next_ns - now, _AGAIN_NS)
            return fetch(fetcher, index)
        begin = thread_time_ns()
        batch = fetch(fetcher, index)
        self.passed(FETCH, thread_time_ns() - begin)
        return batch

    def begin_step(self) -> None:
        """The program is about to get a batch: what it does then is sampled, timed, or neither."""
        now = monotonic_ns()
        if now >= self.next_ns and _begin_step(self):
            return
        if self.engine.slows and self.times_others(LOOP):
            self.timed[get_ident()], self.due.in_step = thread_time_ns(), True
        else:
            self.due.step_ns = time_ns() + max(self.next_ns - now, _AGAIN_NS)

    def end_step(self) -> None:
        """The program has asked for its next batch."""
        if self.part is not None:
            self.stop()
        elif begin := self.timed.pop(get_ident(), 0):
            self.passed(LOOP, thread_time_ns() - begin)
        self.due.in_step = self.part is not None or bool(self.timed)

    def start(self, name: str, codes: tuple[CodeType, ...], frame: FrameType | None = None) -> bool:
        """Begins a sample of a part, in this thread, unless it would cost too much.

        Args:
            name: of the part.
            codes: its outermost functions.
            frame: of the first of these, where that runs already.
        """
        if monotonic_ns() < self.next_ns or self.part is not None or not self.channel.on:
            return False
        try:
            return self._start(name, codes, frame)
        except Exception as error:
            self.fail(error)
            return False

    def _start(self, name: str, codes: tuple[CodeType, ...], frame: FrameType | None) -> bool:
        # Another tool watches the program now: to be tried again later.
        if not self.engine.is_free():
            self._wait_until(monotonic_ns() + _TABLE_NS)
            return False
        part = self.parts.get(name)
        if part is None:
            part = self.parts[name] = Part(name)
        # A trace function adds time; how much shows beside others without one, which come first.
        if self.engine.slows and part.others < min(part.taken - 1, _COMPARED):
            return False
        for code in codes:
            part.add(code)
        if not part.functions or (frame is not None and frame.f_code not in part.functions):
            return False
        self.part, self.thread, self.events, self._frame = part, get_ident(), 0, frame
        self.due.in_step = True
        self.stack = []
        # The loop runs already, so that no event will tell of its call.
        if frame is not None:
            running = part.functions[frame.f_code]
            running.calls += 1
            self.stack.append(_Running(running, frame.f_lineno))
        self.engine.begin(part, frame)
        self._wall_ns, self._cpu_ns = perf_counter_ns(), thread_time_ns()
        return True

    def stop(self) -> None:
        """Ends the sample of this thread, if there is one."""
        if self.part is not None and self.thread == get_ident():
            try:
                self._stop(self.part)
            except Exception as error:
                self.fail(error)

    def _stop(self, part: Part) -> None:
        wall, cpu = perf_counter_ns() - self._wall_ns, thread_time_ns() - self._cpu_ns
        self.engine.end(part, self._frame)
        for running in self.stack:
            running.charge(running.line)
        self.part, self._frame, self.stack = None, None, []
        part.sampled(wall, cpu, self.events)
        self._is_new = True
        self._charge(part)
        now = monotonic_ns()
        if now - self._written_ns >= self._table_ns:
            self._table_ns = min(2 * self._table_ns, 60_000_000_000)
            self.write()

    def _charge(self, part: Part) -> None:
        """What samples of a part have cost, as is known now; the next one is to be paid for."""
        cost_ns = self.engine.cost_ns(part)
        share = SHARE if part.samples < _KNOWN else _LATER_SHARE
        self._earned_ns += (cost_ns - part.charged_ns) / share
        part.charged_ns = cost_ns
        self._wait_until(int(self._earned_ns + cost_ns / part.taken / SHARE))

    def _wait_until(self, next_ns: int) -> None:
        """No sample before then; until the next fetch and step have seen that, they look."""
        self.next_ns, self.due.fetch_ns, self.due.step_ns = next_ns, 0, 0

    def fail(self, error: Exception) -> None:
        """Ends the sample, and all later ones."""
        part, self.part = self.part, None
        self.channel.fail(error)
        self.next_ns = self.due.fetch_ns = self.due.step_ns = NEVER_NS
        if part is not None:
            self.engine.end(part, self._frame)

    def count(self) -> None:
        """One more event; with too many of them the rest of the sample has none."""
        self.events += 1
        if self.events >= _MOST_EVENTS and self.part is not None:
            self.engine.end(self.part, self._frame)

    def times_others(self, name: str) -> bool:
        """Whether fetches or steps that are not sampled are to be timed: some after each sample."""
        part = self.parts.get(name)
        return part is not None and part.others_left > 0

    def passed(self, name: str, cpu_ns: int) -> None:
        """A fetch or step that was not sampled, for what a trace function adds to be known."""
        part = self.parts.get(name)
        if part is not None:
            part.others_left -= 1
            part.others += 1
            part.others_cpu_ns += cpu_ns
            part.others_least_ns = min(part.others_least_ns, cpu_ns)
            part.others_most_ns = max(part.others_most_ns, cpu_ns)
            self._is_new = True
            if part.others == _OTHERS and part.taken:
                self._charge(part)

    def write(self) -> None:
        """Writes what was found until now into the journal, where that is new."""
        if not self._is_new or not self.channel.on:
            return
        self._is_new, self._written_ns = False, monotonic_ns()
        try:
            for part in self.parts.values():
                if table := part.table():
                    self.channel.describe(table)
        except Exception as error:
            self.channel.fail(error)

    def line(self, code: CodeType, line: int) -> None:
        """A watched function comes to a line."""
        if get_ident() != self.thread:
            return
        try:
            running = self._running(code)
            if running is not None and self.part is not None:
                running.charge(line)
                running.function.events += 1
                self.count()
                if running.function.events == _MOST_LINES:
                    self.engine.end(self.part, self._frame)
        except Exception as error:
            self.fail(error)

    def entered(self, code: CodeType, line: int) -> None:
        """A watched function is called, or goes on after a yield."""
        function = self.part.functions.get(code) if self.part is not None else None
        if function is not None and get_ident() == self.thread:
            function.calls += 1
            self.stack.append(_Running(function, line))
            self.count()

    def left(self, code: CodeType) -> None:
        """A watched function returns or yields; with that of the loop its sample ends."""
        if get_ident() != self.thread:
            return
        try:
            running = self._running(code)
            # The line until here; then the call of the caller, or the end of the sample.
            if running is not None:
                running.charge(running.line)
                self.count()
                self.stack.pop()
                if self.stack:
                    self.stack[-1].end_call(perf_counter_ns())
                elif self._frame is not None:
                    self.stop()
        except Exception as error:
            self.fail(error)

    def calls(self, code: CodeType, function: object) -> None:
        """A watched function calls another: which, and from when on."""
        if get_ident() != self.thread:
            return
        try:
            running = self._running(code)
            if running is not None:
                self.count()
                called = code_of(function)
                if called is None:
                    running.end_call(perf_counter_ns())
                else:
                    running.begin_call(called)
        except Exception as error:
            self.fail(error)

    def _running(self, code: CodeType) -> _Running | None:
        """The call of a function that is on top; those that an exception has left are gone."""
        stack = self.stack
        while stack and stack[-1].function.code is not code:
            if not any(one.function.code is code for one in stack):
                return None
            stack.pop()
        return stack[-1] if stack else None


class _Monitoring:
    """`sys.monitoring`, Python 3.12 and later: events of single code objects."""

    slows = False

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._tool = -1
        events = _MONITORING.events
        self._events = (
            events.LINE | events.PY_START | events.PY_RESUME | events.PY_RETURN | events.PY_YIELD
            | events.CALL
        )  # fmt: skip
        self._calls = (
            (events.LINE, self._line),
            (events.PY_START, self._start),
            (events.PY_RESUME, self._start),
            (events.PY_RETURN, self._return),
            (events.PY_YIELD, self._return),
            (events.CALL, self._call),
        )

    def is_free(self) -> bool:
        """Whether nobody else looks at the program."""
        tools = _MONITORING
        return (
            sys.gettrace() is None
            and sys.getprofile() is None
            and all(tools.get_tool(number) is None for number in range(6))
        )

    def cost_ns(self, part: Part) -> int:
        """What all samples have cost."""
        return part.taken * _SAMPLE_NS + part.taken_events * _EVENT_NS

    def begin(self, part: Part, _frame: FrameType | None) -> None:
        """Switches the events of its functions on."""
        tools = _MONITORING
        tools.use_tool_id(4, "vanidl")
        self._tool = 4
        for event, call in self._calls:
            tools.register_callback(4, event, call)
        for code in part.functions:
            tools.set_local_events(4, code, self._events)

    def end(self, part: Part, _frame: FrameType | None) -> None:
        """Switches them off, and gives the id back."""
        if self._tool < 0:
            return
        tools = _MONITORING
        for code in part.functions:
            tools.set_local_events(4, code, 0)
        for event, _ in self._calls:
            tools.register_callback(4, event, None)
        tools.free_tool_id(4)
        self._tool = -1

    def _line(self, code: CodeType, line: int) -> None:
        self._sampler.line(code, line)

    def _start(self, code: CodeType, _offset: int) -> None:
        self._sampler.entered(code, code.co_firstlineno)

    def _return(self, code: CodeType, _offset: int, _value: object) -> None:
        self._sampler.left(code)

    def _call(self, code: CodeType, _offset: int, function: object, _first: object) -> None:
        self._sampler.calls(code, function)


class _Tracing:
    """A trace function, before Python 3.12: all Python that the thread runs meanwhile is slower."""

    slows = True

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._global, self._local, self._callee = self._called, self._within, self._in_callee

    def is_free(self) -> bool:
        """Whether nobody else looks at the program, and no compiler is at work in it."""
        compiler = sys.modules.get("torch._dynamo.eval_frame")
        compilers = getattr(compiler, "cached_backends", None) or {}
        return (
            sys.gettrace() is None
            and sys.getprofile() is None
            and not any(map(callable, compilers.values()))
        )

    def cost_ns(self, part: Part) -> int:
        """What all samples have cost: by events, and by what they took more than others.

        Of that as much is chance as single ones of the others differ: it adds up as their root.
        Until others are known, most of the time of a sample may be its cost.
        """
        if part.others < _OTHERS:
            added_ns = 3 * part.taken_cpu_ns // 4
        else:
            usual_ns = part.taken * part.others_cpu_ns // part.others
            differ_ns = part.others_most_ns - part.others_least_ns
            added_ns = part.taken_cpu_ns - usual_ns - int(part.taken**0.5 * differ_ns)
        return part.taken * _SAMPLE_NS + max(part.taken_events * _EVENT_NS, added_ns)

    def begin(self, _part: Part, frame: FrameType | None) -> None:
        """Has this thread traced."""
        if frame is not None:
            frame.f_trace = self._local
        sys.settrace(self._global)

    def end(self, _part: Part, frame: FrameType | None) -> None:
        """Leaves the thread as it was; a trace function that the program set meanwhile stays."""
        if sys.gettrace() is self._global:
            sys.settrace(None)
        if frame is not None and frame.f_trace is self._local:
            frame.f_trace = None

    def _called(self, frame: FrameType, _event: str, _value: object) -> Any:  # noqa: ANN401
        sampler, code, back = self._sampler, frame.f_code, frame.f_back
        sampler.count()
        stack = sampler.stack
        for running in stack:
            running.calls += 1
        if is_own(code):  # a hook: the line calls what that calls
            return None
        while back is not None and is_own(back.f_code):
            back = back.f_back
        by_watched = bool(stack) and back is not None and back.f_code is stack[-1].function.code
        if by_watched:
            stack[-1].begin_call(code)
        if sampler.part is not None and code in sampler.part.functions:
            sampler.entered(code, frame.f_lineno)
            return self._local
        if not by_watched:
            return None
        frame.f_trace_lines = False
        return self._callee

    def _in_callee(self, frame: FrameType, event: str, _value: object) -> Any:  # noqa: ANN401
        stack = self._sampler.stack
        if event == "return" and stack and stack[-1].called is frame.f_code:
            stack[-1].end_call(perf_counter_ns())
        return self._callee

    def _within(self, frame: FrameType, event: str, _value: object) -> Any:  # noqa: ANN401
        if event == "line":
            self._sampler.line(frame.f_code, frame.f_lineno)
        elif event == "return":
            self._sampler.left(frame.f_code)
        return self._local


def is_own(code: CodeType) -> bool:
    """Whether a function is one of the recorder."""
    return code.co_filename.startswith(_OWN)


def is_library(code: CodeType) -> bool:
    """Whether a function is none of the program's own files."""
    name = code.co_filename
    return name.startswith(("<", _STANDARD, _OWN)) or any(folder in name for folder in _LIBRARY)


def code_of(function: Any) -> CodeType | None:  # noqa: ANN401
    """The code that a call of something runs, of a hook what is hooked; None: not in Python."""
    while (hook := getattr(function, "__code__", None)) is not None and is_own(hook):
        function = getattr(function, "__wrapped__", None)
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None and not isinstance(function, type):
        kind = type(function)
        called = getattr(kind, "forward", None) or getattr(kind, "__call__", None)  # noqa: B004
        code = getattr(called, "__code__", None)
    return code if hasattr(code, "co_firstlineno") else None


def _sampler(channel: Channel) -> Sampler:
    """The one of this process."""
    found = channel.shared.get("sampler")
    if found is None:
        found = channel.shared["sampler"] = Sampler(channel)
    return found


def watch_fetchers(module: ModuleType, channel: Channel) -> None:
    """Samples what a fetcher of PyTorch's DataLoader calls: its dataset and collate_fn.

    And steps: what the function that asks for batches does between two of them. `fetches` and
    `waits` say when either begins.
    """
    channel.journal.lines = _sampler(channel)
    _keep_collate(module._BaseDatasetFetcher)


def _keep_collate(fetcher_class: Any) -> None:  # noqa: ANN401
    """The program's own collate_fn: other hooks replace it in the fetcher."""
    original = fetcher_class.__init__
    place = tuple(signature(original).parameters).index("collate_fn") - 1

    @wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        original(self, *args, **kwargs)
        self._vanidl_collate = args[place] if len(args) > place else kwargs.get("collate_fn")

    fetcher_class.__init__ = __init__


def _codes_of(fetcher: Any) -> tuple[CodeType, ...]:  # noqa: ANN401
    """The functions that a fetch calls first."""
    samples = getattr(fetcher, "dataset_iter", None)
    if samples is None:
        kind = type(getattr(fetcher, "dataset", None))
        found = [code_of(getattr(kind, name, None)) for name in ("__getitem__", "__getitems__")]
    else:
        found = [getattr(samples, "gi_code", None) or code_of(type(samples).__next__)]
    found.append(code_of(getattr(fetcher, "_vanidl_collate", None)))
    return tuple(code for code in found if code is not None)


def watch_workers(module: Any, channel: Channel) -> None:  # noqa: ANN401
    """Has a worker write what it found before it ends."""
    original, sampler = module._worker_loop, _sampler(channel)

    @wraps(original)
    def _worker_loop(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        try:
            original(*args, **kwargs)
        finally:
            sampler.write()

    module._worker_loop = _worker_loop


def _begin_step(sampler: Sampler) -> bool:
    """Begins a sample where a function of the program has the loop, or one that a framework calls.

    Where a framework has it, the line of the program that called that would have all of the time.

    Returns:
        Whether one has begun.
    """
    try:
        # From the recorder's own frames to the program's, past those of a framework.
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and is_own(frame.f_code):
            frame = frame.f_back
        is_framework = False
        while frame is not None and (
            is_library(frame.f_code) or frame.f_code.co_flags & _GENERATOR
        ):
            if not frame.f_code.co_flags & _GENERATOR:
                is_framework = True
                if codes := _called_in_step(frame):
                    return sampler.start(LOOP, codes)
            frame = frame.f_back
        if frame is None or is_framework:
            return False
        return sampler.start(LOOP, (frame.f_code,), frame)
    except Exception as error:
        sampler.channel.fail(error)
        return False


def _called_in_step(frame: FrameType) -> tuple[CodeType, ...]:
    """The program's functions that the framework calls for a batch, whose loop this frame may be.

    Of Lightning's loops `training_step`, of Hugging Face's Trainer `compute_loss` and `forward`, of
    fastai's Learner `forward`, of an ignite engine its function.
    """
    if frame.f_code.co_varnames[:1] != ("self",):
        return ()
    own = frame.f_locals.get("self")
    module = getattr(getattr(own, "trainer", None), "lightning_module", None)
    functions = (
        getattr(module, "training_step", None),
        getattr(own, "compute_loss", None),
        getattr(getattr(own, "model", None), "forward", None),
        getattr(own, "_process_function", None),
    )
    codes = (code_of(function) for function in functions if function is not None)
    return tuple(code for code in codes if code is not None and not is_library(code))
