"""Runs with labels: synthetic ones by recipe, recorded and public ones by path.

`labels.json` holds what should be found in each, written down before the rules were. A run
belongs to the held-back half where the SHA-256 of its name is odd.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

from tests.makers.training_jobs import Recipe, trace_of
from vanidl.analyses.results import analyse
from vanidl.run import Run

SLOW = Recipe(workers=0, read_us=20_000)
"""Reads in the training process, 80 ms a batch against 40 ms of compute."""
PIECES = Recipe(workers=0, read_us=300, pieces=16, sample_nbytes=1 << 20)
"""2,048 reads of 64 KiB, 19 ms a batch."""
BUSY = Recipe(steps=64, epochs=1)
"""Workers hide all but the first batch of 64."""
SMALL = Recipe(workers=0, read_us=3_000, sample_nbytes=200_000, batch=16, steps=40)
"""1,280 reads of 200 KB, one a sample."""
IMAGES = replace(
    SMALL, open_us=1_000, open_each=True, sample_nbytes=100_000, files=1280, name="img-{}.jpg"
)
OBJECTS = replace(SMALL, objects=True, code_files=0, name="shard-{}.tar")
"""1,280 ranges of 200 KB of objects, one a sample."""
CROPS = Recipe(workers=1, read_us=20_000, delivery_us=500)
"""16 MiB are read for a batch."""
CHECKPOINTS = Recipe(read_us=2_000)

RECIPES: dict[str, Recipe] = {
    "healthy": Recipe(),
    "healthy_four_ranks": Recipe(ranks=4),
    "healthy_long_steps": Recipe(compute_us=100_000),
    "healthy_in_process": Recipe(workers=0, read_us=100),
    "in_process_slow_storage": SLOW,
    "one_worker_slow_storage": Recipe(workers=1, read_us=20_000),
    "two_workers_slow_storage": Recipe(read_us=30_000),
    "decoding_in_process": Recipe(workers=0, read_us=200, decode_us=20_000),
    "decoding_in_a_worker": Recipe(workers=1, read_us=200, decode_us=20_000),
    "reading_and_decoding": Recipe(workers=0, read_us=6_000, decode_us=4_000),
    "slow_delivery": Recipe(read_us=200, delivery_us=120_000),
    "crops": replace(CROPS, batch_nbytes=1 << 20),
    "whole_samples": replace(CROPS, batch_nbytes=16 << 20),
    "just_under_the_limit": Recipe(workers=0, read_us=900),
    "waits_not_recorded": replace(SLOW, wait_spans=False),
    "no_profile": replace(SLOW, profiled=False),
    "no_profile_small_reads": replace(PIECES, profiled=False, pieces=64),
    "small_reads": PIECES,
    "small_reads_hidden": replace(PIECES, workers=2, steps=64, epochs=1),
    "few_small_reads": replace(PIECES, pieces=4, sample_nbytes=1 << 18, read_us=3_000),
    "large_reads": replace(PIECES, sample_nbytes=16 << 20),
    "random_reads": SMALL,
    "reads_in_order": replace(SMALL, shuffle=False),
    "random_small_reads": replace(SMALL, sample_nbytes=32 << 10),
    "tfrecord_default_buffer": replace(
        PIECES, sample_nbytes=4 << 20, shuffle=False, name="part-{}.tfrecord"
    ),
    "tfrecord_large_buffer": replace(SLOW, name="part-{}.tfrecord"),
    "hdf5_reads_of_256_kib": replace(PIECES, sample_nbytes=4 << 20, shuffle=False),
    "tfrecord_hidden": replace(
        BUSY, pieces=16, read_us=300, shuffle=False, name="part-{}.tfrecord"
    ),
    "chunks_of_many_samples": replace(SLOW, chunk_rows=16),
    "chunks_of_one_sample": replace(SLOW, chunk_rows=1),
    "chunks_of_many_samples_in_order": replace(SLOW, chunk_rows=16, shuffle=False),
    "samples_of_many_chunks": replace(SLOW, chunk_rows=1, chunk_pieces=64),
    "tiny_files": IMAGES,
    "few_files": replace(SLOW, files=64, steps=8, epochs=2),
    "tiny_files_hidden": replace(IMAGES, workers=4, read_us=200),
    "tiny_files_to_the_end": replace(IMAGES, open_each=True, to_the_end=True, epochs=1),
    "tiny_files_again_and_again": replace(
        IMAGES, files=320, open_each=True, to_the_end=True, fresh=False, steps=20, epochs=4
    ),
    "tiny_files_slow_opens": replace(IMAGES, open_each=True, open_us=2_000),
    "open_for_each_sample": replace(
        SLOW, read_us=10_000, open_each=True, open_us=1_000, stats=1
    ),
    "opens_that_cost_nothing": replace(SLOW, read_us=10_000, open_each=True),
    "open_for_each_sample_slow": replace(SLOW, read_us=10_000, open_each=True, open_us=8_000),
    "read_again": replace(SLOW, fresh=False, epochs=4),
    "read_again_hidden": Recipe(fresh=False, steps=64),
    "read_again_too_large": replace(SLOW, fresh=False, epochs=3, sample_nbytes=1 << 30),
    "slow_rank": Recipe(ranks=4, slow_rank=10, workers=0, read_us=2_000),
    "even_ranks": replace(SLOW, ranks=4),
    "slow_rank_hidden": Recipe(ranks=4, slow_rank=2),
    "one_reader": replace(SLOW, ranks=4, who_reads="one"),
    "two_ranks": replace(SLOW, ranks=2),
    "every_rank_reads_all": replace(SLOW, ranks=4, who_reads="same", shuffle=False),
    "shared_shuffle": replace(SLOW, ranks=4, fresh=False, epochs=3),
    "fixed_parts": replace(SLOW, ranks=4, fresh=False, epochs=3, shuffle=False),
    "uneven_workers": Recipe(read_us=15_000, uneven_workers=True),
    "slow_first_batches": Recipe(first_us=150_000, steps=64, epochs=3),
    "very_slow_first_batches": Recipe(first_us=600_000, epochs=3),
    "slow_tail": replace(BUSY, workers=0, read_us=100, hiccup_us=80_000),
    "very_slow_tail": replace(BUSY, workers=0, read_us=100, hiccup_us=200_000),
    "long_checkpoints": replace(CHECKPOINTS, checkpoint_us=200_000),
    "short_checkpoints": replace(CHECKPOINTS, checkpoint_us=20_000),
    "checkpoints_in_pieces": replace(
        CHECKPOINTS, checkpoint_us=400_000, checkpoint_pieces=2_000, checkpoint_nbytes=32 << 20
    ),
    "mostly_written": replace(CHECKPOINTS, checkpoint_us=20_000, checkpoint_nbytes=1 << 30),
    "mostly_a_profile_written": Recipe(log_nbytes=2 << 30),
    "small_job_through_stdio": Recipe(
        steps=4, batch=1, sample_nbytes=20_000, stdio_nbytes=491 << 10, code_files=4
    ),
    "read_and_written": Recipe(scratch_us=200_000, epochs=4),
    "read_and_written_briefly": Recipe(scratch_us=10_000),
    "much_through_stdio": Recipe(stdio_nbytes=256 << 20),
    "little_through_stdio": Recipe(stdio_nbytes=10 << 20),
    "many_imports": Recipe(code_files=800),
    "slow_imports": Recipe(code_files=200, code_us=5_000),
    "truncated": Recipe(traced=0.5),
    "truncated_slow": replace(SLOW, traced=0.5),
    "other_clock": Recipe(shift_s=60.0),
    "reads_not_seen": Recipe(unseen_files=5),
    "reads_not_seen_slow": Recipe(workers=0, read_us=200, decode_us=20_000, unseen_files=5),
    "reads_of_nothing": replace(
        IMAGES, files=64, sample_nbytes=1 << 20, open_each=True, to_the_end=True, nothing_us=2_000,
        read_us=2_000,
    ),
    "metadata_file_again": replace(SLOW, read_us=10_000, index_us=2_000, open_us=500),
    "metadata_file_again_hidden": Recipe(index_us=500, compute_us=100_000),
    "stuck_reads": replace(
        SMALL, sample_nbytes=4 << 20, read_us=500, slow_read_us=40_000, shuffle=False
    ),
    "several_reads_an_open": replace(
        SLOW, pieces=4, read_us=3_000, open_each=True, open_us=1_000, sample_nbytes=8 << 20
    ),
    "whole_files_in_jumps": replace(
        IMAGES, sample_nbytes=1 << 20, pieces=4, open_each=True, backwards=True, read_us=1_000
    ),
    "objects_small": replace(OBJECTS, files=1280),
    "objects_large": replace(OBJECTS, sample_nbytes=8 << 20, read_us=20_000),
    "objects_small_hidden": replace(OBJECTS, workers=4, read_us=200),
    "objects_asked_first": replace(OBJECTS, open_each=True, open_us=2_000),
    "objects_asked_first_briefly": replace(OBJECTS, open_each=True, open_us=20),
    "misaligned": replace(PIECES, sample_nbytes=16 << 20, misaligned=True),
    "misaligned_hidden": replace(BUSY, pieces=4, misaligned=True),
    "benchmark_at_barriers": Recipe(benchmark=True),
}  # fmt: skip

RECORDED = (
    "recorded/torch_hdf5_workers0", "recorded/torch_hdf5_workers2", "recorded/torch_pfs_workers0",
    "recorded/torch_pfs_workers4", "recorded/torch_hdf5_dxt_v2", "recorded/tf_tfrecord",
    "recorded/tf_tfrecord_default_limits", "recorded/ddp_two_hosts", "recorded/mpi_contiguous",
    "public/vanidl_cosmictagger/cosmictagger_8ranks.darshan",
    "public/kineto_resnet50_v100/num_workers_0.pt.trace.json.gz",
    "public/kineto_resnet50_v100/num_workers_4.pt.trace.json.gz",
    "public/darshan_logs/dlio_24_processes", "public/darshan_logs/empty_log.darshan",
    "public/darshan_logs/imbalanced-io.darshan", "public/darshan_logs/skew-app.darshan",
    "public/darshan_logs/partial_data_stdio.darshan",
    "public/darshan_logs/nonmpi_dxt_anonymized.darshan",
)  # fmt: skip

LABELS: dict[str, list[str]] = json.loads(
    (Path(__file__).parent / "labels.json").read_text(encoding="utf-8")
)["runs"]


def held_back(name: str) -> bool:
    """Whether the run belongs to the half that no rule was made to fit."""
    return hashlib.sha256(name.encode()).digest()[-1] % 2 == 1


@cache
def made(name: str) -> Run:
    """The synthetic run of a recipe, analysed once for all tests: records are frozen."""
    trace = trace_of(RECIPES[name])
    return Run(trace, analyse(trace))
