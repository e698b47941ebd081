"""Runs the notebooks here, keeps their outputs in them: python notebooks/run.py [NAME ...]."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
LIMIT_S = 300


def executed(path: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of this run, and nothing that changes from run to run.

    Raises:
        CellExecutionError: a cell failed.
    """
    notebook = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=LIMIT_S, resources=place, coalesce_streams=True).execute()
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"]}
    for cell in notebook.cells:
        cell.metadata = {}
    return notebook


def main() -> None:
    """Runs those named, else all."""
    names = sys.argv[1:] or sorted(path.stem for path in HERE.glob("*.ipynb"))
    for name in names:
        path = HERE / f"{name}.ipynb"
        nbformat.write(executed(path), path)
        sys.stdout.write(f"{path.name}\n")


if __name__ == "__main__":
    main()
