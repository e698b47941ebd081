"""Runs the notebooks here, keeps their outputs in them: python notebooks/run.py [NAME ...]."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
LIMIT_S = 300
FRAME = "a page in a frame, which is shown when the cell is run"
PLOTLY = "application/vnd.plotly.v1+json"


def executed(paths: Sequence[Path]) -> Iterator[nbformat.NotebookNode]:
    """Each notebook with the outputs of this run, and nothing that changes from run to run.

    One kernel runs them all, and forgets the names of each before the next.

    Raises:
        CellExecutionError: a cell failed.
    """
    os.environ["PLOTLY_RENDERER"] = "plotly_mimetype"  # figures as data, without plotly itself
    books = [nbformat.read(path, as_version=4) for path in paths]
    place = {"metadata": {"path": str(HERE)}}
    client = NotebookClient(nbformat.v4.new_notebook(), timeout=LIMIT_S, resources=place)
    client.coalesce_streams = True
    with client.setup_kernel():
        for book in books:
            client.nb = book
            client.reset_execution_trackers()
            for number, cell in enumerate(book.cells):
                client.execute_cell(cell, number)
            client.nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("%reset -f")])
            client.execute_cell(client.nb.cells[0], 0)
            yield _neutral(book)


def _neutral(book: nbformat.NotebookNode) -> nbformat.NotebookNode:
    book.metadata = {"kernelspec": book.metadata["kernelspec"]}
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    for number, cell in enumerate(code, 1):
        cell.execution_count = number
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        for output in cell.outputs:
            _settle(output, number)
    for cell in book.cells:
        cell.metadata = {}
    return book


def _settle(output: nbformat.NotebookNode, number: int) -> None:
    """No page of a megabyte, and a line of text for readers that draw no figure."""
    if "execution_count" in output:
        output.execution_count = number
    data = output.get("data", {})
    if data.get("text/html", "").lstrip().startswith("<iframe"):
        output.data = {"text/plain": FRAME}
    if PLOTLY in data:
        title = data[PLOTLY]["layout"].get("title", {}).get("text", "")
        data["text/plain"] = f"a plotly figure {title}".strip()


def main() -> None:
    """Runs those named, else all."""
    names = sys.argv[1:] or sorted(path.stem for path in HERE.glob("*.ipynb"))
    paths = [HERE / f"{name}.ipynb" for name in names]
    for path, book in zip(paths, executed(paths), strict=True):
        nbformat.write(book, path)
        sys.stdout.write(f"{path.name}\n")


if __name__ == "__main__":
    main()
