"""Golden numbers: what `vanidl summary --json` says of every log at hand, as it was last agreed.

Of the logs in `tests/data` the whole answer is kept, as `NAME.json.gz`; of those beside the
repository, which are other people's, only a digest of each key, in `shared.json.gz`. The laws say
what must hold of any run; these say that a number of a run that did not change did not either.
`make golden` rewrites them and names the keys that changed, which the commit then gives a reason
for.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests import DATA, ROOT, SHARED
from vanidl.cli import main

FOLDER = ROOT / "tests" / "golden"
OF_SHARED = FOLDER / "shared.json.gz"
_DIGITS = 9  # significant ones: sums of floats end differently from one processor to another


def own_logs() -> dict[str, Path]:
    """The recorded runs of this repository by name."""
    return {path.name: path for path in sorted(DATA.iterdir()) if (path / "darshan").is_dir()}


def shared_logs() -> dict[str, Path]:
    """Public logs and recorded runs beside the repository by name; none where they are not."""
    data = SHARED / "data"
    public = data / "public/darshan_logs"
    found = [*sorted(public.glob("*.darshan")), *sorted(public.glob("release_logs/*.darshan"))]
    found += [public / "dlio_24_processes", data / "public/vanidl_cosmictagger"]
    found += [path.parent for path in sorted(data.glob("recorded/*/darshan"))]
    return {name_of(path): path for path in found if path.exists()}


def name_of(path: Path) -> str:
    """The name of a log beside the repository."""
    return f"{path.parent.name}/{path.stem}"


def summary(path: Path) -> dict[str, Any]:
    """The JSON of a log, as `neutral`."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main(["summary", str(path), "--json"])
    return neutral(out.getvalue(), path)


def neutral(text: str, path: Path) -> dict[str, Any]:
    """JSON of a log as any machine gives it: paths from the log on, floats to nine digits."""
    found: dict[str, Any] = json.loads(text.replace(str(path), path.name), parse_float=_rounded)
    return found


def _rounded(number: str) -> float:
    return float(f"{float(number):.{_DIGITS}g}")


def flat(value: object, key: str = "") -> Iterator[tuple[str, object]]:
    """(`io.time.share`, its value) of every number and text, empty lists and objects included."""
    inside: dict[str, object] = {}
    if isinstance(value, dict):
        inside = {f"{key}.{name}".lstrip("."): one for name, one in value.items()}
    elif isinstance(value, list):
        inside = {f"{key}[{i}]": one for i, one in enumerate(value)}
    if not inside:
        yield key, value
    for name, one in inside.items():
        yield from flat(one, name)


def digests(result: Mapping[str, Any]) -> dict[str, str]:
    """Key, or `key.key`, -> eight hexadecimal digits of what stands there.

    Further down keys may be words of the log.
    """
    parts = {
        f"{name}.{inner}".rstrip("."): one
        for name, value in result.items()
        for inner, one in (value.items() if isinstance(value, dict) else [("", value)])
    }
    return {
        key: hashlib.blake2b(json.dumps(one, sort_keys=True).encode(), digest_size=4).hexdigest()
        for key, one in parts.items()
    }


def changed_keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The keys that are not in both, or differ."""
    was, now = dict(flat(dict(old))), dict(flat(dict(new)))
    return sorted(key for key in was.keys() | now.keys() if was.get(key, ...) != now.get(key, ...))


def assert_same(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raises AssertionError with the keys that changed."""
    changed = changed_keys(old, new)
    assert not changed, f"changed: {', '.join(changed[:20])}; make golden, and say why"


def golden(name: str) -> dict[str, Any]:
    """What is kept of a log of this repository, or under `shared` of all others by name."""
    path = FOLDER / f"{name}.json.gz"
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes())) if path.exists() else {}
    return found


def keep(name: str, content: Mapping[str, Any]) -> None:
    """Writes what `golden` reads; the same content gives the same bytes."""
    text = json.dumps(content, sort_keys=True, indent=0, ensure_ascii=False)
    (FOLDER / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
