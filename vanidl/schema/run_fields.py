"""Fields of `vanidl summary --json`: name | unit | meaning."""

FIELDS = """
schema | | Which contract this is; a new number where a name changes its meaning
headline | | The answer in one or two sentences
verdict | | In a few words: what training waits for
job | | What was run
job.id | | Identifier of the job, of all its logs
command | | Command line; may be shortened by the tracer
job.start | | Start of the job, ISO 8601 in UTC
run_time_s | s | Last end minus first start over the logs of the job
job.ranks | count | Ranks of the training
job.processes | count | Processes that left a log or a profile
hosts | | Names of the hosts
tracer | | What recorded the I/O; null without a log
roles | count | Number of processes by role: trainer, worker, auxiliary, unassigned
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
storage | | POSIX and STDIO together, by counters
by_layer | | By layer
layers | | Totals of every module of the logs, by layer
read_s | s | Time in reads, summed over files and processes
write_s | s | Time in writes, summed over files and processes
meta_s | s | Time in opens, stats and the like, summed over files and processes
steps | | Training steps; null where none was recorded
steps.source | | Which profiler recorded them
steps_from | | input waits, where steps were derived from them; null where they were marked
steps.per_rank | count | Profiled steps of a rank
per_rank.min | count | Fewest of any rank
per_rank.max | count | Most of any rank
counted | count | Steps of a rank, profiled or not; null: not more than were profiled
steps.ranks | count | Ranks with steps
mean_s | s | Mean step
steps.median_s | s | Median step
steps.p99_s | s | 99th percentile of steps
steps.loaders | | Waits by the loader they waited for; empty where that is not known
loaders.name | | Name of the loader
waits | count | Waits for a batch
loaders.wait_s | s | Time waited
device | | Steps by the device, where the recorder saw one; else null
device.steps | count | Steps that were timed on the device
device_s | s | Mean time on the device
host_s | s | Mean time on the host
clock | | How profile and logs lie on one clock: the least certain profile
clocks | | The same for every profile
log_clocks | | The same for every log with an offset of its own
method | | How it was found; none: not aligned
offset_s | s | What was added to its times
uncertainty_s | s | Half of the interval that the evidence leaves open
low_s | s | Lowest offset that the evidence leaves open
high_s | s | Highest offset that the evidence leaves open
evidence | | Why, in words
clock.evidence | | Each kind of evidence
clocks.evidence | | Each kind of evidence
log_clocks.evidence | | Each kind of evidence
offsets | | The offsets that it leaves open, in words; empty where it names none
reason | | Why, in words
workers_uncertainty_s | s | The same of the least certain log of its workers
steps.by_kind | | Steps by kind, such as first of an epoch
kind | | Kind of it
steps.by_kind.steps | count | Steps of the kind
by_kind.duration_s | s | Mean step
steps.by_kind.busy_s | s | Mean time in I/O during a step
steps.by_kind.bytes_read | bytes | Mean bytes read during a step
steps.by_kind.bytes_written | bytes | Mean bytes written during a step
overlap | | Whether I/O is hidden behind compute; null where nothing says
basis | | What it rests on
overlap.basis | | What counts as compute: device, ops, loop, device+loop, ops+loop; null: nothing
ranks_observed | count | Ranks with an observed window
hidden_fraction | 1 | Hidden / observed I/O, summed over ranks; null where none was observed
lost_to_input_s | s | Sum over steps of the longest input wait of any rank
input_wait_share | 1 | Input wait / window, summed over ranks
accelerator_utilization | 1 | Compute / window (AU of MLPerf Storage); null on basis loop
pipeline_share | 1 | Time in dataset I/O or preprocessing / run time; null: not recorded
overlap.mean | | Mean over observed ranks
overlap.per_rank | | One entry per rank
window_s | s | Observed window: first start to last end of profiled steps
io_s | s | Busy time of the rank and its workers
unobserved_s | s | I/O outside the window: neither hidden nor exposed
in_wait_s | s | I/O inside input waits
hidden_s | s | I/O under compute
behind_communication_s | s | I/O under collectives that compute does not cover
other_s | s | I/O in the window under nothing recorded, as checkpoints
exposed_s | s | Observed I/O that was not hidden
compute_s | s | Recorded compute
communication_s | s | Collectives that compute does not cover
input_wait_s | s | Time waited for input; null: the profile has no such mark
input_wait_io_s | s | Part of the wait during which the rank was in I/O
starving_wait_s | s | Wait while the device was idle; without a device the whole wait
input_wait_metadata_s | s | Part of the wait in opens, stats and the like
input_wait_metadata_at_most_s | s | The most that it can be
input_wait_rest_s | s | Part of the wait in neither: decoding, collating, starting workers
input_wait_rest_at_least_s | s | The least that it can be
in_wait_at_least_s | s | I/O inside waits, whatever the clocks leave open: at least
in_wait_at_most_s | s | I/O inside waits, whatever the clocks leave open: at most
fetches | | What each batch was made of; null where fetches were not recorded
io_recorded | | Whether I/O was recorded with them
batches | count | Batches
fetches.loaders | | By loader; sums over batches
workers | count | Workers that fetched
samples_s | s | Time in getting samples, I/O included
collate_s | s | Time in collating
reads_s | s | Time in reads; null: not recorded
metadata_s | s | Time in opens, stats and the like; null: not timed
metadata_at_most_s | s | The most that it can be
decoding_s | s | Time in getting samples that was no I/O; null: I/O was not recorded
collating_s | s | Time in collating that was no I/O; null: I/O was not recorded
wait_s | s | Time waited for it; null: not recorded
fetches.mean | | What waits were for, mean over ranks; null: no wait took a known fetch
fetches.per_rank | | The same, one entry per rank
not_begun_s | s | Part of the wait before anybody had begun to fetch the batch
delivery_s | s | Part of the wait when it was fetched: on its way, or being pinned
rest_s | s | Part of the wait in no fetch: starting workers, ends of epochs
fetches.slowest | | The batches that were waited for longest
slowest.loader | | Name of the loader
epoch | | Number of the epoch, from 0
batch | | Number of the batch in it, from 0
slowest.rank | | Name of the rank
worker | | Number of the worker, or none
waited_s | s | Time waited for the batch
fetch_s | s | Time in fetching it
longest_read_s | s | Its longest read
of_bytes | bytes | Size of that read
in_file | | Path of its file
placement | | How much I/O steps without times may have hidden; null where not needed
placement.verdict | | hidden, exposed, not determined
placement.io_s | s | I/O between the first and the last placed step, summed over ranks
placement.hidden_s | s | Least and most of it that was hidden
placement.per_rank | | One entry per rank
placement.per_rank.io_s | s | I/O between its first and last placed step
bursts | count | Bursts of reads
lag | | Step k lies between the starts of bursts k + lag and k + lag + 1
why | | Why at that lag, in words
shortest_step_s | s | The shortest of the long steps
other_steps | count | Shorter steps, which are not placed
before_s | s | I/O before the first placed step
after_s | s | I/O after the last placed step
slope | 1 | Of slack on the length of the burst: 1 if reads block, 0 if not
slope_error | 1 | Its standard error
placement.per_rank.steps | count | Placed steps
slack_s | s | How far a step may move between its bursts
slack_s.median | s | Median over steps
slack_s.max | s | Most of any step
epochs | | Epochs, where evidence marks them
index | | Number of the epoch, from 1
epochs.steps | count | Profiled steps in it; null: not known
phases | | Stages, which add up to the run time, and checkpoints
phases.name | | Name: start-up, warm-up, training, tail, or of the checkpoint
phases.kind | | stage or checkpoint
phases.steps | count | Profiled steps in it; null: not known
throughput | | Speed of training
steps_per_s | 1/s | Steps per second of one rank, over observed windows
samples_per_s | 1/s | Samples per second of all observed ranks; needs --samples-per-step
samples_per_step | count | As given by --samples-per-step
step_parts | | What the mean step consists of; null without steps
step_parts.steps | count | Steps of each rank, at least
step_parts.ranks | count | Ranks
waits_known | | Whether input waits were recorded
parts | | Parts that add up to the step
parts.code | | Name of the part
seconds | s | Its time
parts.share | 1 | Its share of the step
ceiling | | What input costs, measured with batches from memory; null: not measured
ceiling.ranks | count | Ranks that were compared
ceiling.steps | count | Steps of each, after the warm-up
ceiling.step_s | s | Mean step as it trained
free_s | s | Mean step with batches from memory
ceiling.median_step_s | s | Median step as it trained
median_free_s | s | Median step with batches from memory
copying_s | s | Mean time to copy the batches of a step, a part of free_s
cost | 1 | 1 - free_s / step_s
ceiling.low | 1 | Lower end of the 98 % interval of cost
ceiling.high | 1 | Its upper end, with copying counted as input
replayed | count | Loaders whose batches came from memory, over all ranks
ceiling.kept | count | Batches that were kept for that, over all ranks
kept_nbytes | bytes | Their memory
ceiling.pairs | count | Pairs of runs that the interval is of
remarks | | Loaders that stayed real, and why
diagnoses | | Causes, the most important first
code | | Name of it; stays the same between versions
title | | In one line
diagnoses.findings | | Codes of the findings that belong to it
now_s | s | Mean step now
diagnoses.step_s | s | Mean step after the change; null: none can be named
diagnoses.basis | | predicted: replayed; at best: all of the bound is saved; null: not known
change | | Name of the row of what_if; null: none
saved_share | 1 | Saved share of the mean step, or of the run time; null: no bound
remedies | | Text to copy
remedies.code | | The text
explanation | | What it does, in a sentence
proof | | Command that measures the change; null: none
show | | Some of the worst steps
show.rank | | Name of the rank
show.step | | Number of the step
position | | Place of the rank among the ranks, from 0
show.wait_s | s | Input wait of the step; null: not recorded
findings | | What to know or to change, most severe first
detail | | What was seen, in sentences
advice | | What to do
gain_at_most_s | s | Most that a change can save, per rank; null: the trace sets no bound
findings.evidence | | Numbers that the finding rests on
what_if | | Predicted step times; null without steps
what_if.step_s | s | Mean step, measured
replayed_s | s | Mean step that the model replays with nothing changed; null: refused
what_if.rows | | Changes that gain anything
rows.name | | The change
rows.step_s | s | Mean step after it
ratio | 1 | Mean step after it / now
rows.replayed_s | s | What the model says where that is below the ceiling, at which the row is then
lever | | Field of Change that was changed; empty: nobody can change that
amount | | Its value
assumptions | | What predictions rest on
refused | | Why there are none; empty where there are
beyond_ceiling | | Changes whose predictions were below the measured ceiling
benchmarks | | Results of a benchmark of storage: DLIO, MLPerf Storage
benchmarks.name | | Name of the benchmark
workload | | Name of its workload
accelerators | count | Accelerators that it emulated: one a rank
benchmarks.hosts | count | Hosts
utilization_percent | % | Accelerator utilization by the benchmark's formula
summary_percent | % | The same, as the benchmark summed it up
compute_set_s | s | How long each step was set to compute: it is emulated
benchmarks.total_s | s | Time that the utilization divides by, of the mean rank over all epochs
benchmarks.compute_s | s | Compute in it
waits_s | s | The rest of it by cause; null: not recorded
largest_wait | | The cause of the largest wait
dataset_nbytes | bytes | Size of all samples
memory_nbytes | bytes | Memory of all hosts
page_cache | | Page cache of one host as epochs began
page_cache_nbytes | bytes | Bytes in it
rules | | Rules of the benchmark
rules.name | | What is looked at
rules.found | as unit | Its value here; null: not recorded
rules.least | as unit | What it must be at least; null: not recorded
rules.unit | | Its unit
holds | | Whether the rule is kept; null: not known
benchmarks.epochs | | One entry per rank and epoch, without steps that are left out
benchmarks.epochs.epoch | | Number of the epoch, as the benchmark counts
benchmarks.epochs.steps | count | Steps, with those that are left out
benchmarks.epochs.utilization_percent | % | Compute / total, in percent
recorded_percent | % | The same, as the benchmark wrote it
benchmarks.epochs.total_s | s | Time that the utilization divides by
benchmarks.epochs.compute_s | s | Compute in it
storage_s | s | Wait for batches while reads or writes were under way; null: nothing was traced
page_cache_s | s | The same after the first epoch, of data that fit into the memory of the hosts
processor_s | s | Wait for batches while nothing was read or written
not_known_s | s | Wait for batches of a rank whose reads were not traced
barrier_s | s | Wait for slower ranks; null: not every rank left its steps
between_steps_s | s | Time between steps that no slower rank explains
in_step_s | s | Time in steps that neither loads nor computes
"""
