"""The whole summary: as text for a terminal, and as the JSON contract "vanidl/1".

To the contract additions are welcome, renames are not; unknown is null.
"""

from __future__ import annotations

import json
from typing import Literal

from vanidl.formatting.terminal import paragraph, printable
from vanidl.run import Run
from vanidl.schema.schema import Kind
from vanidl.sections.registry import json_kind, json_object, text_blocks
from vanidl.sections.section import CELL_KIND, Object, list_cells

SCHEMA = "vanidl/1"


def summary_text(run: Run) -> str:
    """The headline, warnings, findings and tables of one run."""
    answer = run.answer
    said = [answer.ending, run.verdict, answer.title, *answer.support]
    head = [paragraph(sentence) for sentence in said if sentence]
    return printable("\n".join([*head, "", *text_blocks(run)])) + "\n"


def summary_json(run: Run) -> str:
    """The contract as text: one object, two spaces of indent, no NaN."""
    return json.dumps(summary_object(run), indent=2, allow_nan=False)


def summary_object(run: Run) -> Object:
    """The contract as plain Python values."""
    said: Object = {
        "headline": run.headline,
        "headline_cells": list_cells(run.answer.cells),
        "verdict": run.verdict or None,
    }
    return {"schema": SCHEMA} | said | json_object(run)


def summary_kind() -> dict[str, Kind]:
    """What `summary_object` gives."""
    said = {
        "schema": Literal[SCHEMA],
        "headline": str,
        "headline_cells": [CELL_KIND],
        "verdict": str | None,
    }
    return said | json_kind()
