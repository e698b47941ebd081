"""What PyPI shows: the README without what leads nowhere there. All else is in pyproject.toml."""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import setup


def description(readme: str) -> str:
    """The text with links into the repository as plain words, and without its pictures."""
    text = re.sub(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n+", "", readme, flags=re.MULTILINE)
    return re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]+\)", r"\1", text)


if __name__ == "__main__":
    setup(
        long_description=description(Path("README.md").read_text("utf-8")),
        long_description_content_type="text/markdown",
    )
