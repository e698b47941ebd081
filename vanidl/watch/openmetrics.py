"""The state of a run as OpenMetrics text, which parsers of Prometheus's older text format take.

node_exporter's textfile collector reads that older format: to it UNIT and EOF are comments, and
counters, whose TYPE OpenMetrics gives for the name without `_total`, are untyped. Samples have no
timestamps: the collector refuses files that have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from vanidl.schema.dataclass import dataclass
from vanidl.watch.state import RankState, RunState, State

_SECONDS, _BYTES = "seconds", "bytes"

Sample = tuple[Mapping[str, str], float]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: its name, without the suffix that samples of counters have."""

    name: str
    kind: str  # counter or gauge
    help: str
    unit: str = ""

    @property
    def sample(self) -> str:
        """The name of its samples, which queries use."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


STEPS = Family("vanidl_steps", "counter", "Training steps.")
STEP_SECONDS = Family("vanidl_step_seconds", "counter", "Time that training steps took.", _SECONDS)
LOOP_SECONDS = Family(
    "vanidl_loop_seconds", "counter", "Time from the first recorded call to the last.", _SECONDS
)
WAIT_SECONDS = Family(
    "vanidl_input_wait_seconds", "counter", "Time that training waited for a loader.", _SECONDS
)
WAITS = Family("vanidl_input_waits", "counter", "Calls of a loader.")
FETCH_SECONDS = Family(
    "vanidl_fetch_seconds", "counter", "Time that processes took to make batches.", _SECONDS
)
FETCHES = Family("vanidl_fetches", "counter", "Batches that were made.")
READ_BYTES = Family(
    "vanidl_read_bytes",
    "counter",
    "Bytes read, by what says so: calls of read on this host, storage there, object storage.",
    _BYTES,
)
SILENT_SECONDS = Family(
    "vanidl_silent_seconds", "gauge", "Time since the last recorded event.", _SECONDS
)
STATE = Family("vanidl_run_state", "gauge", "1 for the state that the run is in, else 0.")
ENDED = Family("vanidl_run_ended", "gauge", "1 once the recorded command has ended, else 0.")

FAMILIES = (
    STEPS, STEP_SECONDS, LOOP_SECONDS, WAIT_SECONDS, WAITS, FETCH_SECONDS, FETCHES, READ_BYTES,
    SILENT_SECONDS, STATE, ENDED,
)  # fmt: skip
"""Every metric that is written."""


def openmetrics(state: RunState) -> str:
    """The text; a metric of which nothing was recorded has no sample."""
    samples: dict[str, list[Sample]] = {family.name: [] for family in FAMILIES}
    for family, labels, value in _list_samples(state):
        samples[family.name].append(({"run": state.name, **labels}, value))
    lines = [line for family in FAMILIES for line in _write_family(family, samples[family.name])]
    return "\n".join([*lines, "# EOF", ""])


def _list_samples(state: RunState) -> Iterator[tuple[Family, Mapping[str, str], float]]:
    for rank, label in zip(state.ranks, _name_ranks(state.ranks), strict=True):
        of = {"rank": label}
        yield STEPS, of, rank.steps
        yield STEP_SECONDS, of, rank.steps_s
        yield LOOP_SECONDS, of, rank.window_s
        # Silence after the end is no alarm.
        yield SILENT_SECONDS, of, 0.0 if state.condition.is_over else rank.silent_s
        for waited in rank.loaders:
            yield WAITS, {**of, "loader": waited.loader}, waited.waits
            yield WAIT_SECONDS, {**of, "loader": waited.loader}, waited.wait_s
    if state.workers:
        yield FETCHES, {}, sum(worker.batches for worker in state.workers)
        yield FETCH_SECONDS, {}, sum(worker.fetch_s for worker in state.workers)
    for read in state.reads:
        yield READ_BYTES, {"source": read.source}, read.nbytes
    # One sample for each state, of which the present one is 1.
    for each in State:
        yield STATE, {"state": each.value}, float(state.condition.state is each)
    yield ENDED, {}, float(state.ended)


def _name_ranks(ranks: Iterable[RankState]) -> Iterator[str]:
    """`0`, `1`; two processes of one rank are told apart."""
    seen: dict[str, int] = {}
    for rank in ranks:
        label = rank.label.removeprefix("rank ")
        seen[label] = seen.get(label, 0) + 1
        yield label if seen[label] == 1 else f"{label} ({seen[label]})"


def _write_family(family: Family, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {family.name} {family.help}"
    yield f"# TYPE {family.name} {family.kind}"
    if family.unit:
        yield f"# UNIT {family.name} {family.unit}"
    for labels, value in samples:
        pairs = ",".join(f'{name}="{_escape_label(text)}"' for name, text in labels.items())
        yield f"{family.sample}{{{pairs}}} {value!r}"


def _escape_label(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
