"""`vanidl schema [NAME]`: JSON Schema of every JSON output."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, Literal

from vanidl import __version__
from vanidl.check import check as check
from vanidl.compare import json as compare
from vanidl.compare import runs
from vanidl.errors import UsageError
from vanidl.export.tables import document_kind
from vanidl.frames import TABLES
from vanidl.model.run_facts import Ceiling
from vanidl.readers import run_folder
from vanidl.report.summary import summary_kind
from vanidl.schema.dataclass import dataclass
from vanidl.schema.schema import Kind, fields_of, schema_of
from vanidl.survey.rows import row_kind

DIALECT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, slots=True)
class Output:
    """One JSON output; `unnamed` is the path under which its fields have their meanings."""

    title: str
    kind: Kind
    unnamed: str = ""


def outputs() -> dict[str, Output]:
    """Every JSON output by the name that `vanidl schema NAME` takes."""
    experiment = {"schema": Literal[runs.SCHEMA]} | fields_of(runs.Experiment)
    record = {"schema": Literal[run_folder.RUN_SCHEMA]} | fields_of(run_folder.RunRecord)
    ceiling = {"schema": Literal[run_folder.CEILING_SCHEMA]} | fields_of(Ceiling)
    return {
        "summary": Output("vanidl summary --json", summary_kind()),
        "compare": Output("vanidl compare --json", compare.KIND),
        "check": Output("vanidl check --json", check.KIND, "check"),
        "export": Output("vanidl export --to json", document_kind()),
        "frames": Output("run.frame of the Python package", {"tables": TABLES}),
        "survey": Output("a row of jobs.parquet of vanidl survey", row_kind(), "survey"),
        "ab": Output("ab.json of vanidl ab", experiment, "ab"),
        "run": Output("run.json of vanidl record", record, "run"),
        "ceiling": Output("ceiling.json of vanidl ceiling", ceiling, "ceiling"),
    }


def run(options: argparse.Namespace) -> int:
    """Prints the schema; exit status 0."""
    schema = output_schema(options.name) if options.name else all_schemas()
    sys.stdout.write(json.dumps(schema, indent=2) + "\n")
    return 0


def output_schema(name: str) -> dict[str, Any]:
    """The schema of one output, complete in itself.

    Raises:
        UsageError: there is none of that name.
    """
    output = outputs().get(name)
    if output is None:
        raise UsageError(f"no schema {name!r}: expected one of {', '.join(outputs())}")
    about = {"$schema": DIALECT, "title": output.title, "$comment": f"vanidl {__version__}"}
    return about | schema_of(output.kind, output.unnamed)


def all_schemas() -> dict[str, Any]:
    """One schema that any of the outputs fulfils, each under `$defs`."""
    found = {name: output_schema(name) for name in outputs()}
    refs = [{"$ref": f"#/$defs/{name}"} for name in found]
    return {"$schema": DIALECT, "title": "JSON outputs of vanidl", "anyOf": refs, "$defs": found}
