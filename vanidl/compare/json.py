"""A comparison as one JSON object: additions are welcome, renames are not, unknown is null."""

from __future__ import annotations

import json
from typing import Any, Literal

from vanidl.compare import Change, Comparison, Pairing, Sample, Side
from vanidl.compare.comparison import MIN_CHANGE, compare_cells
from vanidl.compare.statistics import ALPHA
from vanidl.compare.text import write_headline
from vanidl.formatting.units import iso_time
from vanidl.model.run_facts import Ceiling
from vanidl.model.warnings import Notice
from vanidl.report.summary import SCHEMA
from vanidl.schema.schema import Kind, Maybe
from vanidl.sections.section import values_of

Object = dict[str, Any]


def render_json(comparison: Comparison) -> str:
    """The comparison as text: one object, two spaces of indent, no NaN."""
    return json.dumps(make_object(comparison), indent=2, allow_nan=False)


def make_object(comparison: Comparison) -> Object:
    """The comparison as plain values; `metrics` is that of the second side to the first."""
    pairings = [_collect_pairing(pairing) for pairing in comparison.pairings]
    return {
        "schema": SCHEMA,
        "headline": str(write_headline(comparison)),
        "primary": comparison.primary,
        "confidence": 1 - ALPHA,
        "smallest_change_called": MIN_CHANGE,
        "conditions": dict(comparison.conditions),
        "sides": [_collect_side(side) for side in comparison.sides],
        **pairings[0],
        "comparisons": pairings,
    }


def _collect_side(side: Side) -> Object:
    return {
        "letter": side.letter,
        "name": side.name,
        "runs": [_collect_sample(sample) for sample in side.samples],
        "ceiling": None
        if side.ceiling is None
        else values_of(side.ceiling) | {"remarks": list(side.ceiling.remarks)},
    }


def _collect_sample(sample: Sample) -> Object:
    job = sample.job
    # Whether the run was recorded whole, and every warning about it.
    coverage = None
    if sample.results is not None:
        warnings = [values_of(warning) for warning in sample.results.coverage.warnings]
        coverage = {"complete": sample.results.coverage.complete, "warnings": warnings}
    return {
        "path": sample.path,
        "pair": sample.pair,
        "exit_status": sample.ending.exit_status if sample.ending else None,
        "id": None if job is None else job.id,
        "command": None if job is None else job.command,
        "start": None if job is None else iso_time(job.start_ns),
        "wall_time_s": sample.wall_time_s,
        "missing": sample.missing or None,
        "coverage": coverage,
    }


def _collect_pairing(pairing: Pairing) -> Object:
    return {
        "a": pairing.a.letter,
        "b": pairing.b.letter,
        "paired": pairing.paired,
        "notices": list(pairing.notices),
        "metrics": {change.metric.name: _collect_change(change) for change in pairing.changes},
        "cells": {
            row.key: {"a": row.a and list(row.a), "b": row.b and list(row.b)}
            for row in compare_cells(pairing.a, pairing.b)
        },
    }


def _collect_change(change: Change) -> Object:
    difference = change.difference
    return {
        "a": change.a,
        "b": change.b,
        "ratio": change.ratio,
        "low": change.low,
        "high": change.high,
        "verdict": change.verdict,
        "note": change.note or None,
        "better": change.metric.better,
        "unit": change.metric.unit,
        "cell": change.metric.cell or None,
        "difference": None
        if difference is None
        else dict(zip(("value", "low", "high"), difference, strict=True)),
        "p": change.p,
        "p_corrected": change.p_corrected,
        "values_a": list(change.values_a),
        "values_b": list(change.values_b),
    }


_NUMBERS = [float | None]
_ENDS: Kind = tuple[float, float] | None
_CHANGE: Kind = {
    **dict.fromkeys(("a", "b", "ratio", "low", "high", "p", "p_corrected"), float | None),
    "verdict": str,
    "note": str | None,
    "better": str,
    "unit": str,
    "cell": str | None,
    "difference": Maybe({"value": float, "low": float, "high": float}),
    "values_a": _NUMBERS,
    "values_b": _NUMBERS,
}
_PAIRING: Kind = {
    "a": str,
    "b": str,
    "paired": bool,
    "notices": [str],
    "metrics": {str: _CHANGE},
    "cells": {str: {"a": _ENDS, "b": _ENDS}},
}
_RUN: Kind = {
    "path": str,
    "pair": int | None,
    "exit_status": int | None,
    "id": str | None,
    "command": str | None,
    "start": str | None,
    "wall_time_s": float | None,
    "missing": str | None,
    "coverage": Maybe({"complete": bool, "warnings": [Notice]}),
}
KIND: Kind = {
    "schema": Literal[SCHEMA],
    "headline": str,
    "primary": str,
    "confidence": float,
    "smallest_change_called": float,
    "conditions": {str: str},
    "sides": [{"letter": str, "name": str, "runs": [_RUN], "ceiling": Ceiling | None}],
    **_PAIRING,
    "comparisons": [_PAIRING],
}
"""What `make_object` gives."""
