"""What is DLIO's: the base class of its data loaders, and the spans that its trace marks waits by.

Versions before 2.0.1 mark each wait in their own training loop, and have no `dft_ai`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from ..errors import MissingError

T = TypeVar("T")

try:
    from dlio_benchmark.data_loader.base_data_loader import BaseDataLoader
    from dlio_benchmark.reader.reader_handler import FormatReader
    from dlio_benchmark.utils import utility
except ImportError as error:
    utility, _missing = None, str(error)

    class BaseDataLoader:  # type: ignore[no-redef]
        """Stands in where DLIO is not installed: a class can be named, and not be made."""

        def __init__(self, *_: object) -> None:
            raise MissingError(
                f"expected DLIO, found: {_missing}; pip install --no-deps "
                "git+https://github.com/argonne-lcf/dlio_benchmark and 'vanidl-io[dlio]', "
                "which has what it imports but TensorFlow and DALI"
            )

    FormatReader = BaseDataLoader


__all__ = ["BaseDataLoader", "FormatReader"]

_ai = getattr(utility, "dft_ai", None)


def fetched(batches: Iterator[T]) -> Iterator[T]:
    """The batches, each taken inside DLIO's span of a wait for data."""
    if _ai is None:
        yield from batches
        return
    for step, batch in enumerate(_ai.dataloader.fetch.iter(batches), 1):
        _ai.update(step=step)
        yield batch


def item_span() -> AbstractContextManager[object]:
    """The span of one sample that is read: a new one, as several threads read."""
    return nullcontext() if _ai is None else _ai.data.item()


def preprocess_span() -> AbstractContextManager[object]:
    """The span of one sample that is preprocessed."""
    return nullcontext() if _ai is None else _ai.data.preprocess()


def sleep(distribution: Any) -> None:  # noqa: ANN401 - a number or DLIO's dict
    """Sleeps as long as DLIO draws it from `reader.preprocess_time`.

    Raises:
        MissingError: This DLIO cannot draw it.
    """
    if not hasattr(utility, "sleep"):
        raise MissingError(
            "expected DLIO 2.0.1 or later for reader.preprocess_time, found an earlier one: "
            "install a later one, or set no preprocess_time"
        )
    utility.sleep(distribution)
