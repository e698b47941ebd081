"""Patches of the program, for `git apply`: what an action changes, in the lines that ran.

Other arguments of the call that makes the loader; archives that each process opens once; saves in
the background, or fewer; files synced now and then; requests that threads wait for; files whose
copy in memory is read; work on batches that workers do. The source is
looked at where the run was recorded, and only while it is what ran: a file that was changed since
gets no patch. Nothing of it is run. None is made where it is not plain which call is meant, or
lines around it rest on what it does now.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TypeGuard

from vanidl.advice.actions import (
    KEEP_FILES,
    KEEP_OPEN,
    LOADER,
    PREPARE,
    SAVE_BEHIND,
    SAVE_SELDOM,
    SEND_BEHIND,
    SYNC_SELDOM,
)
from vanidl.formatting.secrets import is_secret_name, masked_text
from vanidl.model.trace import Trace
from vanidl.schema.dataclass import dataclass

_MOST_NBYTES = 1 << 20
_CLASSES = frozenset({"DataLoader", "StatefulDataLoader"})
_POSITIONS = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers",
              "collate_fn", "pin_memory")  # fmt: skip
_ODD = frozenset("\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")
"""Ends of lines for some and not for others: a patch would be of other lines."""
_NEEDS_WORKERS = ("persistent_workers", "prefetch_factor")
_ASSIGNED = re.compile(r"(\w+)[\"']?\]?\s*[:=]")
_LOADER = re.compile(r"DataLoader \d+ \((\w+)")


def patch_program(trace: Trace, kind: str, settings: Mapping[str, str] | None = None) -> str:
    """A patch of the run's own source; "" where none can be made.

    Paths in it are relative to the folder of the program.

    Args:
        trace: the run.
        kind: what is changed, `LOADER` and the like.
        settings: of a loader its arguments, as source text, of which none changes its workers where
            it has some and they prepare batches; `every_s` of saves.
    """
    given = settings or {}
    if kind in (LOADER, PREPARE):
        datasets = set(_LOADER.findall(" ".join(trace.fetches.names)))
        make = _make_loader_edit if kind == LOADER else _make_prepare_edit
        edit = make(datasets, given)
    elif kind == SAVE_SELDOM:
        helper = _SAVED_SELDOM.format(every_s=given["every_s"])
        edit = partial(
            _edit_save, function="_save_seldom", modules=["atexit", "time"], helper=helper
        )
    else:
        edit = _EDITS[kind]
    # The first of the sampled files that the edit applies to.
    for path, text in _iterate_sources(trace):
        try:
            changed = edit(text, _mark_sampled(ast.parse(text), path, trace))
        except (SyntaxError, ValueError, RecursionError):
            continue
        if changed is not None and changed != text:
            patch = _compare_sources(path.name, text, changed)
            return patch if _is_safe_to_show(patch) else ""
    return ""


_Edit = Callable[[str, ast.Module], str | None]
"""The source with the change in it; None where it cannot be made."""


def _make_loader_edit(datasets: set[str], settings: Mapping[str, str]) -> _Edit:
    def edit(text: str, tree: ast.Module) -> str | None:
        calls = list(_find_loader_calls(tree, datasets))
        return _edit_call(text, calls[0], settings) if len(calls) == 1 else None

    return edit


def _is_safe_to_show(patch: str) -> bool:
    """Whether its lines hold no secret and no control characters: masked it would not apply."""
    lines = patch.split("\n")
    if any(is_secret_name(name) for line in lines for name in _ASSIGNED.findall(line)):
        return False
    plain = all(line.replace("\t", "").isprintable() for line in lines)
    return plain and all(masked_text(line) == line for line in lines)


def _iterate_sources(trace: Trace) -> Iterator[tuple[Path, str]]:
    """Files of the program in which lines were sampled, as they were when it ran."""
    since_s = trace.job.start_ns / 1e9
    own = (f.file for part in trace.lines for f in part.functions if f.own)
    for name in dict.fromkeys(own):
        path = Path(name)
        try:
            known = path.stat()
            # A file that was changed since is not the program that ran.
            if known.st_mtime <= since_s and known.st_size <= _MOST_NBYTES:
                text = path.read_bytes().decode()
                # A patch of odd line ends, or of none at the end, may not apply.
                if text.endswith("\n") and not _ODD.intersection(text):
                    yield path, text
        except (OSError, ValueError):
            continue


def _find_loader_calls(tree: ast.Module, datasets: set[str]) -> Iterator[ast.Call]:
    """Calls that make a loader: of several those over a dataset of the class that was recorded."""
    calls = [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_loader_name(node.func)
    ]
    if len(calls) < 2:
        yield from calls
        return
    # What each name was made by, to follow `DataLoader(name)` to the class of its dataset.
    made = {
        target.id: _get_callee_name(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for call in calls:
        first = call.args[0] if call.args else None
        name = made.get(first.id, "") if isinstance(first, ast.Name) else _get_callee_name(first)
        if name in datasets:
            yield call


def _is_loader_name(function: ast.expr) -> bool:
    """Whether an expression names a loader's class."""
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in _CLASSES


def _get_callee_name(expression: ast.expr | None) -> str:
    """The last name of what is called, "" for other expressions."""
    if not isinstance(expression, ast.Call):
        return ""
    function = expression.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _edit_call(text: str, call: ast.Call, settings: Mapping[str, str]) -> str | None:
    """The source with other arguments in one call; None where they cannot be given there."""
    source = _Source(text)
    changes = _list_argument_changes(source, call, settings)
    return source.replace(changes) if changes is not None else None


def _get_arguments(call: ast.Call) -> dict[str, ast.expr]:
    """The arguments of a loader by name."""
    given = {each.arg: each.value for each in call.keywords if each.arg is not None}
    return given | dict(zip(_POSITIONS, call.args, strict=False))


def _list_argument_changes(
    source: _Source, call: ast.Call, settings: Mapping[str, str]
) -> list[tuple[int, int, str]] | None:
    """What to replace for other arguments in a call; None where they cannot be given there."""
    # `**options` may hold the same arguments: to give them twice is an error.
    if any(each.arg is None for each in call.keywords) or call.end_lineno is None:
        return None
    given = _get_arguments(call)
    workers = settings.get("num_workers", _format_constant(given.get("num_workers")))
    # PyTorch refuses these arguments in a loader without workers.
    if workers == "0" and any(name in settings for name in _NEEDS_WORKERS):
        return None
    changes = [
        (*source.at(value), new)
        for name, new in settings.items()
        if (value := given.get(name)) is not None
    ]
    # Arguments that the call lacks go behind its last one.
    more = ", ".join(f"{name}={new}" for name, new in settings.items() if name not in given)
    if more:
        end = max(source.at(each)[1] for each in [*call.args, *(k.value for k in call.keywords)])
        changes.append((end, end, f", {more}"))
    return changes


def _format_constant(expression: ast.expr | None) -> str:
    """A number of the source as text; "0" for an argument that is not given, "?" for names."""
    if expression is None:
        return "0"
    return str(expression.value) if isinstance(expression, ast.Constant) else "?"


def _locate_offset(lines: list[str], line: int, column: int) -> int:
    """Where in the text a place of the syntax tree is, whose columns count bytes."""
    before = lines[line - 1].encode()[:column].decode(errors="replace")
    return sum(map(len, lines[: line - 1])) + len(before)


# --- Other calls ---------------------------------------------------------------------------------

_OPENERS = frozenset({"zipfile.ZipFile", "ZipFile", "h5py.File"})
_READERS = _OPENERS | {"open", "np.load", "numpy.load", "Image.open", "PIL.Image.open"}
"""Functions that read the file of a path."""
_NOT_IN_WORKERS = re.compile(r"\b(?:global|nonlocal|yield|await|cuda|device|to)\b")
"""In a function: it needs the device, or leaves something in the training process."""
_SAVERS = {"torch.save": 1, "np.savez": 0, "numpy.savez": 0, "np.save": 0, "numpy.save": 0}
"""Functions that save, and which of their arguments is the path."""
_USES = re.compile(r"\b(?:rename|replace|copy\w*|move|load\w*|upload\w*|put_object|unlink|stat)\(")
"""What is done with a file that has just been saved: it has to be there by then."""

_SENDERS = re.compile(r"(urllib\.request\.)?urlopen|requests\.(get|post|put|patch)|mlflow\.log_\w+")
"""Functions that ask a service, without a connection that threads would share."""

_OPENED = """\
@_functools.lru_cache(maxsize=16)
def _open_once(pid, opener, *arguments, **options):
    \"\"\"An open file, which each process keeps.\"\"\"
    return opener(*arguments, **options)
"""
_SAVED = """\
_SAVER, _SAVES = _futures.ThreadPoolExecutor(1), []


def _copy_state(value):
    \"\"\"What is saved as it is now, in host memory.\"\"\"
    if hasattr(value, "detach"):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {name: _copy_state(part) for name, part in value.items()}
    return _copy.deepcopy(value)


def _save_behind(save, *arguments, **options):
    \"\"\"Saves a copy while the loop goes on; the save before has ended, or raises its error.\"\"\"
    while _SAVES:
        _SAVES.pop().result()
    copies = {name: _copy_state(value) for name, value in options.items()}
    _SAVES.append(_SAVER.submit(save, *map(_copy_state, arguments), **copies))


_atexit.register(lambda: [save.result() for save in _SAVES])
"""
_SAVED_SELDOM = """\
_SAVED, _LATER = [_time.monotonic()], {{}}


def _save_seldom(save, *arguments, **options):
    \"\"\"Saves every {every_s} seconds at most, and at the end what was to be saved last.\"\"\"
    _LATER["last"] = (save, arguments, options)
    if _time.monotonic() - _SAVED[0] >= {every_s}:
        _save_last()
        _SAVED[0] = _time.monotonic()


def _save_last():
    if _LATER:
        save, arguments, options = _LATER.pop("last")
        save(*arguments, **options)


_atexit.register(_save_last)
"""
_SYNCED = """\
_SYNCED = {}


def _sync_seldom(file):
    \"\"\"Syncs a file every 30 seconds at most: so much is lost if the node itself goes down.\"\"\"
    now = _time.monotonic()
    if now - _SYNCED.get(file, -30.0) >= 30:
        _os.fsync(file)
        _SYNCED[file] = now
"""


_KEPT = """\
if "VANIDL_KEPT_FILES" not in _os.environ:
    _os.environ["VANIDL_KEPT_FILES"] = _tempfile.mkdtemp(
        dir="/dev/shm" if _os.path.isdir("/dev/shm") else None
    )
    _atexit.register(
        lambda pid, kept: _os.getpid() == pid and _shutil.rmtree(kept, ignore_errors=True),
        _os.getpid(), _os.environ["VANIDL_KEPT_FILES"],
    )


def _keep_file(path):
    \"\"\"The copy of a file in memory, made when it is first read; itself where half is full.\"\"\"
    folder = _os.environ["VANIDL_KEPT_FILES"]
    kept = _os.path.join(folder, _hashlib.sha256(_os.fsencode(_os.path.abspath(path))).hexdigest())
    if not _os.path.exists(kept):
        room = _shutil.disk_usage(folder)
        if room.free - _os.path.getsize(path) < room.total / 2:
            return path
        _shutil.copyfile(path, f"{kept}.{_os.getpid()}")
        _os.replace(f"{kept}.{_os.getpid()}", kept)
    return kept
"""
_PREPARED = """\
class _Prepared:
    \"\"\"Collates samples and prepares the batch, in the worker that loads it.\"\"\"

    def __init__(self, prepare, *arguments):
        self.prepare, self.arguments = prepare, arguments

    def __call__(self, samples):
        return self.prepare(_data.default_collate(samples), *self.arguments)
"""
_SENT = """\
_SENDER, _SENT = _futures.ThreadPoolExecutor(8), _collections.deque()


def _send(send, arguments, options):
    \"\"\"Sends, and reads what is answered.\"\"\"
    answer = send(*arguments, **options)
    if hasattr(answer, "read"):
        with answer:
            answer.read()


def _send_behind(send, *arguments, **options):
    \"\"\"Sends while the loop goes on, in no certain order; a later call raises its error.\"\"\"
    while _SENT and (len(_SENT) >= 1000 or _SENT[0].done()):
        _SENT.popleft().result()
    given = _copy.deepcopy((arguments, options))
    _SENT.append(_SENDER.submit(_send, send, *given))


_atexit.register(lambda: [sent.result() for sent in _SENT])
"""


@dataclass(frozen=True, slots=True)
class _Place:
    """A call, and the innermost function that it is made in."""

    call: ast.Call
    function: ast.FunctionDef | ast.AsyncFunctionDef


_SAMPLED = "_was_sampled"


def _mark_sampled(tree: ast.Module, path: Path, trace: Trace) -> ast.Module:
    """The tree, with a mark on functions of which lines were sampled.

    Methods of several classes may have one name: those that begin where it was recorded, if any.
    """
    mine = (f for part in trace.lines for f in part.functions if f.own and Path(f.file) == path)
    firsts: dict[str, set[int]] = {}
    for function in mine:
        firsts.setdefault(function.name.rpartition(".")[2], set()).add(function.first)
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name in firsts
    ]
    # The interpreter numbers a decorated function from its first decorator.
    begins = {
        id(node): min(node.lineno, *(each.lineno for each in node.decorator_list))
        if node.decorator_list else node.lineno for node in found
    }  # fmt: skip
    exact = [node for node in found if begins[id(node)] in firsts[node.name]]
    for node in found:
        named = {id(each) for each in exact if each.name == node.name}
        if not named or id(node) in named:
            setattr(node, _SAMPLED, True)
    return tree


def _find_calls(tree: ast.Module, is_meant: Callable[[ast.Call], bool]) -> list[_Place]:
    """Calls within functions, but for those that build an object once."""
    places: list[_Place] = []

    def visit(node: ast.AST, function: ast.FunctionDef | ast.AsyncFunctionDef | None) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function = node
        if isinstance(node, ast.Call) and function is not None and is_meant(node):
            places.append(_Place(node, function))
        for child in ast.iter_child_nodes(node):
            visit(child, function)

    visit(tree, None)
    places = [place for place in places if place.function.name != "__init__"]
    # Of several those in functions that were seen running: others make data, or test.
    sampled = [place for place in places if hasattr(place.function, _SAMPLED)]
    return sampled if len(places) > 1 else places


def _keep_open(text: str, tree: ast.Module) -> str | None:
    """Archives that are opened for reading again and again, once in each process."""

    def opens(call: ast.Call) -> bool:
        modes = [*call.args[1:2], *(k.value for k in call.keywords if k.arg == "mode")]
        reads = all(isinstance(mode, ast.Constant) and mode.value == "r" for mode in modes)
        plain = not any(isinstance(each, ast.Starred) for each in call.args)
        return ast.unparse(call.func) in _OPENERS and reads and plain and bool(call.args)

    # One place alone, so that it is plain which call is meant.
    places = _find_calls(tree, opens)
    if len(places) != 1:
        return None
    (place,) = places
    call, source = place.call, _Source(text)
    opener = ast.unparse(call.func)
    changes = [(source.at(call)[0], source.at(call.args[0])[0],
                f"_open_once(_os.getpid(), {opener}, ")]  # fmt: skip

    # Who closes it, by a word or at the end of a block, no longer does.
    for node in ast.walk(place.function):
        if isinstance(node, (ast.With, ast.AsyncWith)) and call in [
            item.context_expr for item in node.items
        ]:
            begin, end = source.at(call)
            changes[0] = (begin, changes[0][1], f"_contextlib.nullcontext({changes[0][2]}")
            changes.append((end, end, ")"))
        elif isinstance(node, ast.Assign) and node.value is call:
            names = {ast.unparse(target) for target in node.targets}
            closing = (
                each for each in ast.walk(place.function)
                if isinstance(each, ast.Expr) and ast.unparse(each.value)
                in {f"{name}.close()" for name in names}
            )  # fmt: skip
            changes += [(*source.at(each), "pass  # it stays open") for each in closing]
    changed = source.replace(changes)

    # An archive that is still closed somewhere would be closed for all who share it: no patch.
    if ".close()" in "".join(
        changed.splitlines(keepends=True)[place.function.lineno - 1 : place.function.end_lineno]
    ):
        return None
    modules = ["contextlib"] if "_contextlib" in changed else []
    return _add_helper(changed, tree, [*modules, "functools", "os"], _OPENED)


def _save_behind(text: str, tree: ast.Module) -> str | None:
    """The save of a loop by a thread, from a copy."""
    return _edit_save(text, tree, "_save_behind", ["atexit", "concurrent.futures", "copy"], _SAVED)


def _edit_save(
    text: str, tree: ast.Module, function: str, modules: list[str], helper: str
) -> str | None:
    """The one save of a program by a function of ours."""

    def saves(call: ast.Call) -> bool:
        name = ast.unparse(call.func)
        return (
            name in _SAVERS
            and len(call.args) > _SAVERS[name]
            and _is_path(call.args[_SAVERS[name]])
        )

    places = _find_calls(tree, saves)
    if len(places) != 1:
        return None
    (place,) = places
    call, source = place.call, _Source(text)
    statement = next(
        (n for n in ast.walk(place.function) if isinstance(n, ast.Expr) and n.value is call), None
    )
    # Not where its result is used, or where what follows may need the file.
    after = text.splitlines()[(call.end_lineno or 0) : place.function.end_lineno]
    if statement is None or _USES.search("\n".join(after)):
        return None
    begin, first = source.at(call)[0], source.at(call.args[0])[0]
    changed = source.replace([(begin, first, f"{function}({ast.unparse(call.func)}, ")])
    return _add_helper(changed, tree, modules, helper)


def _is_path(expression: ast.expr) -> bool:
    """Whether an expression is a path as such, and no open file."""
    if isinstance(expression, ast.Call):
        return ast.unparse(expression.func) in ("os.path.join", "Path", "pathlib.Path", "str")
    by_slash = isinstance(expression, ast.BinOp) and isinstance(expression.op, (ast.Div, ast.Add))
    text = isinstance(expression, ast.Constant) and isinstance(expression.value, str)
    return by_slash or text or isinstance(expression, ast.JoinedStr)


def _sync_seldom(text: str, tree: ast.Module) -> str | None:
    """The sync of each step, now and then."""
    places = _find_calls(tree, lambda call: ast.unparse(call.func) == "os.fsync")
    if len(places) != 1:
        return None
    source = _Source(text)
    changed = source.replace([(*source.at(places[0].call.func), "_sync_seldom")])
    return _add_helper(changed, tree, ["os", "time"], _SYNCED)


def _send_behind(text: str, tree: ast.Module) -> str | None:
    """The request of a loop, by threads: its answer is read and not used."""
    places = _find_calls(tree, lambda call: bool(_SENDERS.fullmatch(ast.unparse(call.func))))
    if len(places) != 1:
        return None
    call, source = places[0].call, _Source(text)
    statement = next(
        (node for node in ast.walk(places[0].function) if _is_only_sent(node, call)), None
    )
    if statement is None or not call.args:
        return None

    # All of the statement goes, a block that reads the answer, too.
    begin, end = source.at(statement)
    first = source.at(call.args[0])[0]
    changed = source.replace([
        (begin, first, f"_send_behind({ast.unparse(call.func)}, "),
        (source.at(call)[1], end, ""),
    ])  # fmt: skip
    return _add_helper(
        changed, tree, ["atexit", "collections", "concurrent.futures", "copy"], _SENT
    )


def _is_only_sent(node: ast.AST, call: ast.Call) -> TypeGuard[ast.Expr | ast.With]:
    """Whether a statement sends, and does no more with the answer than to read it."""
    if isinstance(node, ast.With) and [item.context_expr for item in node.items] == [call]:
        name = node.items[0].optional_vars
        reads = {f"{name.id}.read()"} if isinstance(name, ast.Name) else set()
        return all(ast.unparse(each) in {"pass", *reads} for each in node.body)
    return isinstance(node, ast.Expr) and node.value is call


def _keep_files(text: str, tree: ast.Module) -> str | None:
    """Files that samples are read from, by their copies in memory."""

    def reads(call: ast.Call) -> bool:
        modes = [*call.args[1:2], *(k.value for k in call.keywords if k.arg == "mode")]
        is_read = all(isinstance(m, ast.Constant) and m.value in ("r", "rb") for m in modes)
        plain = bool(call.args) and not any(isinstance(each, ast.Starred) for each in call.args)
        name = ast.unparse(call.func)
        return name in _READERS and plain and is_read and (bool(modes) or name != "open")

    # Only in a function of which lines were sampled: what else is read needs no copy.
    places = _find_calls(tree, reads)
    if len(places) != 1 or not hasattr(places[0].function, _SAMPLED):
        return None
    source = _Source(text)
    begin, end = source.at(places[0].call.args[0])
    changed = source.replace([(begin, begin, "_keep_file("), (end, end, ")")])
    return _add_helper(changed, tree, ["atexit", "hashlib", "os", "shutil", "tempfile"], _KEPT)


def _make_prepare_edit(datasets: set[str], settings: Mapping[str, str]) -> _Edit:
    """What a loop does to each batch first, by the workers of its loader."""

    def edit(text: str, tree: ast.Module) -> str | None:
        calls = list(_find_loader_calls(tree, datasets))
        found = _find_preparation(tree, calls[0]) if len(calls) == 1 else None
        if found is None:
            return None
        statement, call = found
        # Samples are collated as they were, and prepared where that is done.
        given = _get_arguments(calls[0])
        size = given.get("batch_size")
        if "collate_fn" in given or (isinstance(size, ast.Constant) and size.value is None):
            return None
        # The batch is the first argument: the others are bound.
        by = ", ".join([ast.unparse(call.func), *map(ast.unparse, call.args[1:])])
        # A loader without workers gets some: else preparing would only move within the process.
        has_workers = _format_constant(given.get("num_workers")) != "0"
        arguments = {} if has_workers else dict(settings)
        source = _Source(text)
        changes = _list_argument_changes(
            source, calls[0], {**arguments, "collate_fn": f"_Prepared({by})"}
        )
        if changes is None:
            return None
        # What is left in the loop: nothing, or the second name of the batch.
        target, batch = ast.unparse(statement.targets[0]), ast.unparse(call.args[0])
        left = "pass  # workers do" if target == batch else f"{target} = {batch}"
        changed = source.replace([*changes, (*source.at(statement), left)])
        return _add_helper(changed, tree, ["torch.utils.data"], _PREPARED)

    return edit


def _find_preparation(tree: ast.Module, loader: ast.Call) -> tuple[ast.Assign, ast.Call] | None:
    """The first statement of a loop over a loader, where it is `a = function(batch, 1)`.

    None where the function may do more than to make a batch of a batch, or the loop needs the batch
    as it was.
    """
    named = {
        target.id for node in ast.walk(tree) if isinstance(node, ast.Assign)
        and node.value is loader for target in node.targets if isinstance(target, ast.Name)
    }  # fmt: skip
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    # The one loop over the loader, by its own name or where it is called.
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For)
             and (node.iter is loader or ast.unparse(node.iter) in named)]  # fmt: skip
    if len(loops) != 1 or not isinstance(loops[0].target, ast.Name):
        return None
    batch, first = loops[0].target.id, loops[0].body[0]
    if not isinstance(first, ast.Assign) or not isinstance(call := first.value, ast.Call):
        return None
    # What workers can do: a function of the module, of the batch and constants.
    function = functions.get(ast.unparse(call.func))
    plain = not call.keywords and [ast.unparse(each) for each in call.args[:1]] == [batch]
    constant = all(isinstance(each, ast.Constant) for each in call.args[1:])
    if function is None or function.decorator_list or not plain or not constant:
        return None
    if _NOT_IN_WORKERS.search(ast.unparse(function)) or len(first.targets) > 1:
        return None
    target = ast.unparse(first.targets[0])
    # The loop must not use the batch as it was before.
    uses = [node for each in loops[0].body[1:] for node in ast.walk(each)
            if isinstance(node, ast.Name) and node.id == batch]  # fmt: skip
    is_name = isinstance(first.targets[0], ast.Name)
    return (first, call) if is_name and (target == batch or not uses) else None


_EDITS: Mapping[str, _Edit] = {
    KEEP_OPEN: _keep_open, SAVE_BEHIND: _save_behind, SYNC_SELDOM: _sync_seldom,
    SEND_BEHIND: _send_behind, KEEP_FILES: _keep_files,
}  # fmt: skip


class _Source:
    """The text of a program, by places of its syntax tree."""

    def __init__(self, text: str) -> None:
        self._text, self._lines = text, text.splitlines(keepends=True)

    def at(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Where a node begins and ends."""
        return (
            _locate_offset(self._lines, node.lineno, node.col_offset),
            _locate_offset(self._lines, node.end_lineno or node.lineno, node.end_col_offset or 0),
        )

    def replace(self, changes: list[tuple[int, int, str]]) -> str:
        """The text with pieces of it replaced, from its end on: places before are not moved."""
        text = self._text
        for begin, end, new in sorted(changes, reverse=True):
            text = text[:begin] + new + text[end:]
        return text


def _add_helper(text: str, tree: ast.Module, modules: list[str], helper: str) -> str | None:
    """The text with a function of ours below its imports; None where its names are taken."""
    names = {name: f"_{name.rpartition('.')[2]}" for name in modules}  # of modules
    own = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    own |= {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    own |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    own |= {n.asname or n.name for n in ast.walk(tree) if isinstance(n, ast.alias)}
    defined = set(re.findall(r"^(?:def |class )?(_\w+)", helper, re.M))
    if own & {*names.values(), *defined}:
        return None
    # Below the last import that stands above all else but other imports and the docstring.
    last = 0
    for node in tree.body:
        text_of_module = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not isinstance(node, (ast.Import, ast.ImportFrom)) and not text_of_module:
            break
        last = node.end_lineno or node.lineno
    imports = "".join(f"import {name} as {short}\n" for name, short in names.items())
    lines = text.splitlines(keepends=True)
    return "".join(lines[:last]) + imports + f"\n\n{helper}" + "".join(lines[last:])


def _compare_sources(name: str, before: str, after: str) -> str:
    old, new = (text.splitlines(keepends=True) for text in (before, after))
    return "".join(difflib.unified_diff(old, new, fromfile=f"a/{name}", tofile=f"b/{name}"))
