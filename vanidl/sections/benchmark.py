"""What the accelerators of a benchmark waited for, epoch by epoch, and its rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vanidl.analyses.benchmark import (
    CAUSES,
    BenchmarkResult,
    EpochWaits,
)
from vanidl.figures import palette
from vanidl.figures.downsample import n_of_m, pick_spread, round_values
from vanidl.figures.figure import Column, Figure, Spec, Table
from vanidl.formatting.terminal import Row, aligned_table, paragraph
from vanidl.formatting.units import four_digits, nbytes, seconds
from vanidl.run import Run
from vanidl.schema.schema import fields_of
from vanidl.sections.section import Json, Object, Section, values_of
from vanidl.wording.results import describe_utilization

TABLE_LIMIT = 256
BARS = 40
_MOST_IN_TEXT = 20
_BENCHMARK_TITLE = "What the accelerators waited for"
_BENCHMARK_CAPTION = (
    "Share of the time of each epoch, over all ranks, without the steps that the benchmark leaves "
    "out. Storage: reads under way while the accelerator waits for a batch. Page cache: the same "
    "after the first epoch of data that fit into the memory of the hosts. Processor: a batch is "
    "waited for and no read is under way. Barrier: a slower rank. Between steps: in no step and "
    "not explained by a slower rank. In step: neither loading nor computing."
)
_COLOURS = (
    palette.IN_WAIT, palette.FORWARD, palette.READ, palette.UNOBSERVED, palette.COMMUNICATION,
    palette.OTHER, palette.SOFT,
)  # fmt: skip
_SHAPES = ("", "/", "\\", "x", "", ".", "-")
_BENCHMARK_COLUMNS = (
    Column("rank"),
    Column("epoch"),
    Column("steps", "count"),
    Column("utilization, %"),
    Column("as written, %"),
    Column("time", "s"),
    Column("compute", "s"),
    *(Column(cause, "s") for cause in CAUSES),
)


def draw_benchmark(run: Run) -> Figure:
    """Stacked shares of each epoch, and a row for each rank and epoch."""
    results = run.benchmarks
    rows = [row for result in results for row in result.epochs]
    if not results:
        none = _compose_benchmark("", reason="The run holds no result of DLIO or MLPerf Storage.")
        return replace(none, applies=False)
    rules = " ".join(
        sentence for result in results for sentence in list_benchmark_sentences(result)
    )
    if not rows:
        reason = f"No rank left what it measured of its steps. {rules}"
        return _compose_benchmark("", reason=reason)
    # Of many ranks and epochs some, evenly spread; the bars are of the first epochs.
    picked = [rows[i] for i in pick_spread(len(rows), TABLE_LIMIT)]
    table = Table(
        _BENCHMARK_COLUMNS,
        tuple(
            (
                f"rank {row.rank}",
                row.epoch,
                row.steps,
                row.utilization_percent,
                row.recorded_percent,
                row.total_s,
                row.compute_s,
                *row.waits_s,
            )
            for row in picked
        ),
        n_of_m(len(picked), len(rows), "epochs of ranks"),
    )
    epochs = _divide_by_epoch(rows)
    cut = n_of_m(min(len(epochs), BARS), len(epochs), "epochs")
    caption = " ".join([rules, _BENCHMARK_CAPTION, *([f"Shown: {cut}."] if cut else [])])
    drawn = _compose_benchmark(caption, _plot_benchmark(epochs[:BARS]), table)
    return replace(drawn, alt_text=rules)


def _compose_benchmark(
    caption: str, spec: Spec | None = None, table: Table | None = None, reason: str = ""
) -> Figure:
    return Figure("benchmark", "Benchmark", _BENCHMARK_TITLE, caption, spec, table, reason)


def _divide_by_epoch(rows: list[EpochWaits]) -> list[tuple[str, list[float]]]:
    """(label, percent of the time: compute, then each cause) of every epoch, over its ranks."""
    by_epoch: dict[int, list[EpochWaits]] = {}
    for row in rows:
        by_epoch.setdefault(row.epoch, []).append(row)
    shares = []
    for epoch, same in sorted(by_epoch.items()):
        # Over the time of all ranks: a rank that took longer weighs more.
        total_s = sum(row.total_s for row in same) or 1.0
        parts = [sum(row.compute_s for row in same)]
        parts += [sum(row.waits_s[k] or 0.0 for row in same) for k in range(len(CAUSES))]
        shares.append((f"epoch {epoch}", [100 * part / total_s for part in parts]))
    return shares


def _plot_benchmark(epochs: list[tuple[str, list[float]]]) -> Spec:
    names = ("compute", *CAUSES)
    fills = [palette.fill(palette.HIDDEN), *map(palette.fill, _COLOURS, _SHAPES)]
    labels = [label for label, _ in epochs]
    # A cause without time in any epoch would only lengthen the legend.
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "x": round_values(parts[k] for _, parts in epochs),
            "y": labels,
            "marker": fills[k],
            "hovertemplate": "%{y}: %{x:.3g} %<extra>" + name + "</extra>",
        }
        for k, name in enumerate(names)
        if any(parts[k] > 0 for _, parts in epochs)
    ]
    layout = palette.layout(
        120 + 26 * len(epochs), barmode="stack", bargap=0.3,
        xaxis=palette.axis("% of the time", range=[0, 100], fixedrange=True),
        yaxis=palette.axis(autorange="reversed", showgrid=False, fixedrange=True),
    )  # fmt: skip
    return {"data": data, "layout": layout}


def _write_benchmark(run: Run) -> str | None:
    if not run.benchmarks:
        return None
    blocks = []
    for result in run.benchmarks:
        head = ("epoch", "ranks", "utilization", "compute", *CAUSES)
        table = aligned_table("Benchmark", [head, *_list_rows(result)]) if result.epochs else None
        words = "".join(
            f"  {line}\n"
            for s in list_benchmark_sentences(result)
            for line in paragraph(s).splitlines()
        )
        # How far the page cache filled up, where it was looked at more than once.
        if len(result.page_cache_nbytes) > 1:
            first, last = result.page_cache_nbytes[0], result.page_cache_nbytes[-1]
            words += (
                f"  Page cache of one host: {nbytes(first[1])} as epoch {first[0]} began, "
                f"{nbytes(last[1])} as epoch {last[0]} did.\n"
            )
        blocks.append((table or "Benchmark\n") + words)
    return "\n".join(blocks)


def _list_rows(result: BenchmarkResult) -> Iterator[Row]:
    of: dict[int, list[EpochWaits]] = {}
    for row in result.epochs:
        of.setdefault(row.epoch, []).append(row)
    for epoch, same in sorted(of.items())[:_MOST_IN_TEXT]:
        n = len(same)
        waits = ([row.waits_s[k] for row in same] for k in range(len(CAUSES)))
        mean = sum(row.utilization_percent for row in same) / n
        yield (
            str(epoch), str(n), f"{mean:.2f} %", seconds(sum(r.compute_s for r in same) / n),
            *(_average_known(each) for each in waits),
        )  # fmt: skip


def _average_known(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return seconds(sum(known) / len(values)) if known else "-"


def _collect_benchmark(run: Run) -> list[Object]:
    """One object a result, empty where the run holds none."""
    return [
        values_of(result, without=("page_cache_nbytes",))
        | {
            "page_cache": [
                {"epoch": epoch, "page_cache_nbytes": held}
                for epoch, held in result.page_cache_nbytes
            ]
        }
        for result in run.benchmarks
    ]


_FIELDS = fields_of(BenchmarkResult, without=("page_cache_nbytes", "waits_s")) | {
    "waits_s": {str: float | None},
    "page_cache": [{"epoch": int, "page_cache_nbytes": int}],
}
BENCHMARK = Section(
    "benchmark",
    (draw_benchmark,),
    _write_benchmark,
    {"benchmarks": Json(_collect_benchmark, [_FIELDS])},
)


def list_benchmark_sentences(result: BenchmarkResult) -> Iterator[str]:
    """The verdict and the rules, each in a sentence."""
    yield from describe_utilization(result)
    if result.epochs and result.waits_s["storage"] is None:
        yield (
            "Nothing recorded the reads, so waits for batches are not divided: put Darshan logs "
            "or DFTracer traces of the run beside the result."
        )
    for rule in result.rules:
        limit = ""
        if rule.least is not None:
            limit = f", {'' if rule.exact else 'at least '}{rule.least:g} asked for"
        if rule.found is None:
            yield f"Rule: {rule.name}{limit}: not recorded."
            continue
        held = {True: "holds", False: "does not hold", None: "no limit recorded"}[rule.holds]
        yield f"Rule: {rule.name} {four_digits(rule.found)} {rule.unit}{limit}: {held}."
