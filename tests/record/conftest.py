from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import vanidl
from tests.makers.recorded_calls import library
from vanidl.record import Recorded, darshan, dftracer, record
from vanidl.record import tracer as own
from vanidl.record.processes import Watch

Recorder = Callable[..., Recorded]

ATTEMPTS = 5

LOOKED_AT = """
def looked_at():
    import os, time
    asked, end = f"{os.environ['TEST_LOOKS']}/{os.getpid()}.asked", time.monotonic() + 120
    open(asked, "w").close()
    while os.path.exists(asked) and time.monotonic() < end: time.sleep(0.005)
"""
"""For programs that are recorded with the fixture `looks`: goes on once the recorder has looked at
the process as it is now, however long a busy machine takes for that."""


def _available(tracer: str) -> str | None:
    """The library to preload; skips where there is none."""
    if tracer == own.NAME:
        library()
        return None
    if tracer == dftracer.NAME:
        if dftracer.find_library() is None:
            pytest.skip("the package dftracer is not installed (x86-64 Linux only)")
        return None
    given = os.environ.get("DARSHAN_LIB") or darshan.find_library()
    if given is None:
        pytest.skip("no libdarshan.so: set DARSHAN_LIB or put darshan-config on PATH")
    return str(given)


def recorder(tracer: str, folder: Path) -> Recorder:
    """`record` with one tracer, into a new folder below `folder` each time."""
    library = _available(tracer)

    def run(*command: str | Path) -> Recorded:
        words = [str(word) for word in command]
        target = folder / f"RUN-{len(list(folder.glob('RUN-*')))}"
        return record(words, target, tracer=tracer, darshan_lib=library)

    return run


def whole(run: Recorder, *command: str | Path) -> Recorded:
    """A recording in which no process was left unfinished.

    DFTracer 2.2 at times garbles the trace of a process that spawns others ("unable to write
    log file", seen on a busy machine). The RUN then says so; tests of anything else record
    again.
    """
    for _ in range(ATTEMPTS):
        done = run(*command)
        if "unfinished" not in {p.state for p in done.run.processes}:
            return done
    codes = {w.code for w in vanidl.open_run(done.folder).coverage.warnings}
    assert codes & {"processes_unfinished", "damaged"}
    pytest.skip(f"DFTracer garbled a trace {ATTEMPTS} times in a row; the RUN says so")


@pytest.fixture(params=["vanidl", "darshan", "dftracer"])
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Recorder:
    return recorder(request.param, tmp_path)


@pytest.fixture
def with_dftracer(tmp_path: Path) -> Recorder:
    return recorder("dftracer", tmp_path)


@pytest.fixture
def with_darshan(tmp_path: Path) -> Recorder:
    return recorder("darshan", tmp_path)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A file of 256 KiB; it is no kind of file that the configuration leaves out."""
    path = tmp_path / "samples.f32"
    path.write_bytes(bytes(range(256)) * 1024)
    return path


@pytest.fixture
def looks(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers a recorded program that asks whether it was looked at (`LOOKED_AT`)."""
    folder = tmp_path_factory.mktemp("looks")
    monkeypatch.setenv("TEST_LOOKS", str(folder))
    look = Watch.look

    def answered(self: Watch) -> None:
        asked = list(folder.iterdir())
        look(self)
        for path in asked:
            path.unlink()

    monkeypatch.setattr(Watch, "look", answered)
