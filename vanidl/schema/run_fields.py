"""Fields of `vanidl summary --json` on the job and its I/O: name | unit | meaning."""

FIELDS = """
schema | | Which contract this is; a new number where a name changes its meaning
headline | | The answer in one or two sentences
verdict | | In a few words: what training waits for
job | | What was run
job.id | | Identifier of the job; null where no log has one
command | | Command line; may be shortened by the tracer
job.start | | Start of the job, ISO 8601 in UTC
run_time_s | s | Last end minus first start over the logs of the job
job.ranks | count | Ranks of the training
job.processes | count | Processes that left a log or a profile
hosts | | Names of the hosts
tracer | | What recorded the I/O; null without a log
roles | count | Number of processes by role: trainer, worker, auxiliary, unassigned
ending | | How the recorded command ended; null without a record of vanidl record
ending.exit_status | | Its exit status: 128 + N where signal N ended it
ending.signal | | The name of that signal
memory_kills | count | Processes that the kernel killed as memory had run out; null: not counted
run.stopped | | Since when nothing was recorded for want of space, and why; empty: never
last_error | | The last line of a Python process that failed, secrets masked
mpi_time_s | s | Time inside MPI calls, where Darshan's AutoPerf module recorded it
mpi_time_s.mean | s | Mean over ranks
mpi_time_s.max | s | The rank with most of it
mpi_time_s.per_rank | | One entry per rank
total_s | s | Time inside MPI calls
sync_s | s | Part of it that waited for others before collectives; null: not measured
label | | Name of the rank, or of the process where it has no rank
rank | | Number of the rank; null where it is not known
coverage | | What the numbers rest on, and what they miss
complete | | Whether everything that was counted was recorded and could be read
coverage.warnings | | What limits the numbers
warnings.code | | Name of the warning
message | | What is missing or uncertain, in a sentence
severity | | How much it matters: high, medium, low; of a warning: warning, info
coverage.layers | | By layer: how much of it was traced operation by operation
counted_ops | count | Reads and writes by the tracer's counters; null: no counters
traced_ops | count | Reads and writes in the trace; null: no trace of this layer
cut_trace | | What rests on a trace that lacks operations, where one does; else null
cut_trace.layer | | The layer whose trace lacks operations
cut_trace.values | | Paths of the values that rest on it, as lower bounds or samples
traced_fraction | 1 | Traced operations / counted operations
partial | | Whether the tracer itself flagged the layer as incomplete
last_traced_s | s | End of the last traced operation, since the start of the job
io | | Reads and writes through one layer
layer | | Layer: POSIX, STDIO, MPIIO, OBJECT
io.source | | trace: from single operations; counters: from totals; null: nothing was recorded
ops | count | Reads and writes
reads | count | Read operations
writes | count | Write operations
bytes_read | bytes | Bytes that reads moved; each read counts, however often the same byte is read
bytes_written | bytes | Bytes that writes moved
io.time | s | Busy time: length of the union of operations; null without single operations
per_rank_mean_s | s | Mean over all ranks, silent ones as 0
per_rank_max_s | s | The rank with most of it; null where not recorded by rank
any_rank_s | s | Time in which any rank was in I/O
sum_s | s | Plain sum of durations; operations at the same time count twice
time.share | 1 | per_rank_mean_s / run time
io.counter_s | s | Time by counters, summed over files and processes: not busy time
counter_s.read_s | s | Time in reads
counter_s.write_s | s | Time in writes
counter_s.meta_s | s | Time in opens, stats and the like; null where not credible
bandwidth | bytes/s | Bytes per second, two ways
aggregate_bytes_per_s | bytes/s | Bytes / any_rank_s
per_op_median_bytes_per_s | bytes/s | Median over operations of bytes / duration
sizes | | Transfer sizes
sizes.min | bytes | Smallest transfer
sizes.max | bytes | Largest transfer
sizes.mean | bytes | Mean transfer
sizes.median | bytes | Median transfer
sizes.histogram | | Bins of powers of two, from the first to the last used one
histogram_darshan | | Darshan's ten bins
sizes.common | | The ten most frequent sizes
distinct | count | Number of different sizes
nbytes | bytes | Size of the transfer
histogram.low | bytes | Lower end of the bin, included
histogram.high | bytes | Upper end of the bin, excluded; null: open
histogram_darshan.low | bytes | Lower end of the bin, included
histogram_darshan.high | bytes | Upper end of the bin, excluded; null: open
access | | Where operations begin, relative to the one before in the same file and process
access.read | | Reads
access.write | | Writes
access.read.ops | count | Reads
access.write.ops | count | Writes
first | count | Operations that are the first on their file
consecutive | count | Beginning where the one before ended
forward | count | Beginning beyond the end of the one before
backward | count | Beginning before the end of the one before
sequential_darshan | count | By Darshan's rule, from the trace: beyond the one before
consecutive_darshan | count | By Darshan's rule, from the trace: where the one before ended
sequential_counted | count | The same by Darshan's counters
consecutive_counted | count | The same by Darshan's counters
durations | | How long single operations took
groups | | By group: dataset reads, other reads, writes
groups.count | count | Operations
median_s | s | Median duration
p99_s | s | 99th percentile
longest_s | s | The longest
groups.slow | count | Operations far slower than the median of their group
excess_s | s | Time of the slow ones above the median
empty_reads | count | Reads of 0 bytes, as at the end of a file
empty_reads_s | s | Time in reads of 0 bytes
durations.histogram | | Operations by duration
durations.histogram.low_s | s | Lower end of the bin, included
durations.histogram.high_s | s | Upper end of the bin, excluded; null: open
durations.histogram.read_s | s | Sum of durations of its reads
durations.histogram.write_s | s | Sum of durations of its writes
durations.slowest | | The longest operations, longest first
op | | read or write
offset | bytes | Where in the file it began; null: not recorded
start_s | s | Start, since the start of the job
end_s | s | End, since the start of the job
duration_s | s | Duration
path | | Path as it was recorded
io.files | | Files that were touched
files.count | count | Files that were read or written
by_kind | | By kind of file: dataset, checkpoint, code, log, system, other
by_mount | | By mount point; an empty name where none is known
by_file_system | | By type of file system; an empty name where none is known
io.files.stripes | | How Lustre spreads files over its targets
stripe_nbytes | bytes | Width of a stripe
stripe_count | count | Targets
osts | | Numbers of the object storage targets, in order of the stripes
files | count | Files
busy_s | s | Time in which at least one operation was under way, mean over ranks
file_system | | Type of the file system; null where unknown
truncated | | Whether more operations were counted than traced
dataset | | How the job used its dataset
unique_bytes | bytes | Length of the union of all byte ranges read
reread_factor | 1 | Bytes read / unique bytes
dataset.size | bytes | Size on disk; null unless the size of every file read is known
dataset.files.size | bytes | Size on disk, known where the file was found here
traced_share | 1 | Traced reads / counted reads of dataset files
order | | In which order processes begin to read files
order.name | | in order, reversed, shuffled, one file, not clear
concordance | 1 | Share of pairs of files read in the order of their names: 1 in order, 0.5 shuffled
repeated | 1 | The same against the process's own first pass: 1 where every pass has the same order
order.visits | count | Visits that the figures rest on
within | | Where reads of dataset files begin; reads that moved bytes
samples_per_file | | Samples in each dataset file; null values where samples are unknown
record_bytes | bytes | Size of one sample
samples_per_file.source | | Where that is known from; null: unknown
samples_per_file.evidence | | Why, in words
samples_per_file.files | count | Files that the numbers are of
samples_per_file.total | count | Samples in all
samples_per_file.min | count | Fewest samples in a file
samples_per_file.median | count | Median over files
samples_per_file.max | count | Most samples in a file
samples_per_file.histogram | | Files by their number of samples
samples_per_file.histogram.low | count | Lower end of the bin, included
samples_per_file.histogram.high | count | Upper end of the bin, excluded
modes | | Sizes of dataset reads, and what asked for them
modes.low | bytes | Smallest size
modes.high | bytes | Largest size
share_of_reads | 1 | Of the dataset reads
share_of_bytes | 1 | Of the bytes of dataset reads
cause | | What asks for such reads; null: unknown
certain | | Whether the cause was found in opened files; else it is typical of the size
modes.evidence | | Why, in words
never_read | | Data files without a single read
opened | | Paths that the job opened and did not read; null: it cannot be said
on_disk | | Paths in the folder of --data that were never opened; null: it cannot be said
never_read.reason | | Why it cannot be said
share_of | | What the shares of ranks are of
dataset.ranks | | What each rank read
ranks.share | 1 | Unique bytes of the rank / size of the dataset, else / bytes that any rank read
files_read | count | Dataset files that were read
dataset.files | | The first thousand of them
extent | bytes | Highest byte read + 1
visits | count | Times that a process began to read the file, or came back to its beginning
opens | count | Opens
files.ranks | count | Ranks that read it
samples | count | Samples in the part that was read
first_s | s | First operation, since the start of the job
last_s | s | Last operation, since the start of the job
balance | | Load over ranks
balance.rows | | One entry per rank
balance.rows.busy_s | s | Busy time of the rank; null where no operation was traced
balance.rows.counter_s | s | Reading and writing by counters, where nothing was traced
ranks.counter_s | s | Reading and writing by counters, where nothing was traced
host | | Name of the host
rows.processes | count | Processes of the rank
ranks.processes | count | Processes of the rank
busy_spread | 1 | Busiest rank / mean of ranks, by busy time
bytes_spread | 1 | Busiest rank / mean of ranks, by bytes
counter_spread | 1 | Busiest rank / mean of ranks, by time of counters
silent_ranks | count | Ranks without I/O through this layer
balance.source | | trace or counters
shared_bytes | bytes | Bytes that Darshan added up over all ranks, which are in no rank
timeline | | Bytes over time
timeline.source | | trace, heatmap: from operations, or from Darshan's heat maps
bins | count | Bins of the timeline
bin_s | s | Width of a bin
storage | | POSIX and STDIO, DFS and DAOS together, by counters
by_layer | | By layer
layers | | Totals of every module of the logs, by layer
read_s | s | Time in reads, summed over files and processes
write_s | s | Time in writes, summed over files and processes
meta_s | s | Time in opens, stats and the like, summed over files and processes
busiest_s | s | Of a checkpoint: busy time of the rank with most; null for other phases
remove_s | s | Time in unlink, remove and rmdir, summed likewise; null where the tracer has none
"""
