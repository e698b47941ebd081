"""Pages of the documentation that are made of other files: a hook of MkDocs."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

from vanidl.commands import schema
from vanidl.commands.arguments import ARGUMENTS, COMMANDS
from vanidl.frames import TABLES, dtype_of

ROOT = Path(__file__).resolve().parents[1]
COPIED = {
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "changelog.md": "CHANGELOG.md",
    "loaders.md": "loaders/README.md",
}
"""Page -> the file of the repository that it shows."""
REPORTS = ROOT / "reports"


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:  # noqa: ANN401 - MkDocs's
    """The page's text; marks such as `<!-- schema -->` become what they name."""
    name = page.file.src_uri
    if name in COPIED:
        return _without_links(ROOT.joinpath(COPIED[name]).read_text(encoding="utf-8"))
    made = {"<!-- commands -->": _commands, "<!-- schema -->": _outputs, "<!-- frames -->": _frames}
    for mark, make in made.items():
        markdown = markdown.replace(mark, "\n".join(make())) if mark in markdown else markdown
    return markdown


def on_files(files: Any, config: Any, **_: object) -> Any:  # noqa: ANN401 - MkDocs's
    """The files of the site, with the sample pages that the gallery links to."""
    for path in sorted(REPORTS.glob("*.html")):
        files.append(File.generated(config, f"reports/{path.name}", abs_src_path=str(path)))
    return files


def _without_links(text: str) -> str:
    """Links into the repository as plain names: the site holds no source."""
    return re.sub(r"\[([^\]]+)\]\((?!https?:|#)[^)]+\)", r"\1", text)


def _commands() -> Iterator[str]:
    """The help of every command."""
    os.environ["COLUMNS"] = "80"
    for name, text in COMMANDS.items():
        parser = argparse.ArgumentParser(prog=f"vanidl {name}", description=text, add_help=False)
        ARGUMENTS[name](parser)
        yield f"## {name}\n\n```text\n{parser.format_help().rstrip()}\n```\n"


def _outputs() -> Iterator[str]:
    """A table of the fields of every JSON output."""
    for name, output in schema.outputs().items():
        yield f"## {name}\n\n`{output.title}`\n"
        yield "| field | type | unit | meaning |\n|---|---|---|---|"
        rows = list(_fields(schema.output_schema(name), ""))
        shared = name == "export"
        yield from (row for row in rows if not shared or row.startswith("| `tables"))
        yield "\nAnd every field of `summary`.\n" if shared else ""


def _frames() -> Iterator[str]:
    """A table of the columns of every frame."""
    tables = schema.output_schema("frames")["properties"]["tables"]
    for name, table in tables["properties"].items():
        yield f"### {name}\n\n{table['description']}.\n"
        yield "| column | type | unit | meaning |\n|---|---|---|---|"
        for column, value in table["properties"].items():
            form = dtype_of(column, TABLES[name][column]).replace("object", "list")
            unit, meaning = value.get("unit", ""), value["description"].replace("|", "\\|")
            yield f"| `{column}` | {form} | {unit} | {meaning} |"
        yield ""


def _fields(found: dict[str, Any], above: str) -> Iterator[str]:
    """One row per field, those of lists and of objects with names of their own below them."""
    for name, value in found.get("properties", {}).items():
        path = f"{above}{name}"
        unit, meaning = value.get("unit", ""), value["description"].replace("|", "\\|")
        yield f"| `{path}` | {_type(value)} | {unit} | {meaning} |"
        yield from _below(value, path)
    if isinstance(found.get("additionalProperties"), dict):
        yield from _below(found["additionalProperties"], f"{above}NAME")


def _below(value: dict[str, Any], path: str) -> Iterator[str]:
    items = value.get("items")
    if isinstance(items, dict):
        yield from _below(items, f"{path}[]")
    else:
        yield from _fields(value, f"{path}.")


def _type(value: dict[str, Any]) -> str:
    """In words: `number or null`, `list of object`."""
    options = [_type(option) for option in value.get("anyOf", [])]
    if "enum" in value:
        options = [f"`{choice}`" for choice in value["enum"]]
    found = value.get("type", [])
    options += [found] if isinstance(found, str) else found
    words = " or ".join(options)
    items = value.get("items")
    if "array" in options and isinstance(items, dict):
        words = words.replace("array", f"list of {_type(items) or 'any'}")
    return words.replace("array", "list") or "any"
