"""Fields of `vanidl summary --json` on steps, overlap and advice: name | unit | meaning."""

FIELDS = """
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
actions | | What to change: what failed, then what gains most, then what limits the numbers
actions.cause | | What it takes away: a cause of the breakdown, or a window of the run
gain_s | s | Saved at least and at most, per rank, of the observed time; null: no bound
gain_share | 1 | The same as shares of the run time; null: no bound
keeps | | What of the cause stays after the change; empty: nothing is known to
actions.change | | What to do: code or a command to copy, or a sentence
patch | | Of the run's own source, for git apply; null: the source is not at hand
diagnoses | | Causes, the most important first
diagnoses.cause | | What the change takes away
findings.cause | | What a change takes away: a cause of the breakdown, or a window of the run
step_at_most_s | s | Mean step where readers share the storage; null: as step_s
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
"""
