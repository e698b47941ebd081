"""Pages of the documentation that are made of other files: a hook of MkDocs."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

from vanidl.commands import COMMANDS, find_command

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
    """The page's text; `<!-- commands -->` and `<!-- copy -->` are replaced by what they name."""
    name = page.file.src_uri
    if name in COPIED:
        return _without_links(ROOT.joinpath(COPIED[name]).read_text(encoding="utf-8"))
    return markdown.replace("<!-- commands -->", "\n".join(_commands()))


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
        find_command(name).add_arguments(parser)
        yield f"## {name}\n\n```text\n{parser.format_help().rstrip()}\n```\n"
