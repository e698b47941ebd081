"""The part of a workload that is about training: loader, epochs, checkpoints, computation."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from vanidl.breakdown.phases import Phase
from vanidl.formatting.units import percent, plural
from vanidl.model.trace import Trace
from vanidl.run import Run
from vanidl.schema.dataclass import dataclass

# What recorded fetches of the training loader say: batches, samples, workers, epochs.

_FOR_TRAINING = ", training)"  # the end of a loader's name, where a run has several


@dataclass(frozen=True, slots=True)
class Fetched:
    """One loader, over all ranks."""

    name: str
    others: tuple[str, ...]  # loaders that these figures leave out
    batches: int
    batch_size: int  # samples of most batches
    short: int  # batches of fewer samples
    workers: int  # of one rank
    epochs: int
    samples_per_epoch: int | None  # over all ranks; None: epochs differ


def find_loader(trace: Trace) -> Fetched | None:
    """The loader that training takes most samples from; None where no fetch was recorded."""
    fetches = trace.fetches
    if not len(fetches):
        return None

    # Loaders for training, where any says so; else all.
    names = np.unique(fetches.name).tolist()
    own = [k for k in names if fetches.names[k].endswith(_FOR_TRAINING)] or names
    samples = {k: int(fetches.samples[fetches.name == k].sum()) for k in own}
    chosen = max(own, key=lambda k: samples[k])
    others = tuple(fetches.names[k] for k in names if k != chosen)
    own_fetches = fetches.pick(fetches.name == chosen)

    # The size of most batches; the last one of a pass may be short.
    known = own_fetches.samples[own_fetches.samples >= 0]
    sizes, counts = np.unique(known, return_counts=True)
    size = int(sizes[np.argmax(counts)]) if len(sizes) else 0
    # Samples of an epoch are known where all epochs had as many.
    numbers = np.unique(own_fetches.epoch)
    in_epoch = {int(own_fetches.samples[own_fetches.epoch == e].sum()) for e in numbers.tolist()}
    return Fetched(
        name=fetches.names[chosen],
        others=others,
        batches=len(own_fetches),
        batch_size=size,
        short=int(counts[sizes < size].sum()),
        workers=int(own_fetches.worker.max()) + 1,
        epochs=len(numbers),
        samples_per_epoch=in_epoch.pop() if len(in_epoch) == 1 and (sizes > 0).all() else None,
    )


_TRAIN, _SAVE, _MODEL = "train", "checkpoint", "model"
_READ_ONCE = 1.2  # of the unique bytes: less is one pass, with a few read again
_WRITES_NOT_SEEN = "writes_not_seen"  # a warning of the recording


def count_epochs(run: Run, fetched: Fetched | None) -> Entry:
    """How often training goes through the dataset."""
    if fetched is not None:
        note = f"the loader {fetched.name} was gone through so often"
        return Entry(_TRAIN, "epochs", fetched.epochs, MEASURED, note)
    phases, data = run.phases, run.dataset
    if phases is not None and phases.epochs:
        return Entry(
            _TRAIN, "epochs", len(phases.epochs), MEASURED, f"by: {phases.epochs[0].evidence}"
        )
    if data is not None and data.reread_factor is not None and data.reread_factor < _READ_ONCE:
        return Entry(_TRAIN, "epochs", 1, MEASURED, "hardly any byte was read twice")
    why = phases.no_epochs if phases is not None else "no read of the dataset was recorded"
    return Entry(_TRAIN, "epochs", 1, ASSUMED, f"one, as {why or 'epochs are not known'}")


def get_saves(run: Run) -> tuple[Phase, ...]:
    """The checkpoints that were seen."""
    return run.phases.checkpoints if run.phases is not None else ()


def describe_checkpoints(run: Run) -> Iterator[Entry]:
    """Whether, when and how much is saved."""
    saves = get_saves(run)
    if not saves:
        unseen = any(notice.code == _WRITES_NOT_SEEN for notice in run.coverage.warnings)
        why = ", but not every write was: see below" if unseen else ""
        note = f"no write of a checkpoint was seen{why}"
        yield Entry("workflow", "checkpoint", False, ASSUMED if unseen else MEASURED, note)
        return
    yield Entry("workflow", "checkpoint", True, MEASURED, f"{plural(len(saves), 'save')}")
    known = [save.bytes_written for save in saves if save.bytes_written is not None]
    sizes = f"{min(known):,} to {max(known):,}" if known else "unknown"
    size = round(sum(known) / len(known)) if known else 0
    note = f"mean bytes of a save ({sizes}); DLIO writes them as one tensor from rank 0"
    yield Entry(_MODEL, "model_size_bytes", size, MEASURED, note)
    yield Entry(_SAVE, "checkpoint_folder", "checkpoints/recorded", ASSUMED,
                "put it on the file system that the run wrote to")  # fmt: skip
    yield from _describe_save_times(run, saves)


def _describe_save_times(run: Run, saves: tuple[Phase, ...]) -> Iterator[Entry]:
    """Every so many epochs; or every so many steps, where an epoch has several."""
    epochs = run.phases.epochs if run.phases is not None else ()
    starts = np.array([epoch.start_s for epoch in epochs])
    number = np.searchsorted(starts, [save.start_s for save in saves], side="right")
    # Saves that each lie in an epoch of their own follow epochs.
    if len(epochs) and (np.diff(number) > 0).all():
        first = max(int(number[0]), 1)
        apart = round(float(np.median(np.diff(number)))) if len(number) > 1 else len(epochs)
        note = f"saves lie in epochs {', '.join(map(str, number[:8].tolist()))}"
        yield Entry(_SAVE, "checkpoint_after_epoch", first, MEASURED, note)
        yield Entry(_SAVE, "epochs_between_checkpoints", apart, MEASURED, "median of the same")
        return
    # Else steps between them are counted, where these have a place in time.
    if run.steps is None or run.steps.table.undated_s is not None:
        yield Entry(_SAVE, "epochs_between_checkpoints", 1, ASSUMED,
                    "neither epochs nor steps tell when saves were made")  # fmt: skip
        return
    table = run.steps.table
    begun = np.sort(table.start_s[table.rank == table.rank[0]])
    steps = np.searchsorted(begun, [save.start_s for save in saves])
    apart = max(round(float(np.median(np.diff(steps, prepend=0)))), 1)
    yield Entry(_SAVE, "steps_between_checkpoints", apart, MEASURED, "median steps between saves")


# What a step of a workload computes: the distribution that fits the recorded steps best.

Floats = NDArray[np.float64]

_SECTION, _KEY = "train", "computation_time"
_SPREAD = 2.0
"""A mean of so many standard deviations: DLIO draws from a normal distribution and takes the
absolute value, which moves such a mean by less than 1 %."""
_CLEARLY = 0.75
"""Of the distance of the normal distribution, which every release of DLIO draws from: another one
has to be this near."""
_POINTS = 200_001  # at which the density of a gamma distribution is summed


@dataclass(frozen=True, slots=True)
class Drawn:
    """A distribution with the mean and deviation of the steps.

    Attributes:
        parameters: As DLIO's releases after 2.0.0 have them.
        distance_s: Mean distance of its quantiles from those of the steps.
    """

    parameters: dict[str, Scalar]
    distance_s: float

    @property
    def name(self) -> str:
        """The type of distribution."""
        return str(self.parameters["type"])


def describe_computation(run: Run) -> Iterator[Entry]:
    """What a step takes without its input wait, as a distribution."""
    values = step_compute_s(run)
    if values is None:
        steps = run.steps
        why = "no steps were recorded (vanidl record does that)"
        if steps is not None:
            why = f"a step takes {steps.mean_s:.6g} s, its input wait was not recorded"
        yield mark_unknown(_SECTION, _KEY, f"seconds of a step without its wait for input: {why}")
        return
    mean, spread = float(values.mean()), float(values.std())
    drawn = fit_distribution(values)
    p5, p50, p95 = np.percentile(values, (5, 50, 95))
    note = (
        f"step without its wait for input, in seconds, over {plural(len(values), 'step')} (without "
        f"the first of a rank and steps with a checkpoint): mean {values.mean():.6g}, standard "
        f"deviation {values.std():.6g}, 5 % {p5:.6g}, median {p50:.6g}, 95 % {p95:.6g}; "
        f"communication is in it; drawn as {drawn.name}, which is off by "
        f"{percent(drawn.distance_s / max(values.mean(), 1e-12))} of the mean on average"
    )
    if drawn.name == "normal":
        yield Entry(_SECTION, _KEY, mean, MEASURED, note)
        yield Entry(_SECTION, f"{_KEY}_stdev", spread, MEASURED, "of the same, drawn as normal")
        return
    # A distribution that is not normal is given by its parameters.
    yield Entry(_SECTION, _KEY, drawn.parameters, MEASURED,
                f"{note}; DLIO 2.0.0 takes single numbers only: set the mean there")  # fmt: skip


def fit_distribution(values: Floats) -> Drawn:
    """The distribution that DLIO draws from: normal, unless another is clearly nearer.

    All have the mean and deviation of the values, and hardly ever take a time below zero.
    """
    mean, spread = float(values.mean()), float(values.std())
    ordered, share = np.sort(values), (np.arange(len(values)) + 0.5) / len(values)

    def drawn(parameters: dict[str, Scalar], quantiles: Floats) -> Drawn:
        return Drawn(parameters, float(np.abs(ordered - quantiles).mean()))

    candidates = []
    if mean >= _SPREAD * spread:
        normal: dict[str, Scalar] = {"type": "normal", "mean": mean, "stdev": spread}
        candidates.append(drawn(normal, compute_normal_quantiles(mean, spread, share)))
    # A uniform one has the deviation (max - min) / sqrt(12).
    half = spread * 3**0.5
    if mean >= half:
        uniform: dict[str, Scalar] = {"type": "uniform", "min": mean - half, "max": mean + half}
        candidates.append(drawn(uniform, mean + half * (2 * share - 1)))
    if spread:
        # Of a gamma distribution the mean is shape * scale, the variance shape * scale^2.
        shape, scale = (mean / spread) ** 2, spread**2 / mean
        gamma: dict[str, Scalar] = {"type": "gamma", "shape": shape, "scale": scale}
        candidates.append(drawn(gamma, scale * compute_gamma_quantiles(shape, share)))
    best = min(candidates, key=lambda each: each.distance_s)
    plain = next((each for each in candidates if each.name == "normal"), None)
    return plain if plain and best.distance_s >= _CLEARLY * plain.distance_s else best


def compute_normal_quantiles(mean: float, spread: float, share: Floats) -> Floats:
    """The values below which a share of a normal distribution lies."""
    drawn = NormalDist(mean, spread).inv_cdf if spread else lambda _: mean
    return np.array([drawn(each) for each in share.tolist()])


def compute_gamma_quantiles(shape: float, share: Floats) -> Floats:
    """The values below which a share of a gamma distribution of scale 1 lies.

    By the density of its logarithm, which is smooth for any shape, summed by trapezoids over all
    but 1e-16 of it and read backwards.
    """
    width = 12 / np.sqrt(shape)
    beyond = np.linspace(-width - 40 / shape, np.log1p(60 / shape + width), _POINTS)
    density = np.exp(shape * (beyond - np.expm1(beyond)))  # at shape * exp(beyond), to a factor
    below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    quantiles: Floats = shape * np.exp(np.interp(share, below / below[-1], beyond))
    return quantiles


def step_compute_s(run: Run) -> Floats | None:
    """Of each step its duration less its input wait; None where waits were not recorded.

    The first step of a rank is left out, as DLIO does, and steps in which a checkpoint was saved:
    DLIO saves between steps.
    """
    if run.steps is None:
        return None
    table = run.steps.table
    values = table.duration_s - table.input_wait_s
    first = np.diff(table.rank, prepend=-1) != 0
    kept = ~np.isnan(values) & ~_has_saves(table.start_s, table.end_s, get_saves(run))
    inner = values[kept & ~first]
    chosen = inner if len(inner) else values[kept]
    return np.maximum(chosen, 0.0) if len(chosen) else None


def _has_saves(start: Floats, end: Floats, saves: tuple[Phase, ...]) -> NDArray[np.bool_]:
    hit = np.zeros(len(start), bool)
    for save in saves:
        hit |= (start < save.end_s) & (end > save.start_s)
    return hit


# What a workload file is made of: keys with values, and where each value is from.

MEASURED, GIVEN, ASSUMED, UNKNOWN = "measured", "given", "assumed", "not known"
"""Computed from the run; stated by the user; a default, named; to be set before DLIO runs."""

Scalar = bool | int | float | str
Value = Scalar | tuple[int, ...] | Mapping[str, Scalar]

_WIDTH = 96  # columns of a comment


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of one section (""; the file itself), and why it has this value."""

    section: str
    key: str
    value: Value
    source: str  # MEASURED, GIVEN, ASSUMED or UNKNOWN
    note: str


def mark_unknown(section: str, key: str, note: str) -> Entry:
    """A number that the user must set: DLIO stops and names the variable until it is there.

    A key that is left out, or `???`, would silently become DLIO's own default.
    """
    variable = f"DLIO_{key.upper()}"
    value = f"${{oc.decode:${{oc.env:{variable}}}}}"
    return Entry(section, key, value, UNKNOWN, f"{note}; set it here or as {variable}")


def render_entries(header: Iterable[str], entries: Iterable[Entry], footer: Iterable[str]) -> str:
    """The file: comments, sections in the order of their first key, comments."""
    sections: dict[str, list[Entry]] = {}
    for entry in entries:
        sections.setdefault(entry.section, []).append(entry)
    lines = [line for text in header for line in _format_comment(text, "")]
    for section, members in sections.items():
        lines.append("")
        indent = "  " if section else ""
        lines += [f"{section}:"] if section else []
        for entry in members:
            lines += _format_comment(f"{entry.source}: {entry.note}", indent)
            lines.append(f"{indent}{entry.key}: {_format_literal(entry.value)}")
    lines += ["", *(line for text in footer for line in _format_comment(text, ""))]
    return "\n".join(lines).rstrip() + "\n"


def _format_comment(text: str, indent: str) -> list[str]:
    """Comment lines; what is indented, as a command, stays as it is."""
    safe = "".join(c if c.isprintable() else "?" for c in text)
    if not safe.strip():
        return [f"{indent}#"]
    if safe.startswith(" "):
        return [f"{indent}# {safe}"]
    return [f"{indent}# {line}" for line in textwrap.wrap(safe, _WIDTH - len(indent))]


def _format_literal(value: Value) -> str:
    """YAML that every reader takes for the same: no exponents, words always quoted."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        whole, part = f"{value:.9f}".split(".")
        return f"{whole}.{part.rstrip('0') or '0'}"
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return f"{{{', '.join(f'{key}: {_format_literal(each)}' for key, each in value.items())}}}"
