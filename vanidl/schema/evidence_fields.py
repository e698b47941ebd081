"""Fields of the evidence of findings: name | unit | meaning."""

FIELDS = """
arrays_that_misfit | count | Arrays whose chunks do not fit the samples
checkpoints | count | Checkpoints
chunks_a_sample | count | Chunks that one sample touches
samples_a_chunk | count | Samples that lie in one chunk
busy_s_a_rank | s | Busy time, mean over ranks
counter_s | s | Reading and writing by counters, mean over ranks: not busy time
different_bytes | bytes | Unique bytes
different_bytes_a_host | bytes | Unique bytes, mean over hosts
excess_s_a_rank | s | Time above the usual, per rank
files_that_misfit | count | Files with such arrays
fixed_part | 1 | Share that a fixed part of the data would be: 1 / ranks
heads | count | Requests for the properties of an object
lists | count | Requests that list objects
in_waits_s | s | Time of such requests inside input waits
jumps | 1 | Share of the reads that do not begin where the one before ended
mean_bytes | bytes | Mean size of a read
mean_of_the_others_s | s | Mean of the other steps
mean_request_s | s | Mean duration of a request
median_bytes | bytes | Median size of a file
median_step_s | s | Median step
not_aligned | count | Operations that do not begin at a block of the file system
observed_io_s | s | I/O in the observed window
of_it_input_wait_s | s | Part of it that was input wait
opens_per_file_and_process | count | Mean over files and processes
operations | count | Operations
posix_bytes | bytes | Bytes through POSIX
stdio_bytes | bytes | Bytes through STDIO
processes_a_rank | count | Processes of a rank
ranks_on_it | count | Ranks that read that file
reads_at_8_mib | count | Reads that would do, at 8 MiB each
requests_at_once | count | Requests under way at a time, on average
rest_at_least_s | s | Part of the wait that was neither I/O nor metadata, at least
samples_or_reads | count | Samples, or reads where samples are unknown
evidence.share | 1 | Its share
evidence.bytes_per_s | bytes/s | Most that the storage was seen to deliver
evidence.reads_at_once | count | Reads under way at once, on average
evidence.part | | Part of the step, or of what is waited for
evidence.part_s | s | Its time, of the mean step
evidence.mean_step_s | s | Mean training step
evidence.validation_s | s | Validation in all
evidence.steps_s | s | All training steps
evidence.epoch_ends_s | s | Ends and beginnings of epochs, in all
evidence.epochs | count | Epochs
evidence.synced_s | s | Syncs of the training thread outside its waits
evidence.written_s | s | Writes of the training thread outside its waits and saves
evidence.exit_status | | Of the recorded command; 128 + N: signal N ended it
share_of_io | 1 | Share of the time in I/O
slow_reads | count | Reads far slower than the median
smallest_share | 1 | Unique bytes of the rank that read least / those of the job
spent_s | s | Time spent
spread | 1 | Busiest / mean
blocked_s | s | Time on a lock, the network, a timer or a child process, at least
batches_copied_s | s | Time of collating in workers, of a rank
threads_at_work | 1 | Threads of the run that ran, or could have, on average while it trained
waiting_for_cores_s | s | Time in which a thread could run and had no core, at least
starting_s | s | Time in starting workers
stats | count | Calls of stat
stopped_s | s | Time during which training stood still
workers_side_by_side | count | Workers that ran at the same time
array | | Name of the array
busiest | | Name of the busiest rank or process
busiest_file | | Path of the file with most traffic; null: none stands out
file | | Path of the file; null: several
reader | | Name of the rank that reads
chunk | count | Shape of a chunk
shape | count | Shape of the array
evidence.warnings | | Codes of the warnings
evidence.ranks | | Number, or names, of the ranks
first_steps | | Numbers of the steps
slow_steps | | Numbers of the steps
at_most_s | s | Most that each rank can have cost the others, by rank
longest_wait | s | The rank with the longest wait
longest_wait.rank | | Name of the rank
longest_wait.seconds | s | Its wait
evidence.slowest | s | The slowest rank
predicted | | What a loader of vanidl_loaders would do
predicted.loader | | Name of the loader
at_buffer_of_different_bytes | | By size of the buffers, as a share of the unique bytes
buffer_bytes_a_rank | bytes | Buffer of a rank
bytes_not_read | bytes | Bytes that would not be read again
share_of_all_reads | 1 | Their share of all bytes read
exchanged_fraction | 1 | Share of a rank's samples that are exchanged in an epoch
stored_bytes_a_rank | bytes | Storage of a rank
exchanged_bytes_a_rank_and_epoch | bytes | Bytes that a rank sends in an epoch
shared_storage_bytes_not_read | bytes | Bytes that would not be read from shared storage
bytes_a_rank_now | bytes | Bytes that the rank with most reads now
bytes_a_rank_then | bytes | Bytes that a rank would read
bytes_read_now | bytes | Bytes read now
bytes_read_then | bytes | Bytes that would be read, by codec
evidence.cause | | What is waited for
evidence.wait_s | s | Time waited for it, of the mean rank
evidence.total_s | s | Time that it is a part of
evidence.rules | | Names of the rules that are not kept
"""
