"""What pyproject.toml cannot say: the README as PyPI shows it, and libraries in C.

The tracer (vanidl/record/tracer) and the sampler (vanidl/record/states) are compiled where a C
compiler is found, `CC` or `cc`. Without one everything else is installed. `VANIDL_TARGET` names
what a wheel is for, which ziglang compiles (the extra `wheels`): one of `TARGETS`, or `any` for a
wheel without them.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from setuptools import Command, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build

FOLDER = Path("vanidl/record/tracer")
LIBRARY = "libvanidl_tracer.so"
SOURCES = ("store.c", "files.c", "posix.c", "stdio.c")
HEADERS = ("format.h", "tracer.h")
SAMPLER = Path("vanidl/record/states/libvanidl_sampler.so")
SAMPLER_SOURCES = (SAMPLER.with_name("sampler.c"),)
FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-builtin", "-Wall",
         "-Wextra", "-U_FORTIFY_SOURCE")  # fmt: skip
TARGETS = {
    "manylinux_2_17_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux_2_17_aarch64": "aarch64-linux-gnu.2.17",
    "musllinux_1_1_x86_64": "x86_64-linux-musl",
    "musllinux_1_1_aarch64": "aarch64-linux-musl",
}
TARGET = os.environ.get("VANIDL_TARGET", "")


def description(readme: str) -> str:
    """The text with links into the repository as plain words, and without its pictures."""
    text = re.sub(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n+", "", readme, flags=re.MULTILINE)
    return re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]+\)", r"\1", text)


def compiler() -> list[str]:
    """The words of the compiler, none where there is none or the library is not for here."""
    if TARGET in TARGETS:
        return [sys.executable, "-m", "ziglang", "cc", "-target", TARGETS[TARGET]]
    machine = os.uname().machine if hasattr(os, "uname") else ""
    if TARGET or sys.platform != "linux" or machine not in ("x86_64", "aarch64"):
        return []
    words = shlex.split(os.environ.get("CC", "cc"))
    return words if words and shutil.which(words[0]) else []


def compile_library(to: Path, *flags: str) -> str:
    """Compiles the tracer; why that failed, "" where it did not."""
    return compile_sources([FOLDER / name for name in SOURCES], to, *flags)


def compile_sources(sources: Sequence[Path], to: Path, *flags: str) -> str:
    """Compiles a library; why that failed, "" where it did not."""
    words = compiler()
    if not words:
        return "no C compiler"
    version = re.search(r'__version__ = "([^"]+)"', Path("vanidl/__init__.py").read_text("utf-8"))
    defined = f'-DVT_TRACER_VERSION="{version[1] if version else ""}"'
    to.parent.mkdir(parents=True, exist_ok=True)
    part = to.with_suffix(".part")  # a program may have the present one loaded
    command = [*words, *FLAGS, defined, *flags, *map(str, sources), "-o", str(part), "-ldl",
               "-lpthread", "-lm"]  # fmt: skip
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        return (made.stderr.strip().splitlines() or [f"status {made.returncode}"])[-1]
    part.replace(to)
    return ""


class BuildTracer(Command):
    """Compiles the tracer's library into the package, in an editable install in its place."""

    description = "compile the tracer that vanidl record preloads"
    user_options = [("inplace", "i", "into the source folder")]  # noqa: RUF012
    boolean_options = ["inplace"]  # noqa: RUF012
    editable_mode = False
    build_lib: str | None = None

    def initialize_options(self) -> None:
        """Into the folder that is built."""
        self.inplace = False

    def finalize_options(self) -> None:
        """Where the package is built."""
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def run(self) -> None:
        """Goes on without the library where it cannot be made, unless a wheel is for a platform."""
        root = Path() if self.editable_mode or self.inplace else Path(self.build_lib or "")
        why = compile_library(root / FOLDER / LIBRARY)
        why = why or compile_sources(SAMPLER_SOURCES, root / SAMPLER)
        if why and TARGET in TARGETS:
            sys.exit(f"{TARGET}: the tracer was not compiled: {why}")
        if why and TARGET != "any":
            self.warn(f"the tracer was not compiled ({why}): vanidl record works without it")

    def get_source_files(self) -> list[str]:
        """What goes into an sdist."""
        return [*(str(FOLDER / name) for name in (*SOURCES, *HEADERS)), *map(str, SAMPLER_SOURCES)]

    def get_outputs(self) -> list[str]:
        """What goes into a wheel."""
        made = (FOLDER / LIBRARY, SAMPLER) if compiler() else ()
        return [str(Path(self.build_lib or "") / each) for each in made]

    def get_output_mapping(self) -> dict[str, str]:
        """Nothing is copied."""
        return {}


class Build(build):
    """With the tracer."""

    sub_commands = [*build.sub_commands, ("build_tracer", None)]  # noqa: RUF012


class Wheel(bdist_wheel):
    """For every Python, and for the platform that the tracer was compiled for."""

    def finalize_options(self) -> None:
        """A wheel without the library is for every platform."""
        super().finalize_options()
        self.root_is_pure = not compiler()

    def get_tag(self) -> tuple[str, str, str]:
        """`py3-none-PLATFORM`."""
        return "py3", "none", TARGET if TARGET in TARGETS else super().get_tag()[2]


if __name__ == "__main__":
    setup(
        long_description=description(Path("README.md").read_text("utf-8")),
        long_description_content_type="text/markdown",
        cmdclass={"build": Build, "build_tracer": BuildTracer, "bdist_wheel": Wheel},
    )
