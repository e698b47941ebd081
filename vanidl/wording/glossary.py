"""The words of the report and what each means, as its results define them."""

from __future__ import annotations

TERMS: tuple[tuple[str, str], ...] = (
    (
        "Time in I/O (busy time)",
        "Length of the union of a rank's operations: time in which at least one operation of its "
        "processes was under way. Operations side by side count once.",
    ),
    (
        "Time by counters",
        "Seconds of reading and writing that the tracer added up over files and processes. Files "
        "read at the same time count twice, so it is not busy time.",
    ),
    (
        "Observed window",
        "From the start of the first to the end of the last profiled step of a rank. I/O outside "
        "it is unobserved: neither hidden nor exposed.",
    ),
    (
        "Input wait",
        "Time the training process spent waiting for the next batch, by the profiler. Where the "
        "profile has no such span it is not recorded, which is not zero.",
    ),
    (
        "Ceiling",
        "What the same steps take with batches from memory, measured by vanidl ceiling in a "
        "second run whose result is of no value. The most that any change of the input can gain.",
    ),
    (
        "Hidden",
        "I/O of a rank that ran under its compute, outside input waits. Where no compute was "
        "recorded but the whole loop was: while the training thread neither waited for input nor "
        "was in I/O itself. One process with one thread hides nothing.",
    ),
    (
        "Exposed",
        "I/O in the observed window that was not hidden: in input waits, behind communication, "
        "or under nothing recorded (checkpoints, logging).",
    ),
    (
        "Behind communication",
        "I/O under recorded collectives that compute does not cover. A rank that waits for "
        "another rank's reads waits there.",
    ),
    (
        "Lost to input",
        "Sum over steps of the longest input wait over ranks: what synchronous training loses.",
    ),
    (
        "Unique bytes, re-read factor",
        "Length of the union of all byte ranges read from a file; bytes read / unique bytes.",
    ),
    (
        "Visit",
        "A process's first read of a file, and each return to the lowest byte that it reads there "
        "after having read elsewhere. The order of visits compares all pairs of files of one pass.",
    ),
    (
        "Epoch",
        "Shown only where something marks its border: spans that name it, one more wait as the "
        "loader ends, workers started again, or the dataset read again.",
    ),
    (
        "Share",
        "Mean time in I/O over ranks / run time. Ranks without I/O count as 0.",
    ),
)
