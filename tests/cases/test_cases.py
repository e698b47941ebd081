"""Other people's traces and logs: every value, word and refusal that `expected.json` asks for.

A folder each beside the repository. KEYS says where a value of `expected.json` lies in
`vanidl summary --json`; WORDS what has to be said, and what must not be, in summary and check.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from tests import SHARED
from vanidl.cli import main

FOLDERS = (SHARED / "data" / "cases", SHARED / "data" / "public" / "cases")
CASES = {path.parent.name: path.parent for top in FOLDERS for path in top.glob("*/expected.json")}
if not CASES:
    pytest.skip("no cases beside the repository", allow_module_level=True)

Found = dict[str, Any]


def part(code: str) -> Callable[[Found], float]:
    """Milliseconds of a part of the mean step."""

    def ms(found: Found) -> float:
        parts = {p["code"]: p["seconds"] for p in found["step_parts"]["parts"]}
        return 1e3 * float(parts.get(code, 0.0))

    return ms


def at(path: str, scale: float = 1.0) -> Callable[[Found], float]:
    """A number at a path of names."""

    def value(found: Found) -> float:
        here: Any = found
        for name in path.split("."):
            here = here[int(name)] if isinstance(here, list) else here[name]
        return scale * float(here)

    return value


KEYS: dict[str, Callable[[Found], float]] = {
    "steps": at("steps.per_rank.max"),
    "step_ms": at("steps.mean_s", 1e3),
    "input_wait_ms": at("overlap.mean.input_wait_s", 1e3),
    "input_wait_ms_a_step": at("breakdown.mean.step_parts.input_wait.0", 1e3),
    "copy_ms_a_step": part("copy"),
    "computing_ms_a_step": part("compute"),
    "communication_ms_a_step": part("communication"),
    "other_ms_a_step": part("rest"),
    "device_busy_ms_a_step": part("compute"),
    "kernel_ms_a_step": part("compute"),
    "open_stat_close_ms": at("storage.by_layer.POSIX.meta_s", 1e3),
    "remove_and_unlink_ms": at("storage.by_layer.POSIX.remove_s", 1e3),
    "input_wait_ms_rank0": at("overlap.per_rank.0.input_wait_s", 1e3),
    "input_wait_ms_rank1": at("overlap.per_rank.1.input_wait_s", 1e3),
    "computing_ms_a_step_rank0": at("overlap.per_rank.0.compute_s", 1e3 / 5),
    "computing_ms_a_step_rank1": at("overlap.per_rank.1.compute_s", 1e3 / 5),
    "ranks": at("job.ranks"),
    "nprocs": at("job.ranks"),
    "run_time_s": at("job.run_time_s"),
    "run_span_ms": at("job.run_time_s", 1e3),
    "span_ms": at("job.run_time_s", 1e3),
    "reads": at("io.reads"),
    "writes": at("io.writes"),
    "ops": at("io.ops"),
    "bytes_read": at("io.bytes_read"),
    "bytes_written": at("storage.bytes_written"),
    "bytes_written_posix": at("io.bytes_written"),
    "read_ms": at("storage.by_layer.POSIX.read_s", 1e3),
    "read_time_s": at("storage.by_layer.POSIX.read_s"),
    "dataset_bytes_read": at("io.dataset.bytes_read"),
    "posix_write_time_s": at("storage.by_layer.POSIX.write_s"),
    "posix_meta_time_s": at("storage.by_layer.POSIX.meta_s"),
    "posix_meta_s_sum": at("storage.by_layer.POSIX.meta_s"),
    "stdio_meta_time_s": at("storage.by_layer.STDIO.meta_s"),
    "stdio_meta_s_sum": at("storage.by_layer.STDIO.meta_s"),
    "mean_io_per_rank_s": at("breakdown.mean.run.storage.0"),
    "mean_io_per_rank_by_counters_s": at("breakdown.mean.run.storage.0"),
    "sum_of_durations_s": at("io.time.sum_s"),
    "union_over_ranks_s": at("io.time.any_rank_s"),
    "longest_rank_busy_s": at("io.time.per_rank_max_s"),
    "mean_rank_busy_s": at("io.time.per_rank_mean_s"),
    "busy_per_rank_s": at("io.time.per_rank_mean_s"),
    # All that is known to be computed, of 6 steps: in the three whose device has times.
    "computing_ms_in_first_3_steps": at("breakdown.mean.step.compute.0", 1e3 * 6 / 3),
}
"""Key of expected.json -> the number in `vanidl summary --json`, in the key's unit."""


@dataclass(frozen=True)
class Words:
    """Regular expressions, case apart, for what summary and check print together.

    `first`: for what `vanidl summary` prints by itself, which is all that most people read.
    `refused`: summary may refuse instead, with words that fit.
    """

    said: Sequence[str] = ()
    first: Sequence[str] = ()
    never: Sequence[str] = ()
    refused: str = ""


WORDS: dict[str, Words] = {
    "bad_escapes": Words(said=(r"2 of \d+ events",), never=("record the run again",)),
    "bare_inf": Words(never=("record the run again", "damaged")),
    "comm_kernel_names": Words(never=("other ranks",)),
    "copy_bound": Words(
        first=(r"cop(y|ying|ies).{0,40}65", "pinned memory", r"stood idle during 25\.0 ms"),
        never=("idle, waiting for input 10.0",),
    ),
    "cut_before_kernels": Words(
        said=("the JSON text is cut", "kernels.{0,60}missing"),
        first=("a file is damaged",),
        never=(r"computing \d", "idle"),
    ),
    "darshan_2x": Words(
        refused=r"Darshan 2\.06.*darshan-convert", never=("damaged", "foreign", "newer vanidl")
    ),
    "dftracer_clock_skew": Words(
        said=("do not overlap in time.*clocks of hosts may differ", "20 % of the 501 ms"),
        never=("look elsewhere", r"0\.1 % of the 70", "Profiler and I/O"),
    ),
    "dftracer_unlink": Words(
        first=(r"780 ms, 97 %.*750 ms of it in calls that remove files",),
        never=("keep them open", "open, stat and close", "Open fewer files"),
    ),
    "idle_without_loader": Words(
        first=("idle.{0,60}87", "host gave it no work"), never=("computing or waiting",)
    ),
    "legacy_autograd": Words(refused="before (PyTorch )?1.8"),
    "merged_ranks_plain": Words(
        first=("2 ranks", r"device idle 20\.0 ms"), never=("computing 65", "communication, or")
    ),
    "mtia_device": Words(said=("computing 50|device.{0,80}mtia_ccp_events",)),
    "nan_duration": Words(
        said=(r"2 of \d+ events",),
        first=("work of the device has no time that can be true",),
        never=("record the run again", "gave it no work", "device idle [2-5]"),
    ),
    "not_a_trace": Words(refused="(memory timeline|execution trace).*record"),
    "npu_string_ts": Words(refused="torch_npu|Ascend|ts is text"),
    "overwritten_by_other_rank": Words(
        first=("a file is damaged",),
        never=("1 whole", "Divide the reading", "other ranks", r"to 73\.3"),
    ),
    "plain_profile": Words(first=(r"device.{0,60}\(20 %",), never=("No I/O was recorded during",)),
    "prefetch_thread_real": Words(never=("waited 1[0-9][0-9] ms", "DataLoader workers")),
    "sglang_name": Words(never=("TensorFlow",)),
    "utf16": Words(refused="UTF-16"),
    "worker_name_is_no_host": Words(
        first=("2 ranks",), never=("2 hosts", "worker0_step on", "other ranks")
    ),
    "zero_timestamps": Words(first=("no time that can be true",), never=(r"computing 25\.0",)),
    "heatmap_only": Words(first=("heat map",), never=("no I/O at all", "read nothing")),
    "darshan_txt_name": Words(first=(r"writing 2\.75 s",)),
    "pub_checkpoint_sum": Words(never=("284 ms", r"I/O took 26\.3 ms")),
    "pub_opened_once_an_epoch": Words(
        said=("<STDOUT>|standard output",),
        first=("Print less often, and from one rank",),
        never=("kept open from one sample to the next", "open_per_sample", "keep them open"),
    ),
    "pub_stdio_metadata": Words(first=("170 ms.*2.1 %",), never=(r"I/O took 4\.88 ms",)),
    "pub_workers_missing": Words(
        first=("hardly any byte of the dataset",), never=("look elsewhere",)
    ),
    "zeroed_header": Words(refused="header.*(never|not) written", said=("never written",)),
}

TOLERANCE = {"run_time_s": 0.02}
"""Of a value: whole seconds of logs may end one later."""

TOGETHER: dict[str, tuple[str, ...]] = {"dftracer_clock_skew": ("--job", "@1", "--job", "@2")}
"""Case that is refused at first as two runs -> what the refusal says to do if they are one."""


@dataclass(frozen=True)
class Outcome:
    """What the commands said of a folder, or of the files in it where that is no run."""

    summary: Found | None  # None: refused
    first: str
    said: str
    refusal: str


def spoken(*arguments: str) -> tuple[int, str, str]:
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        status = main(list(arguments))
    return status, out.getvalue(), errors.getvalue()


@cache
def outcome(name: str) -> Outcome:
    folder, chosen = str(CASES[name]), TOGETHER.get(name, ())
    status, text, refusal = spoken("summary", "--json", *chosen, folder)
    said = [spoken("summary", *more, *chosen, folder)[1] for more in ((), ("--full",))]
    said.append(spoken("check", folder)[1])
    if status:
        files = [p for p in sorted(CASES[name].iterdir()) if p.name != "expected.json"]
        refusals = [spoken("summary", str(path))[2] for path in files]
        if all(refusals):  # each file in it says what it is; else the folder says what to do
            pattern = WORDS.get(name, Words()).refused
            refusal = min(refusals, key=lambda r: len(_matches(pattern, r)))
    words = re.sub(r"\s+", " ", " ".join(said)).replace(name, "")
    first = " ".join(said[0].split())
    return Outcome(
        json.loads(text) if status == 0 else None, first, words, " ".join(refusal.split())
    )


def _matches(pattern: str, text: str) -> str:
    found = re.search(pattern, " ".join(text.split()), re.IGNORECASE) if pattern else None
    return found[0] if found else ""


def expected(name: str) -> Found:
    content: Found = json.loads((CASES[name] / "expected.json").read_text())
    return content


def values() -> Iterator[Any]:
    for name in sorted(CASES):
        for key in expected(name):
            if key in KEYS:
                yield pytest.param(name, key, id=f"{name}-{key}")


@pytest.mark.parametrize(("name", "key"), [*values()])
def test_values(name: str, key: str) -> None:
    found = outcome(name)
    if found.summary is None and "or_refusal" in expected(name):
        pytest.skip("refused instead")
    assert found.summary is not None, found.refusal
    wanted = expected(name)[key]
    assert KEYS[key](found.summary) == pytest.approx(wanted, rel=TOLERANCE.get(key, 0.01))


@pytest.mark.parametrize("name", sorted(CASES))
def test_words(name: str) -> None:
    words, found = WORDS.get(name, Words()), outcome(name)
    if found.summary is None:
        assert words.refused, found.refusal
        assert _matches(words.refused, found.refusal), found.refusal
    everything = f"{found.said} {found.refusal}"
    said = [] if words.refused and found.summary is None else words.said
    assert [w for w in said if not re.search(w, everything, re.IGNORECASE)] == []
    first = () if found.summary is None else words.first
    assert [w for w in first if not re.search(w, found.first, re.IGNORECASE)] == []
    assert [w for w in words.never if re.search(w, everything, re.IGNORECASE)] == []
