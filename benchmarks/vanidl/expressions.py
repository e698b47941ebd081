"""Every regular expression of vanidl over texts that repeat what it looks for.

    python -m benchmarks.vanidl.expressions

Each is used as the package uses it: from the beginning of the text (match, fullmatch) or from every
place of it (search, sub, ...). Printed: those for which four times the text takes more than nine
times as long, on the first text that shows it. Required: none but those that never see long text
(SHORT_TEXT). It takes 40 s of a processor.
"""

from __future__ import annotations

import ast
import re
import string
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

import vanidl

SHORT_TEXT = {
    ("anonymize/pseudonyms.py", '"((?:'): "vanidl's own source",
    ("formatting/secret_shapes.py", "(?:^|"): "300 characters before a value",
}
"""By file and the beginning of the expression: the text that it is searched for in."""
FROM_BEGIN = {"match", "fullmatch"}
SHORT, LONG = 1500, 6000  # characters
LEAST_S = 0.002  # of the short text: less is noise
MOST = 9
AROUND = (("", ""), ("", "\0"), ("x", "!"), ("--", " "), ("http://", ""))
FOLDER = Path(vanidl.__file__).parent


@dataclass(frozen=True)
class Expression:
    """One expression, the file that it stands in, and how the package uses it."""

    place: str
    pattern: re.Pattern
    methods: frozenset[str]

    @property
    def is_anchored(self) -> bool:
        """Whether every use of it begins at the beginning of a text."""
        return bool(self.methods) and self.methods <= FROM_BEGIN


def sources() -> Iterator[tuple[Path, ast.Module]]:
    """The modules of the package that run within vanidl's own process."""
    for path in sorted(FOLDER.rglob("*.py")):
        if "injected" not in path.parts and "templates" not in path.parts:
            yield path, ast.parse(path.read_text("utf-8"))


@cache
def uses() -> dict[str, dict[Path, set[str]]]:
    """Name of a variable -> by module the methods that are called of it.

    "itself" is among them where it is handed on.
    """
    found: dict[str, dict[Path, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path, tree in sources():
        called = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
                name = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
                found[name][path].add(node.attr)
                called.add(id(node.value))
        for node in ast.walk(tree):
            is_read = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
            if is_read and id(node) not in called:
                found[node.id][path].add("itself")
    return found


def methods_of(name: str, path: Path) -> frozenset[str]:
    """What is called of a variable of a module: by this one alone where the name is private."""
    by_module = uses()[name]
    modules = [by_module.get(path, set())] if name.startswith("_") else by_module.values()
    return frozenset(method for methods in modules for method in methods)


def expressions() -> Iterator[Expression]:
    """All that are compiled when a module is imported, or stand in a call."""
    for path, tree in sources():
        place = str(path.relative_to(FOLDER))
        module = "vanidl." + place.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        if not module.endswith("__main__"):
            with suppress(ImportError):  # what a framework needs that is not here
                for name, held in vars(__import__(module, fromlist=["_"])).items():
                    if isinstance(held, re.Pattern):
                        yield Expression(place, held, methods_of(name, path))
        for call in ast.walk(tree):
            called = isinstance(call, ast.Call) and ast.unparse(call.func).startswith("re.")
            if called and call.args and isinstance(call.args[0], ast.Constant):
                method = ast.unparse(call.func).removeprefix("re.")
                if method != "compile":  # which has a name, or is used at once
                    yield Expression(place, re.compile(call.args[0].value), frozenset({method}))


def units(source: str) -> list[str]:
    """What to repeat: characters of the expression, pairs of them, and its words."""
    common = " a0_-./:=@\"'\\\n\t,"
    held = sorted({c for c in source if c in string.printable and c not in "()[]{}|"} | {*common})
    pairs = ["".join(pair) for pair in product(held[:25], repeat=2)]
    words = re.findall(r"[A-Za-z]{2,}", source)[:40]
    return [*held, *pairs, *words, *(word + end for word in words[:12] for end in "=:/ -_.\"'@")]


def seconds(expression: Expression, text: str) -> float:
    """Processor time of one use of it, of one search for all that is there where it searches."""
    pattern = expression.pattern
    whole = text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text
    began = time.thread_time()
    if expression.is_anchored:
        pattern.match(whole)
        pattern.fullmatch(whole)
    else:
        pattern.sub(type(whole)(), whole)
    return time.thread_time() - began


def superlinear(expression: Expression) -> tuple[float, str]:
    """(ratio of the times of a long and a short text, what they repeat).

    Of the first text that shows it, else of what took longest for its length.
    """
    pattern = expression.pattern.pattern
    source = pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern
    found = (0.0, "")
    for unit, (before, behind) in product(units(source), AROUND):
        short, long = (before + unit * (n // len(unit)) + behind for n in (SHORT, LONG))
        if (least := seconds(expression, short)) >= LEAST_S:
            found = max(found, (seconds(expression, long) / least, before + unit + behind))
            if found[0] > MOST:
                break
    return found


def main() -> int:
    """Exit status 1 where one is superlinear that may not be."""
    every = {(e.place, e.pattern.pattern, e.pattern.flags, e.methods): e for e in expressions()}
    slow = 0
    for expression in every.values():
        ratio, unit = superlinear(expression)
        if ratio > MOST:
            shown = str(expression.pattern.pattern)[:90]
            slow += not any(
                (expression.place, shown[: len(begin)]) == (place, begin)
                for place, begin in SHORT_TEXT
            )
            print(f"{expression.place}: {shown!r}: {ratio:.1f} on {unit!r}", flush=True)
    print(f"{len(every)} expressions, {slow} superlinear")
    return int(bool(slow))


if __name__ == "__main__":
    sys.exit(main())
