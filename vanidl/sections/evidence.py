"""The numbers that findings rest on: which there are, and of what kind each is."""

from __future__ import annotations

from vanidl.schema import Kind, Partly

_NUMBER = int | float | None
_NUMBERS = (
    "arrays_that_misfit", "batches_copied_s", "blocked_s", "busy_s", "busy_s_a_rank", "busy_spread",
    "bytes_per_s", "bytes_read", "bytes_spread", "bytes_written", "checkpoints", "chunks_a_sample",
    "compute_s", "counter_s", "delivery_s", "different_bytes", "different_bytes_a_host",
    "empty_reads", "epoch_ends_s", "epochs", "excess_s", "excess_s_a_rank", "exit_status",
    "exposed_s", "files", "files_that_misfit", "fixed_part", "heads", "hidden_fraction",
    "in_waits_s", "input_wait_io_s", "input_wait_s", "input_wait_share", "jumps", "lists",
    "longest_s", "lost_to_input_s", "mean_bytes", "mean_of_the_others_s", "mean_request_s",
    "mean_s", "mean_step_s", "median_bytes", "median_s", "median_step_s", "meta_s",
    "metadata_at_most_s", "metadata_s", "not_aligned", "observed_io_s", "of_it_input_wait_s",
    "opens", "opens_per_file_and_process", "operations", "p99_s", "part_s", "posix_bytes",
    "processes_a_rank", "ranks_on_it", "read_s", "reads", "reads_at_8_mib", "reads_at_once",
    "requests_at_once", "reread_factor", "rest_at_least_s", "samples_a_chunk", "samples_or_reads",
    "share", "share_of_bytes", "share_of_io", "silent_ranks", "slow_reads", "smallest_share",
    "spent_s", "spread", "starting_s", "stats", "stdio_bytes", "steps_s", "stopped_s", "synced_s",
    "threads_at_work", "total_s", "traced_fraction", "uncertainty_s", "validation_s", "wait_s",
    "waiting_for_cores_s", "workers_side_by_side", "write_s", "writes", "written_s",
)  # fmt: skip
_TEXTS = (
    "array",
    "busiest",
    "busiest_file",
    "cause",
    "evidence",
    "file",
    "message",
    "method",
    "part",
    "reader",
)
_LISTS: dict[str, Kind] = {
    "chunk": [int],
    "first_steps": [int],
    "ranks": int | list[str],
    "rules": [str],
    "shape": [int],
    "slow_steps": [int],
    "warnings": [str],
}
_OBJECTS: dict[str, Kind] = {
    "at_most_s": {str: float},
    "longest_wait": {"rank": str, "seconds": float | None},
    "slowest": {"rank": str, "input_wait_s": float | None},
}
_PREDICTED = Partly({
    "loader": str,
    "at_buffer_of_different_bytes": {str: {
        "buffer_bytes_a_rank": int, "bytes_not_read": int, "share_of_all_reads": float}},
    "exchanged_fraction": float,
    "stored_bytes_a_rank": int,
    "exchanged_bytes_a_rank_and_epoch": int,
    "shared_storage_bytes_not_read": int,
    "bytes_a_rank_now": int,
    "bytes_a_rank_then": int,
    "bytes_read_now": int,
    "bytes_read_then": {str: int},
})  # fmt: skip

EVIDENCE = Partly(
    dict.fromkeys(_NUMBERS, _NUMBER)
    | dict.fromkeys(_TEXTS, str | None)
    | _LISTS
    | _OBJECTS
    | {"predicted": _PREDICTED}
)
"""Each finding has some of them: which depends on its code."""
