"""What each field of the JSON outputs means, and in which unit.

A record may say it beside the field, `step_s: Annotated[float, means("Mean step", "s")]`. Of all
other fields, and of objects that no record is made for, a line of `LINES` says it: name | unit |
meaning. A name means the same wherever it stands; where it does not, the line names more of the
path, in which * is any one name.
"""

from __future__ import annotations

from functools import lru_cache

from vanidl.schema.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Meaning:
    """`unit` is "" for text, flags and objects, "1" for a share or a ratio."""

    text: str
    unit: str


def means(text: str, unit: str = "") -> Meaning:
    """The meaning of the field of a record, for its annotation."""
    return Meaning(text, unit)


def meaning_of(path: str) -> Meaning:
    """The meaning of the field at a path, by the lines.

    Raises:
        TypeError: none says what it means.
    """
    return meanings()[line_of(path)]


def line_of(path: str) -> str:
    """The longest end of the path that has a line.

    Raises:
        TypeError: none has.
    """
    names = path.split(".")
    whole = [path, *(f"{names[0]}.*.{name}" for name in names[2:])] if len(names) == 3 else [path]
    ends = (*whole, *(".".join(names[first:]) for first in range(1, len(names))))
    line = next((end for end in ends if end in meanings()), None)
    if line is None:
        raise TypeError(
            f"{path}: neither its record nor a line of vanidl/schema/meanings.py says what it means"
        )
    return line


@lru_cache
def meanings() -> dict[str, Meaning]:
    """Every line, by its name or end of a path."""
    by_name = {}
    for line in LINES.splitlines():
        if line and not line.startswith("#"):
            name, unit, text = (part.strip() for part in line.split("|"))
            by_name[name] = Meaning(text, unit)
    return by_name


LINES = """\
# vanidl summary --json: the job and its I/O
schema | | Which contract this is; a new number where a name changes its meaning
headline | | The answer in one or two sentences
headline_cells | | The durations and shares of cells that the headline says, in their order
headline_cells.key | | The cell: who/window/cause
headline_cells.text | | What is said of it
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
extent_start | bytes | First byte of the file that this component of its layout holds
extent_end | bytes | First byte behind them; null: to the end of the file
io.osts | | Lustre's targets that traced operations touched
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
layer_use | | How each layer was used, by the tracer's counters
read_s | s | Time in reads, summed over files and processes
write_s | s | Time in writes, summed over files and processes
meta_s | s | Time in opens, stats and the like, summed over files and processes
busiest_s | s | Of a checkpoint: busy time of the rank with most; null for other phases
remove_s | s | Time in unlink, remove and rmdir, summed likewise; null where the tracer has none

# vanidl summary --json: steps, overlap and advice
breakdown | | The account of time: each rank's training thread by cause; a cell is [least, most]
breakdown.mean | | Mean over the ranks: of steps and waits over those with steps
breakdown.per_rank | | Each rank; of more than 1,024 those with most time in storage
breakdown.layers | | Every layer that was counted, mean over ranks; layers nest and are not added up
layers.read_s | s | Reading, mean over ranks
layers.write_s | s | Writing, mean over ranks
layers.metadata_s | s | Metadata calls, mean over ranks
layers.outermost | | Whether it is the outermost layer of a file, and so counts as storage
breakdown.mean.rank | | Null
breakdown.mean.window_s | s | Length of the run
breakdown.per_rank.window_s | s | Length of the run
breakdown.mean.phases | s | Each phase
breakdown.per_rank.phases | s | Each phase
run | s | The run by cause
breakdown.mean.storage | s | Storage of the run by what it was
breakdown.per_rank.storage | s | Storage of the run by what it was
breakdown.mean.steps | count | Training steps of a rank, at most
breakdown.per_rank.steps | count | Training steps
step_s | s | Mean training step, windows cut out of it left out; null without steps
breakdown.mean.step | s | The mean training step by cause; null without steps
breakdown.per_rank.step | s | The mean training step by cause; null without steps
breakdown.mean.step_parts | s | The mean training step by part; null without steps
breakdown.per_rank.step_parts | s | The mean training step by part; null without steps
breakdown.mean.input_wait_s | s | Input waits of training steps, summed; null without steps
breakdown.per_rank.input_wait_s | s | Input waits of training steps, summed; null without steps
input_wait | s | Input waits of training steps by cause, summed; null without steps
phase_causes | s | Each phase by cause
blocked | | Parts of what was blocked: lock, network, sleep, child, other
blocked.run | s | Of the run
blocked.input_wait | s | Of input waits of training steps
input_cpu | s | Of the run: samples, collate, sampler; what nothing tells apart may be all of it
breakdown.mean.device_idle | s | Of the run: with work in the queue of the device
breakdown.per_rank.device_idle | s | Of the run: with work in the queue of the device
breakdown.mean.workers | s | Of the run: start, and stop at ends of epochs
breakdown.per_rank.workers | s | Of the run: start, and stop at ends of epochs
breakdown.mean.epochs | | Epochs with their cells; of more than 256 none
breakdown.per_rank.epochs | | Epochs with their cells; of more than 256 none
breakdown.mean.epochs.index | | Number of it
breakdown.per_rank.epochs.index | | Number of it
breakdown.mean.epochs.window_s | s | Length of it
breakdown.per_rank.epochs.window_s | s | Length of it
breakdown.mean.epochs.input_wait_s | s | Its input waits in training steps, summed
breakdown.per_rank.epochs.input_wait_s | s | Its input waits in training steps, summed
memory | | Memory of the run's processes, seen from outside; null: not recorded
memory.kind | | copies (workers made shared pages their own), in_flight, growth or steady
peak_nbytes | bytes | All processes at one time, at most; shared pages by their share
peak_training_nbytes | bytes | Training processes of the host, without shared memory
peak_workers_nbytes | bytes | Their workers, without shared memory
peak_shared_nbytes | bytes | Shared memory, batches on their way among it
memory.workers | count | Workers at one time, at most
copied_nbytes | bytes | What workers made their own of what they shared with their parent
growth_nbytes_per_s | bytes/s | Growth at the end; null: no trend that holds
growth_nbytes_per_epoch | bytes | Mean growth of the peak an epoch, from the second on
limit_nbytes | bytes | What the processes may take; null: not known
limit_of | | What limits it: control group or machine
left_nbytes | bytes | What was left to the limit at least; null: not known
out_of_memory_s | s | Seconds to the limit, were growth to go on; null: no such trend
batches_in_flight | count | Batches that loaders ask for ahead; null: not known
memory.series | | Each host over time, a thousand points at most, the largest of each stretch
memory.series.host | | Host
memory.series.at_s | s | Since the job began
training_nbytes | bytes | Training processes, without shared memory
workers_nbytes | bytes | Workers, without shared memory
shared_memory_nbytes | bytes | Shared memory
other_nbytes | bytes | Other processes of the command
lines | | Lines of the program that fetches and steps spend their time in; null: not sampled
lines.fetch | | Fetches of loaders; null: not sampled
lines.loop | | Steps between their batches: the function with the loop; null: not sampled
lines.fetch.samples | count | Sampled fetches, over all processes
lines.loop.samples | count | Sampled steps, over all processes
lines.fetch.wall_s | s | Their wall time
lines.loop.wall_s | s | Their wall time
lines.fetch.cpu_s | s | Processor time of their threads
lines.loop.cpu_s | s | Processor time of their threads
lines.fetch.lines | | The most costly first, each time in one line
lines.loop.lines | | The most costly first, each time in one line
lines.file | | File of the program
lines.line | 1 | Number of the line
lines.function | | Function that it is of
lines.text | | Its source; empty where that was not at hand
lines.share | 1 | Share of the sampled wall time
lines.cpu_share | 1 | Share of the sampled processor time
lines.blocked_share | 1 | Share of the sampled time that was not on the processor
lines.wall_s | s | Wall time
lines.cpu_s | s | Processor time
lines.hits | count | How often it ran
breakdown.mean.evidence | | What each cause of the run rests on
breakdown.per_rank.evidence | | What each cause of the run rests on
assumed | | What must hold, beyond what was recorded, for the cells to be right
width_basis | | What the widths of cells rest on: exact, sampled or assumed
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
input_wait_share | 1 | Input wait / training steps, summed over ranks
accelerator_utilization | 1 | Compute / window (AU of MLPerf Storage); null on basis loop
pipeline_share | 1 | Time in dataset I/O or preprocessing / run time; null: not recorded
overlap.cells | | Of fields of mean and per_rank: the cell of breakdown that each is, window/cause
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
input_wait_io_s | s | Part of the waits of training steps that went to storage, at least
input_wait_io_at_most_s | s | The most that it can be
input_wait_io_range_s | s | Both ends of it
starving_wait_s | s | Wait while the device was idle; without a device the whole wait
input_wait_metadata_s | s | Part of the wait in opens, stats and the like, at least
input_wait_metadata_at_most_s | s | The most that it can be
input_wait_metadata_range_s | s | Both ends of it
input_wait_rest_s | s | Part of the wait outside storage, as decoding, at least
input_wait_rest_at_most_s | s | The most that it can be
input_wait_rest_range_s | s | Both ends of it
in_wait_range_s | s | I/O inside waits, whatever the clocks leave open: both ends
in_wait_at_least_s | s | I/O inside waits, whatever the clocks leave open: at least
in_wait_at_most_s | s | I/O inside waits, whatever the clocks leave open: at most
hidden_at_least_s | s | I/O under compute, whichever thread called and what was not traced: at least
hidden_at_most_s | s | The most that it can be
hidden_range_s | s | Both ends of it
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
delivery_s | s | Part of the wait when it was fetched: on its way, or being pinned
fetches.slowest | | The batches that were waited for longest
slowest.loader | | Name of the loader
epoch | | Number of the epoch, from 0
batch | | Number of the batch in it, from 0
slowest.rank | | Name of the rank
worker | | Number of the worker, or none
waited_s | s | Time waited for the batch
reads_range_s | s | Reads: at least, at most
writes_s | s | Writes, at least
writes_range_s | s | Writes: at least, at most
metadata_range_s | s | Metadata calls: at least, at most
decoding_range_s | s | Decoding, augmenting and collating: at least, at most
delivery_range_s | s | Delivery: at least, at most
workers_s | s | Workers being started, at least
workers_range_s | s | Workers being started: at least, at most
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
step_parts.parts.key | | The cell whose least it is: mean/window/cause; empty: left beside cells
waits_known | | Whether input waits were recorded
device_known | | Whether the work of devices was recorded, and left them idle
parts | | Parts that add up to the step
parts.code | | Name of the part
seconds | s | Its time
parts.share | 1 | Its share of the step
ceiling | | What input costs, measured with batches from memory; null: not measured
actions | | What to change: what failed, then what gains most, then what limits the numbers
actions.cause | | What it takes away: a cause of the breakdown, or a window of the run
gain_s | s | Saved at least and at most, per rank, of the observed time; null: no bound
gain_cell | | Key of the gain: gain/action/CODE, gain/finding/CODE or gain/what_if/NAME; null: none
gain_share | 1 | The same as shares of the run time; null: no bound
keeps | | What of the cause stays after the change; empty: nothing is known to
actions.change | | What to do: code or a command to copy, or a sentence
patch | | Of the run's own source, for git apply; null: the source is not at hand
diagnoses | | Causes, the most important first
diagnoses.cause | | What the change takes away
findings.cause | | What a change takes away: a cause of the breakdown, or a window of the run
findings.cells | | The durations and shares of cells that its words say, in their order
findings.cells.key | | The cell: who/window/cause
findings.cells.text | | What is said of it
step_at_most_s | s | Mean step where readers share the storage; null: as step_s
code | | Name of it; stays the same between versions
title | | In one line
diagnoses.findings | | Codes of the findings that belong to it
now_s | s | Mean step now
diagnoses.step_at_most_s | s | The same where the change gains the least; null: none can be named
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
rows.loader | | Loader of vanidl_loaders that makes the change; null: none does
loader.name | | Name of the loader
loader.command | | Command that trains with it
assumptions | | What predictions rest on
refused | | Why there are none; empty where there are
beyond_ceiling | | Changes whose predictions were below the measured ceiling
benchmarks | | Results of a benchmark of storage: DLIO, MLPerf Storage
benchmarks.name | | Name of the benchmark
workload | | Name of its workload
accelerators | count | Accelerators that it emulated: one a rank
benchmarks.hosts | count | Hosts
benchmarks.samples_per_s | 1/s | Mean over epochs, as the benchmark summed it up
survey.samples_per_s | 1/s | Of a result of a benchmark: mean over epochs, as it summed it up
io_bytes_per_s | bytes/s | Read a second, mean over epochs, as the benchmark summed it up
meets_threshold | | Whether the benchmark found its utilization met
save_bytes_per_s | bytes/s | Mean of saves of checkpoints, as the benchmark summed it up
load_bytes_per_s | bytes/s | Mean of loads of checkpoints, as the benchmark summed it up
checkpoint_nbytes | bytes | Size of one checkpoint of all ranks
epochs_from_memory | | Epochs that may have come from the hosts' memory: data are no more than it
exact | | Whether the value has to be that of least
utilization_percent | % | Accelerator utilization by the benchmark's formula
summary_percent | % | The same, as the benchmark summed it up
compute_set_s | s | How long each step was set to compute: it is emulated
benchmarks.total_s | s | Time that the utilization divides by, of the mean rank over all epochs
benchmarks.compute_s | s | Compute in it
waits_s | s | The rest of it by cause; null: not recorded
largest_wait | | The cause of the largest wait
dataset_nbytes | bytes | Size of all samples
memory_nbytes | bytes | Memory of all hosts
saves_s | s | How long each save of a checkpoint took the first rank
loads_s | s | How long each load of a checkpoint took the first rank
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

# Evidence of findings
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
evidence.first_bytes | bytes | Read by the first fetch of a worker in an epoch, median
evidence.usual_bytes | bytes | Read by one of its other fetches, median
evidence.times_the_usual_fetch | 1 | Time of the first fetch / that of the others
evidence.waited_s | s | Waited for first fetches beyond what another takes, over all epochs
evidence.samples | count | Samples that were read
evidence.share_of_fetches | 1 | Part of the fetches' time, between its bounds
evidence.validations | count | How often it was validated
evidence.pickled_bytes_a_worker | bytes | Data set sent to each worker at its start
evidence.sends_objects | | Whether it is requests to object storage
evidence.leaves_passes | | Whether few batches of each epoch are taken
evidence.every_s | s | Time between saves to which they are to be made fewer; null: as often as now
evidence.hidden_at_most_s | s | Of saves what the steps behind them can hide, at most
evidence.copied_s | s | Copies of the device under no kernel, outside input waits
evidence.from_pageable | | Whether most copies are to or from pageable memory
evidence.synced_s | s | Syncs of the training thread outside its waits
evidence.written_s | s | Writes of the training thread outside its waits and saves
evidence.exit_status | | Of the recorded command; 128 + N: signal N ended it
share_of_io | 1 | Share of the time in I/O
slow_reads | count | Reads far slower than the median
smallest_share | 1 | Unique bytes of the rank that read least / those of the job
spent_s | s | Time spent
spread | 1 | Busiest / mean
blocked_s | s | Time on a lock, the network, a timer or a child process, at least
batch_bytes | bytes | What the mean batch takes in memory
used_share | 1 | Bytes of batches in memory, of the bytes that were read for them
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

# vanidl compare --json and ab.json
primary | | Name of the metric that answers the question
confidence | 1 | Level of the intervals
smallest_change_called | 1 | Changes below it are never called better or worse
conditions | | How the runs were made, by name
sides | | What is compared
letter | | A, B, ...
sides.name | | Name of the side
sides.runs | | Its runs
runs.path | | Path of the run
pair | | Number of the pair; null: not paired
runs.id | | Identifier of the job; null: nothing was read
runs.start | | Start of the job, ISO 8601 in UTC; null: nothing was read
wall_time_s | s | Wall time of the whole command, by vanidl ab; null: not timed
missing | | Why nothing could be read; null where it could
a | | Letter of the first side
b | | Letter of the second side
paired | | Whether runs were compared pair by pair
notices | | What limits the comparison, in sentences
metrics | | Each metric, by name
cells | | Each cell of the accounts of time by its key, as mean/step/storage
cells.a | s | At least and at most, mean over the runs of the first side; null: no account
cells.b | s | The same of the second side
comparisons | | Each side against the first
metrics.a | as unit | Value, or mean over runs, of the first side; null: not recorded
metrics.b | as unit | The same of the second side
metrics.ratio | 1 | b / a; null where one is missing or 0
metrics.low | 1 | Lower end of the interval of the ratio; null: no interval
metrics.high | 1 | Upper end of the interval of the ratio; null: no interval
metrics.verdict | | better, worse, more, less, no difference shown, or why there is none
note | | Why there is no verdict; null where there is one
better | | Which way is better: lower, higher, neither
cell | | The cell of the account that it is, as mean/input_wait/; null: none
unit | | Unit of the values
difference | | b - a with its interval, for metrics with zeros; else null
difference.value | as unit | b - a
difference.low | as unit | Lower end
difference.high | as unit | Upper end
p | 1 | Probability of such a change among repeats of the same thing; null: no interval
p_corrected | 1 | The same, corrected for the number of metrics (Holm)
values_a | as unit | Value of each run
values_b | as unit | Value of each run
exit_status | | Exit status of the command

# Tables in vanidl export --to json
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

# vanidl check --json, rows of a survey and run.json
check.files | count | Files that were checked
states | count | Files in each state
check.left_out | count | Files in each state that are not listed
checked | | One entry per file
checked.kind | | What the file is; null: nothing tells
state | | whole, cut, damaged, empty, foreign, unreadable, ...: vanidl check says what each means
checked.read | | Whether at least a part of it could be read
version | | Version of its format; null: the file says none
checked.missing | | A sentence for each thing that is not there
checked.layers | | By layer: how much of it was traced
survey.job | | Identifier of the job
survey.start | | Start of the job, ISO 8601 in UTC
survey.ranks | count | Ranks
survey.processes | count | Processes
survey.source | | trace: from single operations; counters: from totals
storage_bytes_read | bytes | Bytes read through POSIX, STDIO, DFS and DAOS
storage_bytes_written | bytes | Bytes written through POSIX, STDIO, DFS and DAOS
io_share | 1 | Mean busy time over ranks / run time
io_per_rank_mean_s | s | Mean busy time over ranks
io_any_rank_s | s | Time in which any rank was in I/O
bandwidth_bytes_per_s | bytes/s | Bytes / io_any_rank_s
size_median | bytes | Median transfer
size_max | bytes | Largest transfer
read_ops | count | Reads of which the place is known
read_consecutive | count | Beginning where the one before ended
read_forward | count | Beginning beyond the end of the one before
read_backward | count | Beginning before the end of the one before
survey.warnings | | Codes of the warnings, separated by spaces
survey.findings | count | Findings
finding_codes | | Code of each finding, most severe first
finding_gains_s | s | Most that a change can save, per rank, by finding; null: nothing bounds it
user | | Name in the name of the log, else uid and a number
nodes | count | Hosts of the ranks; null: that of one is not recorded
input_s | s | Time in reads of the dataset, by counters, summed over processes, hidden or not
input_rank_hours | h | The same in hours, no more than ranks x run time
input_node_hours | h | input_rank_hours x nodes / ranks
input_file_systems | | Types of the file systems that the dataset was read from, most time first
input_file_system_s | s | Share of each of them in input_s
logs | count | Logs of the job
survey.workload | | Workload of a storage benchmark; null: the job is none
survey.utilization_percent | % | Its accelerator utilization
survey.largest_wait | | What most of the rest of its time was
largest_wait_percent | % | How much of the time that was
rules_not_kept | | Rules of the benchmark that the result does not keep
first_log | | Path of the first, relative to the folder that was surveyed
problem | | Why there is no more than this; null where the job was read
pid | | Number of the process
parent_pid | | Number of its parent
"""
