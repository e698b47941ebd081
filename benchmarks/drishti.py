"""What Drishti's triggers say of logs, and what vanidl says beside it, with seconds of the run.

    python -m benchmarks.drishti LOGS... [--drishti drishti] [--work build/drishti]
    python -m benchmarks.drishti --planted RUNS [--drishti drishti] [--work build/drishti]

Each log is given to Drishti (J. L. Bez et al., PDSW 2022; `pip install drishti-io` into an
environment of its own), whose table of triggers is kept in `--work`, and to vanidl. A trigger that
asks for a change counts as fired by vanidl where a finding of the same subject is said. Prints for
each trigger how many logs fire in both, in one of them, and why vanidl is silent elsewhere: what
the trigger is about cannot cost 1 % of the run, a training is told by its own rules, or the rule
asks for more. `--each` lists every difference with its log and the most that it can cost. With
`--planted` RUNS is where `benchmarks.causes record` left the runs of planted causes: a line for
each that Darshan recorded, with the triggers that fire in its largest logs.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vanidl.advice.facts import IMBALANCE, RUN, Claim, Facts
from vanidl.advice.registry import LEAST
from vanidl.errors import VanidlError
from vanidl.run import Run, open_run

METADATA = ("job_metadata", "metadata_share", "open_per_sample", "waits_for_metadata",
            "tiny_files", "reopened")  # fmt: skip
AGAIN = ("job_redundant", "reread_each_epoch", "ranks_read_the_same", "file_read_again",
         "read_twice_at_start", "chunks_read_again")  # fmt: skip
UNEVEN = ("job_one_rank", "rank_imbalance", "one_reader")
SUBJECTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "S01": ("storage", ("stdio_share", "standard_streams")),
    "P05": ("storage.read", ("job_small_reads", "small_reads", "tiny_files")),
    "P06": ("storage.write", ("job_small_writes", "small_writes", "standard_streams")),
    "P08": ("storage", ("job_misaligned", "misaligned")),
    "P09": ("storage.read", AGAIN),
    "P10": ("storage.write", ()),
    "P11": ("storage.read", ("job_random_reads", "random_reads")),
    "P13": ("storage.write", ()),
    "P15": ("storage.read", ("job_small_reads", "small_reads")),
    "P16": ("storage.write", ("job_small_writes", "small_writes")),
    "P17": ("storage.metadata", METADATA),
    "P18": (IMBALANCE, ("job_stragglers",)), "P19": (IMBALANCE, ("job_stragglers",)),
    "P21": (IMBALANCE, UNEVEN), "P22": (IMBALANCE, UNEVEN),
    "M02": ("storage.read", ("job_independent",)),
    "M03": ("storage.write", ("job_independent",)),
    "M06": ("storage", ("job_blocking",)), "M07": ("storage", ("job_blocking",)),
}  # fmt: skip
"""Of triggers that ask for a change: what it is about, and which findings are about the same."""

BOTH, ONLY_HERE = "both", "only vanidl"
LITTLE, TRAINS, MORE = "under 1 %", "a training", "asks for more"
"""Why only Drishti fires."""


@dataclass(frozen=True)
class Verdict:
    """One trigger on one log; `most_s` is what its subject takes of the run at most."""

    log: Path
    trigger: str
    what: str
    most_s: float | None
    run_s: float


def run_drishti(log: Path, program: str, work: Path) -> dict[str, bool]:
    """Its triggers on a log; empty where it fails."""
    folder = work / hashlib.sha256(str(log).encode()).hexdigest()[:16]
    if not folder.exists():
        folder.mkdir(parents=True)
        command = [program, "--csv", "--code", "--export_dir", str(folder), str(log)]
        subprocess.run(command, capture_output=True, timeout=600, check=False)
    for table in folder.glob("*.csv"):
        with table.open(encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                return {name: value == "True" for name, value in row.items() if name != "JOB"}
    return {}


def judge(log: Path, fired: dict[str, bool]) -> Iterator[Verdict]:
    """Each trigger that one of both fires."""
    run = open_run(log)
    facts = Facts(run.trace, run.results, run.breakdown, run.gains)
    codes = {finding.code for finding in run.findings}
    run_s = run.trace.job.run_time_s
    for trigger, (subject, findings) in SUBJECTS.items():
        here, there = bool(codes & set(findings)), fired.get(trigger, False)
        if not here and not there:
            continue
        most_s = bound_subject_s(subject, facts)
        what = BOTH if here and there else ONLY_HERE if here else explain(most_s, run, facts)
        yield Verdict(log, trigger, what, most_s, run_s)


def bound_subject_s(subject: str, facts: Facts) -> float | None:
    """What a subject takes of the run of a rank at most; None: nothing is known of it."""
    claim = Claim("storage", IMBALANCE) if subject == IMBALANCE else Claim(subject, RUN)
    found = facts.bound(claim)
    return None if found is None else found[1]


def explain(most_s: float | None, run: Run, facts: Facts) -> str:
    """Why vanidl says nothing of what Drishti names."""
    if most_s is not None and most_s < LEAST * run.trace.job.run_time_s:
        return LITTLE
    trains = facts.trains or run.results.steps is not None or bool(facts.frameworks)
    return TRAINS if trains else MORE


def table(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Lines of a table, a trigger each."""
    columns = (BOTH, ONLY_HERE, LITTLE, TRAINS, MORE)
    yield f"| Drishti | about | {' | '.join(columns)} |"
    yield "|---|---" + "|---" * len(columns) + "|"
    for trigger, (subject, _) in SUBJECTS.items():
        mine = Counter(v.what for v in verdicts if v.trigger == trigger)
        cells = " | ".join(str(mine[column]) for column in columns)
        yield f"| {trigger} | {subject} | {cells} |"


MOST_LOGS = 6  # of a run, its largest: its processes and their workers, all alike


def list_planted(runs: Path, program: str, work: Path) -> Iterator[str]:
    """Each run of a planted cause that Darshan recorded, and the triggers that ask for a change."""
    for run in sorted(runs.glob("*.darshan")):
        logs = sorted(run.glob("darshan/*.darshan"), key=lambda path: -path.stat().st_size)
        tables = [run_drishti(log.resolve(), program, work) for log in logs[:MOST_LOGS]]
        fired = [name for name in SUBJECTS if any(table.get(name) for table in tables)]
        yield f"{run.stem:22} {' '.join(fired) if any(tables) else 'no table'}"


def main() -> None:
    """Prints the table of all logs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="*", type=Path)
    parser.add_argument("--planted", type=Path, metavar="RUNS")
    parser.add_argument("--drishti", default="drishti")
    parser.add_argument("--work", type=Path, default=Path("build/drishti"))
    parser.add_argument("--each", action="store_true")
    options = parser.parse_args()
    if options.planted:
        for line in list_planted(options.planted, options.drishti, options.work):
            sys.stdout.write(f"{line}\n")
        return
    verdicts, silent = list[Verdict](), 0
    for log in options.logs:
        fired = run_drishti(log.resolve(), options.drishti, options.work)
        silent += not fired
        try:
            verdicts += judge(log, fired)
        except VanidlError as error:
            sys.stderr.write(f"{log}: {error}\n")
    for line in table(verdicts):
        sys.stdout.write(f"{line}\n")
    sys.stdout.write(f"{len(options.logs)} logs, of {silent} Drishti prints no table\n")
    for each in verdicts if options.each else ():
        most = "not known" if each.most_s is None else f"{each.most_s:.3g} s"
        sys.stdout.write(
            f"{each.trigger} {each.what}: {most} of {each.run_s:.3g} s, {each.log.name}\n"
        )


if __name__ == "__main__":
    main()
