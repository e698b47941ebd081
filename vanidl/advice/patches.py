"""Patches of the program, for `git apply`: other arguments of the call that makes its loader.

The source is looked at where the run was recorded, and only while it is what ran: a file that was
changed since gets no patch. Nothing of it is run.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from vanidl.formatting.secrets import is_secret_name, masked_text
from vanidl.model.trace import Trace

_MOST_NBYTES = 1 << 20
_CLASSES = frozenset({"DataLoader", "StatefulDataLoader"})
_POSITIONS = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers",
              "collate_fn", "pin_memory")  # fmt: skip
_ODD = frozenset("\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")
"""Ends of lines for some and not for others: a patch would be of other lines."""
_NEEDS_WORKERS = ("persistent_workers", "prefetch_factor")
_ASSIGNED = re.compile(r"(\w+)[\"']?\]?\s*[:=]")
_LOADER = re.compile(r"DataLoader \d+ \((\w+)")


def patch_loader(trace: Trace, settings: Mapping[str, str]) -> str:
    """A patch that gives the run's DataLoader these arguments; "" where none can be made.

    Paths in it are relative to the folder of the program. None is made where it is not plain which
    call makes the loader, or arguments are handed on by `**`.

    Args:
        trace: the run.
        settings: argument -> its value, as source text.
    """
    datasets = set(_LOADER.findall(" ".join(trace.fetches.names)))
    for path, text in _iterate_sources(trace):
        try:
            calls = list(_find_loader_calls(ast.parse(text), datasets))
        except (SyntaxError, ValueError, RecursionError):
            continue
        if len(calls) != 1:
            continue
        changed = _edit_call(text, calls[0], settings)
        if changed is not None and changed != text:
            patch = _compare_sources(path.name, text, changed)
            return patch if _is_safe_to_show(patch) else ""
    return ""


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
            if known.st_mtime <= since_s and known.st_size <= _MOST_NBYTES:
                text = path.read_bytes().decode()
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
    if any(each.arg is None for each in call.keywords) or call.end_lineno is None:
        return None
    given = {each.arg: each.value for each in call.keywords if each.arg is not None}
    given |= dict(zip(_POSITIONS, call.args, strict=False))
    workers = settings.get("num_workers", _format_constant(given.get("num_workers")))
    if workers == "0" and any(name in settings for name in _NEEDS_WORKERS):
        return None

    # From the end of the file on, so that places before a change stay what they are.
    lines = text.splitlines(keepends=True)
    changes = [
        (_locate_offset(lines, value.lineno, value.col_offset),
         _locate_offset(lines, value.end_lineno or value.lineno, value.end_col_offset or 0), new)
        for name, new in settings.items()
        if (value := given.get(name)) is not None
    ]  # fmt: skip
    more = ", ".join(f"{name}={new}" for name, new in settings.items() if name not in given)
    if more:
        last = max([*call.args, *(each.value for each in call.keywords)],
                   key=lambda each: (each.end_lineno or 0, each.end_col_offset or 0))  # fmt: skip
        end = _locate_offset(lines, last.end_lineno or last.lineno, last.end_col_offset or 0)
        changes.append((end, end, f", {more}"))
    for begin, end, new in sorted(changes, reverse=True):
        text = text[:begin] + new + text[end:]
    return text


def _format_constant(expression: ast.expr | None) -> str:
    """A number of the source as text; "0" for an argument that is not given, "?" for names."""
    if expression is None:
        return "0"
    return str(expression.value) if isinstance(expression, ast.Constant) else "?"


def _locate_offset(lines: list[str], line: int, column: int) -> int:
    """Where in the text a place of the syntax tree is, whose columns count bytes."""
    before = lines[line - 1].encode()[:column].decode(errors="replace")
    return sum(map(len, lines[: line - 1])) + len(before)


def _compare_sources(name: str, before: str, after: str) -> str:
    old, new = (text.splitlines(keepends=True) for text in (before, after))
    return "".join(difflib.unified_diff(old, new, fromfile=f"a/{name}", tofile=f"b/{name}"))
