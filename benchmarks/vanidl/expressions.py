"""Every regular expression of vanidl over texts that repeat what it looks for.

    python -m benchmarks.vanidl.expressions

Printed: those whose search through four times the text takes more than nine times as long.
Required: none but those that only ever match at one place of a text, or read vanidl's own source
(ANCHORED). It takes a minute and a half of a processor.
"""

from __future__ import annotations

import ast
import re
import string
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import vanidl

ANCHORED = {
    "anonymize/trace.py", "encoding/json_stream.py",  # used with match
    "anonymize/words.py",  # words of vanidl's own source
}  # fmt: skip
SHORT, LONG = 1500, 6000  # characters
LEAST_S = 0.002  # of the short text: less is noise
MOST = 9
AROUND = (("", ""), ("", "\0"), ("x", "!"), ("--", " "), ("http://", ""))
FOLDER = Path(vanidl.__file__).parent


def expressions() -> Iterator[tuple[str, re.Pattern[str] | re.Pattern[bytes]]]:
    """(file, expression) of all that are compiled when a module is imported, or stand in a call."""
    for path in sorted(FOLDER.rglob("*.py")):
        place = str(path.relative_to(FOLDER))
        if "injected" in place or "templates" in place:
            continue
        module = "vanidl." + place.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        if not module.endswith("__main__"):
            held = vars(__import__(module, fromlist=["_"])).values()
            yield from ((place, each) for each in held if isinstance(each, re.Pattern))
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            called = isinstance(call, ast.Call) and ast.unparse(call.func).startswith("re.")
            if called and call.args and isinstance(call.args[0], ast.Constant):
                yield place, re.compile(call.args[0].value)


def units(source: str) -> list[str]:
    """What to repeat: characters of the expression, pairs of them, and its words."""
    common = " a0_-./:=@\"'\\\n\t,"
    held = sorted({c for c in source if c in string.printable and c not in "()[]{}|"} | {*common})
    pairs = ["".join(pair) for pair in product(held[:25], repeat=2)]
    words = re.findall(r"[A-Za-z]{2,}", source)[:40]
    return [*held, *pairs, *words, *(word + end for word in words[:12] for end in "=:/ -_.\"'@")]


def seconds(expression: re.Pattern, text: str) -> float:
    """Processor time of one search for all that is there."""
    whole = text.encode("latin-1", "replace") if isinstance(expression.pattern, bytes) else text
    began = time.thread_time()
    expression.sub(type(whole)(), whole)
    return time.thread_time() - began


def worst(expression: re.Pattern) -> tuple[float, str]:
    """(ratio of the times of a long and a short text, what they repeat) at its worst."""
    pattern = expression.pattern
    source = pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern
    found = (0.0, "")
    for unit, (before, behind) in product(units(source), AROUND):
        short, long = (before + unit * (n // len(unit)) + behind for n in (SHORT, LONG))
        if (least := seconds(expression, short)) >= LEAST_S:
            found = max(found, (seconds(expression, long) / least, before + unit + behind))
    return found


def main() -> int:
    """Exit status 1 where one is superlinear that may not be."""
    every = {(place, each.pattern, each.flags): each for place, each in expressions()}
    slow = 0
    for (place, pattern, _), expression in every.items():
        ratio, unit = worst(expression)
        if ratio > MOST:
            slow += place not in ANCHORED
            print(f"{place}: {str(pattern)[:90]!r}: {ratio:.1f} on {unit!r}", flush=True)
    print(f"{len(every)} expressions, {slow} superlinear")
    return int(bool(slow))


if __name__ == "__main__":
    sys.exit(main())
