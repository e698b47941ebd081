"""Writing a file whole or not at all."""

from __future__ import annotations

import tempfile
from pathlib import Path

from vanidl.errors import VanidlError


def write_whole(target: Path, content: bytes, what: str = "the report") -> None:
    """Writes beside the target and renames, so that nobody sees half a file.

    A target that is no regular file (a pipe, a device) is written to, not replaced.

    Raises:
        VanidlError: it cannot be written there; nothing is left behind.
    """
    try:
        if target.exists() and not target.is_file():
            with target.open("wb") as file:
                file.write(content)
        else:
            _replace(target, content)
    except OSError as error:
        reason = error.strerror or str(error)
        name = str(target).encode("unicode_escape", "backslashreplace").decode("ascii")
        raise VanidlError(
            f"cannot write {what} to {name}: {reason}; choose another place with -o"
        ) from error


def _replace(target: Path, content: bytes) -> None:
    with tempfile.NamedTemporaryFile(
        dir=target.parent, prefix=f".{target.name[:60]}.", suffix=".part", delete=False
    ) as file:
        part = Path(file.name)
        try:
            file.write(content)
            file.flush()
            part.chmod(0o644)
            part.replace(target)
        except OSError:
            part.unlink(missing_ok=True)
            raise
