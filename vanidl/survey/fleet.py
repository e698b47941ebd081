"""All jobs of a survey, column by column: of a hundred thousand jobs none is an object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import date
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.schema.dataclass import dataclass
from vanidl.survey.plain import PlainColumn
from vanidl.survey.rows import HOUR_S, Row
from vanidl.survey.store import StoredTable

NO_DAY = 0
"""Of a job whose start is not known; days are counted as by `date.toordinal`, which begins at 1."""


@dataclass(frozen=True, slots=True)
class Parts:
    """In which groups jobs are: one entry for each job in each group.

    Attributes:
        job: index of the job.
        group: index into `names`, which are numbered as they come.
        share: of the job's time.
        names: of the groups.
    """

    job: NDArray[np.intp]
    group: NDArray[np.intp]
    share: NDArray[np.float64]
    names: tuple[str, ...]

    def sums(self, of_jobs: NDArray[np.float64]) -> NDArray[np.float64]:
        """For each group what its jobs have of it, by share, added up in their order."""
        parts = self.share * of_jobs[self.job]
        return np.bincount(self.group, parts, len(self.names)).astype(np.float64)

    def by_name(self, of_jobs: NDArray[np.float64]) -> dict[str, float]:
        """The same by name of the group."""
        return dict(zip(self.names, self.sums(of_jobs).tolist(), strict=True))


class Fleet:
    """Jobs in the order of their table, or some of them.

    Args:
        table: a StoredTable, pyarrow.Table or PlainTable with the columns of a row.
        index: of the jobs that are meant, in the table; None: of all.
    """

    def __init__(self, table: Any, index: NDArray[np.intp] | None = None) -> None:  # noqa: ANN401
        self._table = table
        self.index = np.arange(table.num_rows) if index is None else index

    def __len__(self) -> int:
        return len(self.index)

    def column(self, name: str) -> Any:  # noqa: ANN401 - pyarrow has no types
        """A pyarrow.Array, or a PlainColumn of a plain table."""
        column = self._table.column(name)
        whole = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        return whole if len(self) == self._table.num_rows else whole.take(self.index)

    def known(self, name: str) -> NDArray[np.bool_]:
        """Of which jobs the column says something."""
        # Piece by piece: problems, each with its path, are longer than all else together.
        is_stored = isinstance(self._table, StoredTable)
        column = self._table.pieces(name) if is_stored else self._table.column(name).iterchunks()
        valid = [piece.is_valid().to_numpy(zero_copy_only=False) for piece in column]
        return np.concatenate([np.empty(0, np.bool_), *valid])[self.index]

    def numbers(self, name: str) -> NDArray[np.float64]:
        """A number of each job, NaN where it was not recorded."""
        return _read_numbers(self.column(name))

    def amounts(self, name: str) -> NDArray[np.float64]:
        """The same, 0 where it was not recorded."""
        found = self.numbers(name)
        return np.where(np.isnan(found), 0.0, found)

    def values(self, name: str) -> list[Any]:
        """What is known: texts, or numbers as they were recorded."""
        found: list[Any] = self.column(name).drop_null().to_pylist()
        return found

    def days(self) -> NDArray[np.int64]:
        """The day on which each job started, in UTC, or NO_DAY."""
        codes, starts = encode_texts(self.column("start"))
        days = [NO_DAY if start is None else _parse_day(start[:10]) for start in starts]
        return np.array(days, np.int64)[codes]

    def only(self, chosen: NDArray[np.bool_]) -> Fleet:
        """The jobs that are chosen."""
        return Fleet(self._table, self.index[chosen])

    def rows(self, places: Sequence[int] | None = None) -> list[Row]:
        """These jobs, or others by their places in the table, whole."""
        chosen = np.asarray(self.index if places is None else places, np.intp)
        found: list[Row] = self._table.take(chosen).to_pylist()
        return found

    def parts(self, name: str, label: Callable[[str | None], str]) -> Parts:
        """Every job in the one group that its text is labelled with."""
        group, names = label_texts(self.column(name), label)
        return Parts(np.arange(len(self)), group, np.ones(len(self)), names)

    def items(self, name: str) -> tuple[NDArray[np.intp], Any]:
        """(index of the job, the item) for each item of a column of lists, a pyarrow.Array."""
        lists = self.column(name)
        if isinstance(lists, PlainColumn):
            return lists.parent_indices(), lists.flatten()
        from pyarrow import compute

        return compute.list_parent_indices(lists).to_numpy(), lists.flatten()

    def item_numbers(self, name: str) -> NDArray[np.float64]:
        """The items of a column of lists of numbers, NaN where one was not recorded."""
        return _read_numbers(self.items(name)[1])


def encode_texts(texts: Any) -> tuple[NDArray[np.intp], list[str | None]]:  # noqa: ANN401
    """(index of the value of each, the values as they come) of a pyarrow.Array of texts."""
    if isinstance(texts, PlainColumn):
        return texts.encode()
    found = texts.dictionary_encode(null_encoding="encode")
    return found.indices.to_numpy().astype(np.intp), found.dictionary.to_pylist()


def label_texts(
    texts: Any,  # noqa: ANN401 - pyarrow has no types
    label: Callable[[str | None], str],
) -> tuple[NDArray[np.intp], tuple[str, ...]]:
    """(index of the label of each, the labels as they come): one call for each distinct text."""
    codes, values = encode_texts(texts)
    return merge_labels(codes, map(label, values))


def merge_labels(
    codes: NDArray[np.intp], labels: Iterable[str]
) -> tuple[NDArray[np.intp], tuple[str, ...]]:
    """The same where several values have one label."""
    ids: dict[str, int] = {}
    places = [ids.setdefault(label, len(ids)) for label in labels]
    return np.array(places, np.intp)[codes], tuple(ids)


def _read_numbers(column: Any) -> NDArray[np.float64]:  # noqa: ANN401
    found: NDArray[np.float64] = column.cast("float64", safe=False).to_numpy(zero_copy_only=False)
    return found


@lru_cache(1024)
def _parse_day(text: str) -> int:
    try:
        return date.fromisoformat(text).toordinal()
    except ValueError:
        return NO_DAY


UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class HoursOf:
    """Hours of nodes where every job with input says on how many it ran, else of ranks."""

    noun: str  # "node" or "rank"

    def input(self, jobs: Fleet) -> NDArray[np.float64]:
        """Hours of each job in reads of the dataset; 0 where they are not known."""
        return jobs.amounts(f"input_{self.noun}_hours")

    def all(self, jobs: Fleet) -> NDArray[np.float64]:
        """Hours that each job had: nodes, or ranks, x run time."""
        return self._many(jobs) * jobs.amounts("run_time_s") / HOUR_S

    def gains(self, jobs: Fleet, job: NDArray[np.intp], gain_s: NDArray[np.float64]) -> (
        NDArray[np.float64]
    ):  # fmt: skip
        """Hours of gains of so many seconds per rank, each of one of the jobs."""
        return self._many(jobs)[job] * gain_s / HOUR_S

    def _many(self, jobs: Fleet) -> NDArray[np.float64]:
        return jobs.amounts("nodes" if self.noun == "node" else "ranks")


def pick_hours(jobs: Fleet) -> HoursOf:
    """Those of nodes where they are known of all jobs that counted their reads."""
    nodes = select_with_input(jobs).known("input_node_hours").all()
    return HoursOf("node" if nodes else "rank")


def select_with_input(jobs: Fleet) -> Fleet:
    """Jobs of which the time in reads was counted."""
    return jobs.only(jobs.known("input_rank_hours"))


def extract_program(command: str | None) -> str:
    """The program without folders and options, with the script that an interpreter runs."""
    words = (command or "").split()
    if not words:
        return "not recorded"
    program = words[0].rpartition("/")[2]
    if not program.startswith(_INTERPRETERS):
        return program
    rest = iter(words[1:])
    for word in rest:
        if word in {"-c", "-m"}:
            return f"{program} {word}" + (f" {next(rest, '')}" if word == "-m" else "")
        if not word.startswith("-"):
            return f"{program} {word.rpartition('/')[2]}"
    return program


_INTERPRETERS = ("python", "bash", "sh", "perl", "julia", "Rscript", "java", "node")


def get_known_name(name: str | None) -> str:
    """The name, where there is one."""
    return name or UNKNOWN


def split_by_user(jobs: Fleet) -> Parts:
    """The one user, with all of the job's time."""
    return jobs.parts("user", get_known_name)


def split_by_program(jobs: Fleet) -> Parts:
    """The one program, with all of the job's time."""
    return jobs.parts("command", extract_program)


def split_by_file_system(jobs: Fleet) -> Parts:
    """Types of file systems, with their shares of the job's time in reads of the dataset."""
    is_timed = jobs.amounts("input_s") != 0
    timed = jobs.only(is_timed)
    job, kinds = timed.items("input_file_systems")
    group, names = label_texts(kinds, get_known_name)
    share = timed.item_numbers("input_file_system_s") / timed.numbers("input_s")[job]
    return Parts(np.flatnonzero(is_timed)[job], group, share, names)
