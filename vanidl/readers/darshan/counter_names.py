"""Names of Darshan's counters by module, in the order of the newest records.

From the format headers of Darshan's source (darshan-posix-log-format.h and its neighbours).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from vanidl.schema.dataclass import dataclass


def _split_words(text: str) -> list[str]:
    return text.split()


SIZES = _split_words("0_100 100_1K 1K_10K 10K_100K 100K_1M 1M_4M 4M_10M 10M_100M 100M_1G 1G_PLUS")
_SPANS = "OPEN_START READ_START WRITE_START CLOSE_START OPEN_END READ_END WRITE_END CLOSE_END"
_RANKS = "FASTEST_RANK FASTEST_RANK_BYTES SLOWEST_RANK SLOWEST_RANK_BYTES"
_RANK_TIMES = "FASTEST_RANK_TIME SLOWEST_RANK_TIME VARIANCE_RANK_TIME VARIANCE_RANK_BYTES"
_DIMENSIONS = 5  # of a dataset or variable whose shape is kept


@dataclass(frozen=True)
class Names:
    """Counters and time counters of one module, without and with its prefix."""

    prefix: str
    plain: tuple[str, ...]
    plain_times: tuple[str, ...]

    @cached_property
    def counters(self) -> tuple[str, ...]:
        """Integer counters: POSIX_OPENS, ..."""
        return tuple(f"{self.prefix}_{name}" for name in self.plain)

    @cached_property
    def times(self) -> tuple[str, ...]:
        """Counters of floating point: POSIX_F_READ_TIME, ..."""
        return tuple(f"{self.prefix}_F_{name}" for name in self.plain_times)


def _number_names(pattern: str, last: int = 4) -> Iterator[str]:
    return (pattern.format(i) for i in range(1, last + 1))


def _list_size_classes(infix: str) -> Iterator[str]:
    return (f"SIZE_{op}{infix}_{size}" for op in ("READ", "WRITE") for size in SIZES)


def _list_shapes() -> Iterator[str]:
    """The four most frequent accesses of a dataset: size, lengths and strides."""
    for access in _number_names("ACCESS{}"):
        yield f"{access}_ACCESS"
        yield from _number_names(access + "_LENGTH_D{}", _DIMENSIONS)
        yield from _number_names(access + "_STRIDE_D{}", _DIMENSIONS)
    yield from _number_names("ACCESS{}_COUNT")


def _add_timestamp(spans: str) -> list[str]:
    return [f"{name}_TIMESTAMP" for name in spans.split()]


_TIMES = (
    *_add_timestamp(_SPANS),
    *_split_words("READ_TIME WRITE_TIME META_TIME MAX_READ_TIME MAX_WRITE_TIME"),
    *_split_words(_RANK_TIMES),
)

_POSIX = (
    *_split_words(
        "OPENS FILENOS DUPS READS WRITES SEEKS STATS MMAPS FSYNCS FDSYNCS RENAME_SOURCES"
    ),
    *_split_words("RENAME_TARGETS RENAMED_FROM MODE BYTES_READ BYTES_WRITTEN MAX_BYTE_READ"),
    *_split_words("MAX_BYTE_WRITTEN CONSEC_READS CONSEC_WRITES SEQ_READS SEQ_WRITES RW_SWITCHES"),
    *_split_words("MEM_NOT_ALIGNED MEM_ALIGNMENT FILE_NOT_ALIGNED FILE_ALIGNMENT"),
    *_split_words("MAX_READ_TIME_SIZE MAX_WRITE_TIME_SIZE"),
    *_list_size_classes(""),
    *_number_names("STRIDE{}_STRIDE"),
    *_number_names("STRIDE{}_COUNT"),
    *_number_names("ACCESS{}_ACCESS"),
    *_number_names("ACCESS{}_COUNT"),
    *_split_words(_RANKS),
)

_MPIIO = (
    *_split_words("INDEP_OPENS COLL_OPENS INDEP_READS INDEP_WRITES COLL_READS COLL_WRITES"),
    *_split_words("SPLIT_READS SPLIT_WRITES NB_READS NB_WRITES SYNCS HINTS VIEWS MODE"),
    *_split_words("BYTES_READ BYTES_WRITTEN RW_SWITCHES MAX_READ_TIME_SIZE MAX_WRITE_TIME_SIZE"),
    *_list_size_classes("_AGG"),
    *_number_names("ACCESS{}_ACCESS"),
    *_number_names("ACCESS{}_COUNT"),
    *_split_words(_RANKS),
)

_STDIO = (
    *_split_words("OPENS FDOPENS READS WRITES SEEKS FLUSHES BYTES_WRITTEN BYTES_READ"),
    *_split_words("MAX_BYTE_READ MAX_BYTE_WRITTEN"),
    *_split_words(_RANKS),
)
_STDIO_TIMES = (
    *_split_words("META_TIME WRITE_TIME READ_TIME"),
    *_add_timestamp("OPEN_START CLOSE_START WRITE_START READ_START"),
    *_add_timestamp("OPEN_END CLOSE_END WRITE_END READ_END"),
    *_split_words(_RANK_TIMES),
)

_H5F_TIMES = (*_add_timestamp("OPEN_START CLOSE_START OPEN_END CLOSE_END"), "META_TIME")

_H5D = (
    *_split_words("OPENS READS WRITES FLUSHES BYTES_READ BYTES_WRITTEN RW_SWITCHES"),
    *_split_words("REGULAR_HYPERSLAB_SELECTS IRREGULAR_HYPERSLAB_SELECTS POINT_SELECTS"),
    *_split_words("MAX_READ_TIME_SIZE MAX_WRITE_TIME_SIZE"),
    *_list_size_classes("_AGG"),
    *_list_shapes(),
    *_split_words("DATASPACE_NDIMS DATASPACE_NPOINTS DATATYPE_SIZE"),
    *_number_names("CHUNK_SIZE_D{}", _DIMENSIONS),
    *_split_words("USE_MPIIO_COLLECTIVE USE_DEPRECATED"),
    *_split_words(_RANKS),
)

_PNETCDF_FILE = (
    *_split_words("CREATES OPENS REDEFS INDEP_WAITS COLL_WAITS SYNCS BYTES_READ BYTES_WRITTEN"),
    "WAIT_FAILURES",
)
_PNETCDF_FILE_TIMES = (
    *_add_timestamp("OPEN_START CLOSE_START WAIT_START OPEN_END CLOSE_END WAIT_END"),
    *_split_words("META_TIME WAIT_TIME"),
)

_KINDS = _split_words("VAR VAR1 VARA VARS VARM VARN")  # how a part of a variable is named
_PNETCDF_VAR = (
    *_split_words("OPENS INDEP_READS INDEP_WRITES COLL_READS COLL_WRITES NB_READS NB_WRITES"),
    *_split_words("BYTES_READ BYTES_WRITTEN RW_SWITCHES"),
    *(f"{call}_{kind}" for call in ("PUT", "GET") for kind in (*_KINDS, "VARD")),
    *(f"{call}_{kind}" for call in ("IPUT", "IGET", "BPUT") for kind in _KINDS),
    *_split_words("MAX_READ_TIME_SIZE MAX_WRITE_TIME_SIZE"),
    *_list_size_classes("_AGG"),
    *_list_shapes(),
    *_split_words("NDIMS NPOINTS DATATYPE_SIZE IS_RECORD_VAR"),
    *_split_words(_RANKS),
)

_ACCESSES = (*_number_names("ACCESS{}_ACCESS"), *_number_names("ACCESS{}_COUNT"))
_DAOS_TIMES = (*_TIMES[:-4], *_split_words("FASTEST_RANK_TIME SLOWEST_RANK_TIME"))
_DFS = (
    *_split_words("OPENS GLOBAL_OPENS LOOKUPS DUPS READS READXS WRITES WRITEXS NB_READS NB_WRITES"),
    *_split_words("GET_SIZES PUNCHES REMOVES STATS BYTES_READ BYTES_WRITTEN RW_SWITCHES"),
    *_split_words("MAX_READ_TIME_SIZE MAX_WRITE_TIME_SIZE"),
    *_list_size_classes(""),
    *_ACCESSES,
    "CHUNK_SIZE",
    *_split_words(_RANKS),
)
_DAOS = (
    *_split_words(
        "OBJ_OPENS OBJ_FETCHES OBJ_UPDATES OBJ_PUNCHES OBJ_DKEY_PUNCHES OBJ_AKEY_PUNCHES"
    ),
    *_split_words(
        "OBJ_DKEY_LISTS OBJ_AKEY_LISTS OBJ_RECX_LISTS ARRAY_OPENS ARRAY_READS ARRAY_WRITES"
    ),
    *_split_words(
        "ARRAY_GET_SIZES ARRAY_SET_SIZES ARRAY_STATS ARRAY_PUNCHES ARRAY_DESTROYS KV_OPENS"
    ),
    *_split_words(
        "KV_GETS KV_PUTS KV_REMOVES KV_LISTS KV_DESTROYS NB_OPS BYTES_READ BYTES_WRITTEN"
    ),
    *_split_words("RW_SWITCHES MAX_READ_TIME_SIZE MAX_WRITE_TIME_SIZE"),
    *_list_size_classes(""),
    *_ACCESSES,
    *_split_words("OBJ_OTYPE ARRAY_CELL_SIZE ARRAY_CHUNK_SIZE"),
    *_split_words(_RANKS),
)

NAMES = {
    "POSIX": Names("POSIX", _POSIX, _TIMES),
    "MPI-IO": Names("MPIIO", _MPIIO, _TIMES),
    "STDIO": Names("STDIO", _STDIO, _STDIO_TIMES),
    "H5F": Names("H5F", ("OPENS", "FLUSHES", "USE_MPIIO"), _H5F_TIMES),
    "H5D": Names("H5D", _H5D, _TIMES),
    "PNETCDF_FILE": Names("PNETCDF_FILE", _PNETCDF_FILE, _PNETCDF_FILE_TIMES),
    "PNETCDF_VAR": Names("PNETCDF_VAR", _PNETCDF_VAR, _TIMES),
    "DFS": Names("DFS", _DFS, _DAOS_TIMES),
    "DAOS": Names("DAOS", _DAOS, _DAOS_TIMES),
}
"""Darshan's module to the names of its counters."""
