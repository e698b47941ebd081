"""Fields of the tables in `vanidl export --to json`: name | unit | meaning."""

FIELDS = """
tables | | Every table but the single operations: an object of columns, each a list
tables.timeline | | Bytes over time, one row per rank and bin
tables.job_timeline | | Bytes over time, one row per bin
tables.file_timeline | | Bytes over time of the busiest files, one row per file and bin
tables.steps | | One row per step and rank
tables.placement | | One row per placed step
tables.files | | One row per file
tables.kinds | | One row per kind of file
tables.mounts | | One row per mount point
tables.dataset | | One row per dataset file
tables.phases | | One row per stage, epoch and checkpoint
tables.sizes | | One row per bin of transfer sizes
tables.durations | | One row per bin of durations
tables.slowest | | The longest operations
tables.processes | | One row per process: what process, rank and host of the others are of
tables.ranks | | One row per rank
tables.overlap | | One row per rank
tables.fetches | | One row per fetch of a batch
tables.layers | | One row per layer
tables.operations | | One row per operation
tables.findings | | One row per finding, most severe first
tables.actions | | One row per thing to do, what saves most first
tables.breakdown | | One row per window of each rank; beside these both ends of each cell
tables.warnings | | One row per warning
row | | Name of the row
tables.*.process | | Name of the process, different from all others: rank 3, or host:number
tables.*.rank | | Rank that the process served; else the place of its training process; null: none
tables.*.host | | Name of the host; null where not recorded
tables.*.step | | Number of the step, or of the step of its rank in which it started; null: none
tables.*.epoch | | Number of the epoch as the loop counts, else from 0; null: none
tables.*.thread | | Number of the thread within its process; null where not recorded
tables.*.file | | Path of the file
tables.*.start | | When it started, UTC; null where not known
tables.*.gain_at_least_s | s | What the change saves at least, per rank; null: no bound
role | | trainer, worker, auxiliary or unassigned
log | | Name of the file that it was recorded in
tables.phases.kind | | stage, epoch or checkpoint
tables.actions.findings | | Codes of the findings that it is made of
tables.breakdown.phase | | training, validation, checkpoint and so on; empty: unobserved
tables.breakdown.part | | Of a step: input_wait, forward and so on; else epoch_end or empty
tables.breakdown.window_s | s | How long the window is
kinds.name | | Kind of file
mounts.name | | Mount point; empty where none is known
steps.reads | count | Reads during the step
steps.writes | count | Writes during the step
steps.bytes_read | bytes | Bytes read during the step
steps.bytes_written | bytes | Bytes written during the step
slowest_files | | Paths of the files with most time in I/O during the step
slowest_files_s | s | Time in I/O of each of them
earliest_s | s | Earliest start of the step, since the start of the job
latest_s | s | Latest start of the step, since the start of the job
tables.placement.step_s | s | Duration of the step
mount | | Mount point; empty where none is known
files.io_s | s | Sum of durations over all ranks; null where only totals are known
files.layers | | Layers that recorded the file
tables.files.stripes | | How Lustre spreads the file
files.stripes.file | | Number of the file
sizes.low | bytes | Lower end of the bin, included
sizes.high | bytes | Upper end of the bin, excluded; null: open
sizes.reads | count | Reads in the bin
sizes.writes | count | Writes in the bin
durations.low_s | s | Lower end of the bin, included
durations.high_s | s | Upper end of the bin, excluded; null: open
durations.read_s | s | Sum of durations of its reads
durations.write_s | s | Sum of durations of its writes
fetches.name | | Name of the loader
longest_read_nbytes | bytes | Size of its longest read; null: none
longest_read_file | | Path of the file of its longest read
tables.fetches.worker | | Number of the worker; -1: the training process itself
"""
